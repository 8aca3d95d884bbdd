package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// sharedWatches is the number of concurrent watches.
const sharedWatches = 10

// testSharedWatch checks that concurrent watches see the same events in the same order.
func testSharedWatch(t *testing.T, w *world) {
	for i, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(gatewaytest.Namespace(t, w.Federation, fmt.Sprintf("shared-watch-%d", i)))
		checkFromVersions(t, maps)
		checkFromPositions(t, maps)
	}
}

// checkFromVersions begins a watch at the version of every event that another one has shown. Each of them shows the next event first,
// though that is in another cell.
func checkFromVersions(t *testing.T, maps coreclient.ConfigMapInterface) {
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := list.ResourceVersion
	var streams []watch.Interface
	for i := range sharedWatches {
		stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Stop()
		streams = append(streams, stream)
		changeOne(t.Context(), t, maps, i)
		for j, stream := range streams {
			event := next(t, stream)
			object, ok := event.Object.(*corev1.ConfigMap)
			switch {
			case !ok:
				t.Fatalf("watch %d: got %v", j, event)
			case j == 0:
				version = object.ResourceVersion
			case object.ResourceVersion != version:
				t.Errorf("event %d: watch %d shows version %s, the first watch %s", i, j, object.ResourceVersion, version)
			}
		}
	}
}

// changeOne makes a change that depends on its number: it creates an object, updates it, or deletes it.
func changeOne(ctx context.Context, t *testing.T, maps coreclient.ConfigMapInterface, i int) {
	t.Helper()
	name := fmt.Sprintf("map-%d", i/3)
	var err error
	switch i % 3 {
	case 0:
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	case 1:
		_, err = maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "changed"}}, metav1.UpdateOptions{})
	default:
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkFromPositions begins watches while several clients write. Each watch misses nothing after the list that it began with, and all
// agree about the order.
func checkFromPositions(t *testing.T, maps coreclient.ConfigMapInterface) {
	const writers, writes = 3, 20
	var group errgroup.Group
	for writer := range writers {
		group.Go(func() error {
			name := fmt.Sprintf("written-%d", writer)
			if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			for i := range writes {
				patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, i)
				if _, err := maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return maps.Delete(t.Context(), name, metav1.DeleteOptions{})
		})
	}
	seen := make([][]string, sharedWatches)
	streams := make([]watch.Interface, sharedWatches)
	for i := range streams {
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if streams[i], err = maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion}); err != nil {
			t.Fatal(err)
		}
		defer streams[i].Stop()
		for j := range list.Items {
			seen[i] = append(seen[i], list.Items[j].ResourceVersion)
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for writer := range writers { // the last event about each name
		created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("last-%d", writer)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last[created.ResourceVersion] = created.Name
	}
	var longest []string
	for i, stream := range streams {
		listed := len(seen[i])
		for missing := len(last); missing > 0; {
			object, ok := next(t, stream).Object.(*corev1.ConfigMap)
			if !ok {
				t.Fatal("the watch shows an error")
			}
			if slices.Contains(seen[i], object.ResourceVersion) {
				t.Errorf("watch %d shows version %s again", i, object.ResourceVersion)
			}
			seen[i] = append(seen[i], object.ResourceVersion)
			if last[object.ResourceVersion] != "" {
				missing--
			}
		}
		if seen[i] = seen[i][listed:]; len(seen[i]) > len(longest) {
			longest = seen[i]
		}
	}
	for i := range seen {
		common := slices.DeleteFunc(slices.Clone(longest), func(version string) bool { return !slices.Contains(seen[i], version) })
		mine := slices.DeleteFunc(slices.Clone(seen[i]), func(version string) bool { return !slices.Contains(longest, version) })
		if !slices.Equal(mine, common) {
			t.Errorf("watch %d shows %v, another one %v", i, mine, common)
		}
	}
}
