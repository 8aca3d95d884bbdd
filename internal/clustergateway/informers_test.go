package clustergateway_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	encodings = []string{"application/json", "application/vnd.kubernetes.protobuf"}
	podKind   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// follower has what the events of an informer say. The informer's own store may be ahead of them.
type follower struct {
	name string

	mu      sync.Mutex
	held    map[string]metav1.Object
	deleted int
	marked  map[string]bool // as stale
}

func newFollower(t testing.TB, name string, informer cache.SharedIndexInformer) *follower {
	t.Helper()
	f := &follower{name: name, held: map[string]metav1.Object{}, marked: map[string]bool{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: f.hold,
		DeleteFunc: func(object any) {
			key, _ := cache.DeletionHandlingObjectToName(object)
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.held, key.Name)
			f.deleted++
		},
		UpdateFunc: func(_, after any) { f.hold(after) },
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go informer.RunWithContext(ctx)
	testenv.Eventually(t, name+" has synced", func(context.Context) (bool, error) { return informer.HasSynced(), nil })
	return f
}

func (f *follower) hold(object any) {
	described := object.(metav1.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[described.GetName()] = described
	if described.GetAnnotations()[names.StaleSinceAnnotation] != "" {
		f.marked[described.GetName()] = true
	}
}

// version returns the version of an object, or nothing.
func (f *follower) version(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[name] == nil {
		return ""
	}
	return f.held[name].GetResourceVersion()
}

// expectDeletions checks how many deletions the informer received.
func (f *follower) expectDeletions(t testing.TB, want int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deleted != want {
		t.Errorf("%s: got %d deletions, want %d", f.name, f.deleted, want)
	}
}

// stale reports whether the informer received all these objects as stale.
func (f *follower) stale(names ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !f.marked[name] })
}

// eventually waits until the informer holds the wanted objects.
func (f *follower) eventually(t testing.TB, what string, wanted func(map[string]metav1.Object) bool) {
	t.Helper()
	testenv.Eventually(t, f.name+": "+what, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return wanted(f.held), fmt.Errorf("it holds %s", strings.Join(slices.Sorted(maps.Keys(f.held)), " "))
	})
}

func testInformers(t *testing.T, w *world) { w.checkInformers(t, "informers") }

// testInformersOfOld checks informers that list before they watch.
func testInformersOfOld(t *testing.T, w *world) {
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, false)
	w.checkInformers(t, "informers-of-old")
}

// checkInformers runs all kinds of informers while members change, and compares their final content.
func (w *world) checkInformers(t *testing.T, name string) {
	t.Helper()
	namespace := w.namespace(t, name)
	for i := range 8 {
		w.run(t, i%2, namespace, fmt.Sprintf("pod-%d", i), nil)
	}
	for i := range 8 {
		w.eventuallyPod(t, "all pods are shown", namespace, fmt.Sprintf("pod-%d", i), running)
	}
	followers := w.follow(t, namespace)
	for _, f := range followers {
		f.eventually(t, "it has all pods", func(held map[string]metav1.Object) bool { return len(held) == 8 })
	}
	for i := range 8 {
		pods, name := w.members[i%2].CoreV1().Pods(namespace), fmt.Sprintf("pod-%d", i)
		switch i / 2 {
		case 0:
			check(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		case 1:
			check(t, second(pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})))
		case 2:
			w.run(t, i%2, namespace, "more-"+name, nil)
		}
	}
	for _, f := range followers {
		f.eventually(t, "it has caught up", func(held map[string]metav1.Object) bool {
			changed := 0
			for _, object := range held {
				if object.GetLabels()["changed"] == "yes" {
					changed++
				}
			}
			return len(held) == 8 && changed == 2 && held["pod-0"] == nil && held["more-pod-5"] != nil
		})
		f.expectDeletions(t, 2)
	}
}

// follow starts every kind of informer for the pods of a namespace.
func (w *world) follow(t testing.TB, namespace string) []*follower {
	t.Helper()
	var all []*follower
	for _, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		all = append(all, newFollower(t, "typed "+encoding, informers.NewSharedInformerFactoryWithOptions(clientFor(t, config), 0, informers.WithNamespace(namespace)).Core().V1().Pods().Informer()))
		partial, err := metadata.NewForConfig(config)
		check(t, err)
		all = append(all, newFollower(t, "metadata "+encoding, metadatainformer.NewFilteredSharedInformerFactory(partial, 0, namespace, nil).ForResource(podKind).Informer()))
	}
	objects, err := dynamic.NewForConfig(w.gateway.Config(t))
	check(t, err)
	return append(all, newFollower(t, "dynamic", dynamicinformer.NewFilteredDynamicSharedInformerFactory(objects, 0, namespace, nil).ForResource(podKind).Informer()))
}

// testControllerRuntime runs a controller that labels the pods of members.
func testControllerRuntime(t *testing.T, w *world) {
	namespace := w.namespace(t, "controller-runtime")
	ctrl.SetLogger(klog.Background())
	manager, err := ctrl.NewManager(w.gateway.Config(t), ctrl.Options{
		Scheme:     scheme.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      runtimecache.Options{DefaultNamespaces: map[string]runtimecache.Config{namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	check(t, err)
	objects := manager.GetClient()
	reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		pod := &corev1.Pod{}
		if err := objects.Get(ctx, request.NamespacedName, pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if pod.Labels["seen"] == pod.Annotations["cellplane.io/cluster"] {
			return reconcile.Result{}, nil
		}
		pod.Labels = map[string]string{"seen": pod.Annotations["cellplane.io/cluster"]}
		// The object comes from the cache, and so does its version.
		if err := objects.Update(ctx, pod); apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
		} else if err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, nil
	})
	check(t, ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(reconciler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	w.run(t, 0, namespace, "one", nil)
	w.run(t, 1, namespace, "two", nil)
	for i, name := range []string{"one", "two"} {
		testenv.Eventually(t, "the controller has seen "+name, func(ctx context.Context) (bool, error) {
			pod, err := w.members[i].CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for annotation := range pod.Annotations {
				if strings.HasPrefix(annotation, "cellplane.io/") {
					t.Fatalf("the member has the annotation %s", annotation)
				}
			}
			return pod.Labels["seen"] == fmt.Sprintf("member%d", i+1), nil
		})
	}
	cancel()
	check(t, <-ended)
}
