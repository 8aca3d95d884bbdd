package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// testObjectVersions checks that clients see one version of one revision of an object, whichever way they look.
func testObjectVersions(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "object-versions")
	fill(t, w.client, namespace, 6)
	const path = "/api/v1/namespaces/object-versions/configmaps"
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Stop()
		want := map[string]string{}
		for i := range 6 {
			name := fmt.Sprintf("map-%03d", i)
			written, err := maps.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, encoding), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := strconv.ParseInt(written.ResourceVersion, 10, 64); err != nil || n < 1e15 {
				t.Errorf("the version is %q: %v", written.ResourceVersion, err)
			}
			want[name] = written.ResourceVersion
			event := next(t, stream)
			if watched, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != watch.Modified || watched.ResourceVersion != written.ResourceVersion {
				t.Errorf("written as %s, watched as %v", written.ResourceVersion, event)
			}
			// The position follows, from which the watch can be resumed exactly.
			bookmark := next(t, stream)
			if marked, ok := bookmark.Object.(*corev1.ConfigMap); !ok || bookmark.Type != watch.Bookmark || len(marked.ResourceVersion) < 30 {
				t.Errorf("got %v, want a bookmark", bookmark)
			}
			read, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || read.ResourceVersion != written.ResourceVersion {
				t.Errorf("written as %s, read as %v, %v", written.ResourceVersion, read.ResourceVersion, err)
			}
			if read, err = maps.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: written.ResourceVersion}); err != nil || read.ResourceVersion != written.ResourceVersion {
				t.Errorf("read from version %s: %v, %v", written.ResourceVersion, read.ResourceVersion, err)
			}
			if read, err = maps.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: list.ResourceVersion}); err != nil || read.ResourceVersion != written.ResourceVersion {
				t.Errorf("read from a position: %v, %v", read.ResourceVersion, err)
			}
		}
		for _, options := range []metav1.ListOptions{{}, {Limit: 4}} {
			list, err = maps.List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if item := &list.Items[i]; item.ResourceVersion != want[item.Name] {
					t.Errorf("written as %s, listed as %s", want[item.Name], item.ResourceVersion)
				}
			}
		}
		initial, err := maps.Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, ResourceVersion: want["map-003"],
		})
		if err != nil {
			t.Fatal(err)
		}
		for range want {
			event := next(t, initial)
			if added, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != watch.Added || added.ResourceVersion != want[added.Name] {
				t.Errorf("got %v, want one of %v", event, want)
			}
		}
		initial.Stop()
		for _, accept := range []string{"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
			checkListed(t, w.get(t, path, url.Values{}, accept), want)
		}
		for _, accept := range []string{"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json"} {
			checkListed(t, w.get(t, path+"/map-002", url.Values{}, accept), map[string]string{"map-002": want["map-002"]})
		}
	}
}

// checkListed checks the versions in an answer: an object, a list or a Table.
func checkListed(t *testing.T, body []byte, want map[string]string) {
	t.Helper()
	type object struct {
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	var answer struct {
		object
		Items []object `json:"items"`
		Rows  []struct {
			Object object `json:"object"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	for _, row := range answer.Rows {
		answer.Items = append(answer.Items, row.Object)
	}
	if len(answer.Items) == 0 {
		answer.Items = append(answer.Items, answer.object)
	}
	if len(answer.Items) != len(want) {
		t.Errorf("got %d objects, want %d", len(answer.Items), len(want))
	}
	for _, item := range answer.Items {
		if item.Metadata.ResourceVersion != want[item.Metadata.Name] {
			t.Errorf("%s has version %s, want %s", item.Metadata.Name, item.Metadata.ResourceVersion, want[item.Metadata.Name])
		}
	}
}
