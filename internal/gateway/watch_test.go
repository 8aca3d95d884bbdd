package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func readOK(t testing.TB, response *http.Response) []byte {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", response.Status, body)
	}
	return body
}

// eventTimeout bounds the wait for an event. It is long, for loaded machines.
const eventTimeout = 2 * time.Minute

// next returns the next event of a watch.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch has ended")
		}
		return event
	case <-time.After(eventTimeout):
		t.Fatalf("no event came within %v", eventTimeout)
	}
	panic("unreachable")
}

// awaitSamples waits until a watch can begin at the version of an object in any cell. A gateway that has just started cannot know how
// far the other cells were.
func awaitSamples(t *testing.T, w *world) {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps("default")
	testenv.Eventually(t, "watches begin at versions", func(ctx context.Context) (bool, error) {
		for range 8 { // in all cells
			created, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "sampled-"}}, metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
			if err := maps.Delete(ctx, created.Name, metav1.DeleteOptions{}); err != nil {
				return false, err
			}
			stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
			if err != nil {
				return false, err
			}
			event := next(t, stream)
			stream.Stop()
			if event.Type == watch.Error {
				return false, apierrors.FromObject(event.Object)
			}
		}
		return true, nil
	})
}

func testWatch(t *testing.T, w *world) {
	awaitSamples(t, w)
	namespace := gatewaytest.Namespace(t, w.Federation, "watch")
	fill(t, w.client, namespace, 6)
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Stop()
		var versions []string
		var final []corev1.ConfigMap
		for i := range 6 {
			name := fmt.Sprintf("map-%03d", i)
			if _, err := maps.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":"%d %s"}}`, i, encoding[:14]), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			event := next(t, stream)
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok || event.Type != watch.Modified || object.Name != name {
				t.Fatalf("got %v", event)
			}
			versions = append(versions, object.ResourceVersion)
			// An object from a watch can be written back.
			object.Data["value"] = "written back"
			written, err := maps.Update(t.Context(), object, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("updating an object from a watch: %v", err)
			}
			final = append(final, *written)
			if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Fatalf("updating it twice: %v, want a conflict", err)
			}
			next(t, stream)
		}
		// The version of each event resumes the watch after it. What has happened in other cells shortly before may be repeated.
		for i, version := range versions {
			resumed, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			checkResumed(t, resumed, final[i:])
			resumed.Stop()
		}
		// A deletion has a version of its own.
		if err := maps.Delete(t.Context(), "map-000", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		event := next(t, stream)
		if event.Type != watch.Deleted {
			t.Fatalf("got %v", event)
		}
		resumed, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: event.Object.(*corev1.ConfigMap).ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "map-000"}, Data: map[string]string{}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		event = next(t, resumed)
		for event.Type != watch.Error && event.Object.(*corev1.ConfigMap).Name != "map-000" {
			event = next(t, resumed)
		}
		if event.Type != watch.Added {
			t.Errorf("resumed from a deletion: got %v, want the next creation", event)
		}
		resumed.Stop()
	}
}

// checkResumed waits until a watch has shown the final state of objects. Until then no object may become older.
func checkResumed(t *testing.T, stream watch.Interface, final []corev1.ConfigMap) {
	t.Helper()
	missing, shown := map[string]string{}, map[string]string{}
	for i := range final {
		missing[final[i].Name] = final[i].ResourceVersion
	}
	for len(missing) > 0 {
		event := next(t, stream)
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("got %v, and not yet %v", event, missing)
		}
		if former := shown[object.Name]; former != "" {
			if order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, former); err != nil || order <= 0 {
				t.Errorf("the version of %s went from %s to %s: %v", object.Name, former, object.ResourceVersion, err)
			}
		}
		if shown[object.Name] = object.ResourceVersion; missing[object.Name] == object.ResourceVersion {
			delete(missing, object.Name)
		}
	}
}

// testInitialEvents watches without a version: the present state comes first.
func testInitialEvents(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "initial-events")
	fill(t, w.client, namespace, 9)
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		for _, version := range []string{"", "0"} {
			stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			for range 9 {
				if event := next(t, stream); event.Type != watch.Added {
					t.Errorf("got %v", event)
				}
			}
			stream.Stop()
		}
		stream, err := maps.Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 9 {
			if event := next(t, stream); event.Type != watch.Added {
				t.Errorf("got %v", event)
			}
		}
		end := next(t, stream)
		object, ok := end.Object.(*corev1.ConfigMap)
		if !ok || end.Type != watch.Bookmark || object.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Fatalf("got %v, want the end of the initial events", end)
		}
		stream.Stop()
		resumed, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: object.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Patch(t.Context(), "map-001", types.MergePatchType, []byte(`{"data":{"value":"`+encoding+`"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if event := next(t, resumed); event.Type != watch.Modified {
			t.Errorf("got %v", event)
		}
		resumed.Stop()
	}
}

// testExpiredWatch watches from versions that do not exist: the answer is an ERROR event, never an HTTP error.
func testExpiredWatch(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "expired-watch")
	fill(t, w.client, namespace, 3)
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		for name, version := range map[string]string{
			"foreign":       "1" + strings.Repeat("3", 29),
			"another epoch": "10000000042" + strings.Repeat(fmt.Sprintf("%019d", 5), 3),
			"of an object":  "7",
		} {
			stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Errorf("%s: %v, want an event", name, err)
				continue
			}
			event := next(t, stream)
			status, ok := event.Object.(*metav1.Status)
			if event.Type != watch.Error || !ok || status.Code != http.StatusGone {
				t.Errorf("%s: got %v", name, event)
			}
			stream.Stop()
		}
	}
	_, err := w.client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)})
	if !apierrors.IsInvalid(err) {
		t.Errorf("initial events without a match: %v, want 422", err)
	}
}

func testInformers(t *testing.T, w *world) { w.checkInformers(t, "informers") }

// testInformersOfOld runs informers that list before they watch.
func testInformersOfOld(t *testing.T, w *world) {
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, false)
	w.checkInformers(t, "informers-of-old")
}

// informed is the number of objects for informers.
const informed = 240

// checkInformers runs all kinds of informers against changing objects, and checks their final state.
func (w *world) checkInformers(t *testing.T, name string) {
	t.Helper()
	namespace := gatewaytest.Namespace(t, w.Federation, name)
	fill(t, w.client, namespace, informed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watched := map[string]cache.SharedIndexInformer{}
	deletions := map[string]*sync.Map{}
	add := func(name string, informer cache.SharedIndexInformer) {
		seen := &sync.Map{}
		deletions[name] = seen
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			seen.Store(key, true)
		}}); err != nil {
			t.Fatal(err)
		}
		watched[name] = informer
		go informer.RunWithContext(ctx)
	}
	for _, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		add("typed "+encoding, informers.NewSharedInformerFactoryWithOptions(clientFor(t, config), 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer())
		partial, err := metadata.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		add("metadata "+encoding, metadatainformer.NewFilteredSharedInformerFactory(partial, 0, namespace, nil).ForResource(configMaps).Informer())
	}
	unstructured, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	add("dynamic", dynamicinformer.NewFilteredDynamicSharedInformerFactory(unstructured, 0, namespace, nil).ForResource(configMaps).Informer())
	for name, informer := range watched {
		testenv.Eventually(t, name+" has synced", func(context.Context) (bool, error) { return informer.HasSynced(), nil })
		if got := len(informer.GetStore().ListKeys()); got != informed {
			t.Errorf("%s: synced with %d objects, want %d", name, got, informed)
		}
	}
	maps := w.client.CoreV1().ConfigMaps(namespace)
	for i := range informed {
		name := fmt.Sprintf("map-%03d", i)
		switch i % 4 {
		case 0:
			err = maps.Delete(ctx, name, metav1.DeleteOptions{})
		case 1:
			_, err = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})
		case 2:
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "more-" + name}}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, informer := range watched {
		testenv.Eventually(t, name+" has caught up", func(context.Context) (bool, error) {
			changed := 0
			for _, object := range informer.GetStore().List() {
				if object.(metav1.Object).GetLabels()["changed"] == "yes" {
					changed++
				}
			}
			keys, gone := len(informer.GetStore().ListKeys()), 0
			deletions[name].Range(func(any, any) bool { gone++; return true })
			return keys == informed && changed == informed/4 && gone == informed/4, fmt.Errorf("%d objects, %d changed, %d deletions seen", keys, changed, gone)
		})
	}
}

// testRetryWatcher runs a RetryWatcher, as kubectl does, from an expired and from a valid version.
func testRetryWatcher(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "retry-watcher")
	fill(t, w.client, namespace, 3)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return maps.Watch(ctx, options)
	}}
	expired, err := watchtools.NewRetryWatcherWithContext(t.Context(), "1"+strings.Repeat("3", 29), source)
	if err != nil {
		t.Fatal(err)
	}
	if event := next(t, expired); event.Type != watch.Error {
		t.Errorf("got %v, want an error", event)
	}
	<-expired.Done()

	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, source)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if err := maps.Delete(t.Context(), "map-001", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := next(t, watcher); event.Type != watch.Deleted {
		t.Errorf("got %v", event)
	}
	t.Run("FromObject", func(t *testing.T) { testRetryWatcherFromObject(t, w, namespace, source) })
}

// testRetryWatcherFromObject watches from the version of an object that was just created, as many clients do, and sees what happens
// after it.
func testRetryWatcherFromObject(t *testing.T, w *world, namespace string, source *cache.ListWatch) {
	awaitSamples(t, w)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	for i := range 4 { // in several cells
		name := fmt.Sprintf("until-%d", i)
		created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"value":"done"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		other, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-other"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
		defer cancel()
		changed, found := false, false
		if _, err := watchtools.Until(ctx, created.ResourceVersion, source, func(event watch.Event) (bool, error) {
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				return false, fmt.Errorf("got %v", event)
			}
			if object.Name == name && object.ResourceVersion == created.ResourceVersion {
				return false, fmt.Errorf("got the creation, although the watch begins after it: %v", event)
			}
			changed = changed || object.Name == name && object.Data["value"] == "done"
			found = found || object.Name == other.Name && object.ResourceVersion == other.ResourceVersion
			return changed && found, nil
		}); err != nil {
			t.Errorf("watching from the version %s of %s: %v; changed %v, other %v", created.ResourceVersion, name, err, changed, found)
		}
	}
}
