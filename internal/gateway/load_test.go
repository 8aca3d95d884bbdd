package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	idleWatches = 1000
	// idleGroups is the number of label values that the watches select by.
	idleGroups = 10
)

// testIdleWatches opens many watches. They do not slow down other requests, and the first event that each gets is the one it selects.
func testIdleWatches(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "idle-watches")
	fill(t, w.client, namespace, 6)
	client, err := rest.HTTPClientFor(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var opened errgroup.Group
	opened.SetLimit(16)
	first := make(chan error, idleWatches) // of each watch: whether its first event was the right one
	for i := range idleWatches {
		opened.Go(func() error {
			url := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps?watch=1&labelSelector=for%%3D%d", w.gateway.URL(), namespace, i%idleGroups)
			return openIdleWatch(ctx, client, url, fmt.Sprintf(`"name":"for-%d"`, i%idleGroups), first)
		})
	}
	if err := opened.Wait(); err != nil {
		t.Fatal(err)
	}
	maps := w.client.CoreV1().ConfigMaps(namespace)
	for i := range 6 { // no watch selects them
		if _, err := maps.Patch(t.Context(), fmt.Sprintf("map-%03d", i), types.MergePatchType, []byte(`{"data":{"value":"beside watches"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 6 {
		t.Errorf("a list beside the watches: %d objects, %v", len(list.Items), err)
	}
	for i := range idleGroups {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("for-%d", i), Labels: map[string]string{"for": fmt.Sprint(i)}}}
		if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range idleWatches {
		select {
		case err := <-first:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(eventTimeout):
			t.Fatal("a watch got no event")
		}
	}
}

// openIdleWatch opens a watch, and then sends whether its first event contains the wanted text.
func openIdleWatch(ctx context.Context, client *http.Client, url, want string, first chan<- error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	go func() {
		defer response.Body.Close()
		line, err := bufio.NewReader(response.Body).ReadString('\n')
		if err == nil && !strings.Contains(line, want) {
			err = fmt.Errorf("%s: the first event is %s, want %s", url, line, want)
		}
		first <- err
	}()
	return nil
}

// testOverload sends more requests than a gateway serves concurrently: some get 429, administrators are still served, and afterwards all
// requests are served again.
func testOverload(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "overload")
	fill(t, w.client, namespace, 6)
	small := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.MaxRequestsInFlight, o.MaxMutatingRequestsInFlight = 2, 2 })
	w.admit(t, small, "gwen")
	config := small.ConfigFor(t, "gwen")
	path := small.URL() + "/api/v1/namespaces/" + namespace + "/configmaps"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	release := occupy(t, client, path)
	var served, refused, other atomic.Int64
	var flood sync.WaitGroup
	for range 600 {
		flood.Go(func() {
			response, err := client.Get(path)
			if err != nil {
				other.Add(1)
				return
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
			switch {
			case response.StatusCode == http.StatusOK:
				served.Add(1)
			case response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	testenv.Eventually(t, "some requests get 429", func(context.Context) (bool, error) { return refused.Load() > 0, nil })
	if _, err := small.Client(t).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("an administrator during the flood: %v", err)
	}
	release()
	flood.Wait()
	if other.Load() != 0 {
		t.Errorf("%d requests were answered neither with 200 nor with 429 (%d and %d were)", other.Load(), served.Load(), refused.Load())
	}
	if _, err := clientFor(t, config).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}

// testFlowSchemas creates a FlowSchema for a user on the hub: answers of the gateway must name it.
func testFlowSchemas(t *testing.T, w *world) {
	created, err := w.client.FlowcontrolV1().FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "of-hugo"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: 10, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "hugo"}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "hugo's requests match his FlowSchema", func(context.Context) (bool, error) {
		response := send(t, w.gateway.ConfigFor(t, "hugo"), http.MethodGet, "/api/v1/namespaces/default/configmaps", nil, "")
		by := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
		return by == string(created.UID), fmt.Errorf("matched %q", by)
	})
}

// admit makes a user an administrator by RBAC, and waits until a gateway knows. Unlike system:masters, such a user is subject to flow
// control.
func (w *world) admit(t *testing.T, at *gatewaytest.Gateway, name string) {
	t.Helper()
	if _, err := w.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, at.ConfigFor(t, name))
	testenv.Eventually(t, name+" is authorized", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}

// occupy takes all seats with requests whose bodies never arrive, until release is called.
func occupy(t *testing.T, client *http.Client, path string) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var held sync.WaitGroup
	for range 30 {
		body, writer := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, path, io.MultiReader(bytes.NewReader([]byte(`{"metadata":`)), body))
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
		request.Header.Set("Content-Type", "application/json")
		held.Go(func() {
			if response, err := client.Do(request); err == nil {
				response.Body.Close()
			}
		})
	}
	t.Cleanup(cancel)
	return func() {
		cancel()
		held.Wait()
	}
}

// beginBookmarks begins a watch of objects that never change, and returns a test that checks its bookmarks: they must keep the watch
// resumable while other objects change in the tests between.
func beginBookmarks(t *testing.T, w *world) func(*testing.T, *world) {
	t.Helper()
	namespace := gatewaytest.Namespace(t, w.Federation, "bookmarks")
	fill(t, w.client, namespace, 3)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](900)})
	if err != nil {
		t.Fatal(err)
	}
	// Events are read when they come, so the watch is not ended for being slow.
	events := make(chan watch.Event, 1000)
	go func() {
		defer close(events)
		for event := range stream.ResultChan() {
			events <- event
		}
	}()
	return func(t *testing.T, w *world) {
		defer stream.Stop()
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if _, err := w.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere-" + name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		event := resumeFromBookmark(t, maps, list.ResourceVersion, events)
		if event.Type != watch.Deleted {
			t.Errorf("resumed from a bookmark: got %v, want a deletion", event)
		}
		t.Run("Last", func(t *testing.T) { testLastBookmark(t, w, namespace) })
	}
}

// testLastBookmark checks that a watch without events ends with a bookmark from which it can resume. API servers send it about two seconds
// before the end, which may fail on a busy machine, so it is retried.
func testLastBookmark(t *testing.T, w *world, namespace string) {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	testenv.Eventually(t, "a watch ends with a bookmark", func(ctx context.Context) (bool, error) {
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](6)})
		if err != nil {
			return false, err
		}
		defer stream.Stop()
		for range 12 { // in all cells
			if _, err := w.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}, metav1.CreateOptions{}); err != nil {
				return false, err
			}
		}
		last := ""
		for event := range stream.ResultChan() {
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok || event.Type != watch.Bookmark {
				t.Fatalf("got %v in a namespace without changes", event)
			}
			last = object.ResourceVersion
		}
		if last == "" {
			return false, nil
		}
		if order, err := resourceversion.CompareResourceVersion(last, list.ResourceVersion); err != nil || order <= 0 {
			t.Errorf("the version went from %s to %s: %v", list.ResourceVersion, last, err)
		}
		resumed, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: last})
		if err != nil {
			return false, err
		}
		resumed.Stop()
		return true, nil
	})
}

// resumeFromBookmark resumes a watch from the newest bookmark of another one, deletes an object and returns the first event. If the
// bookmark has expired since it came, the next one is used.
func resumeFromBookmark(t *testing.T, maps coreclient.ConfigMapInterface, version string, events <-chan watch.Event) watch.Event {
	t.Helper()
	for deletions := 0; ; deletions = 1 {
		version = newestBookmark(t, version, events, deletions)
		resumed, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if err := maps.Delete(t.Context(), "map-000", metav1.DeleteOptions{}); err != nil && deletions == 0 {
			t.Fatal(err)
		}
		event := next(t, resumed)
		resumed.Stop()
		if status, isError := event.Object.(*metav1.Status); !isError || status.Code != http.StatusGone {
			return event
		}
	}
}

// newestBookmark waits for a bookmark and returns the version of the last one that has come. Versions must grow, and nothing but
// bookmarks may come, except the deletions that the caller has made.
func newestBookmark(t *testing.T, version string, events <-chan watch.Event, deletions int) string {
	t.Helper()
	timeout := time.After(3 * time.Minute)
	for found := false; !found || len(events) > 0; {
		select {
		case event, open := <-events:
			object, ok := event.Object.(*corev1.ConfigMap)
			if ok && event.Type == watch.Deleted && deletions > 0 {
				deletions--
				continue
			}
			if !open || !ok || event.Type != watch.Bookmark {
				t.Fatalf("got %v, want a bookmark", event)
			}
			if order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, version); err != nil || order <= 0 {
				t.Errorf("the version went from %s to %s: %v", version, object.ResourceVersion, err)
			}
			version, found = object.ResourceVersion, true
		case <-timeout:
			t.Fatal("no bookmark came")
		}
	}
	return version
}
