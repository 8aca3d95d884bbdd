package cells

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/testenv"
)

// bystander names an object that is watched but not propagated, besides workloads and notes.
func bystander(i int) string { return fmt.Sprintf("bystander-%d", i) }

const bystanders = 6

var (
	secrets      = corev1.SchemeGroupVersion.WithResource("secrets")
	services     = corev1.SchemeGroupVersion.WithResource("services")
	deployments  = appsv1.SchemeGroupVersion.WithResource("deployments")
	statefulSets = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	gadgets      = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
)

const gadgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// manifests are the bystanders of each kind, without names.
var manifests = map[schema.GroupVersionResource]string{
	secrets:  `{"apiVersion":"v1","kind":"Secret","stringData":{"text":"hidden"}}`,
	services: `{"apiVersion":"v1","kind":"Service","spec":{"selector":{"app":"none"},"ports":[{"port":80}]}}`,
	statefulSets: `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"serviceName":"none","selector":{"matchLabels":{"app":"none"}},
"template":{"metadata":{"labels":{"app":"none"}},"spec":{"containers":[{"name":"web","image":"nginx:1"}]}}}}`,
	gadgets: `{"apiVersion":"example.com/v1","kind":"Gadget","spec":{"text":"anything"}}`,
}

// createBystanders creates objects of several kinds. One of these kinds is new to the federation.
func (w *world) createBystanders() {
	w.Helper()
	file := filepath.Join(w.TempDir(), "gadgets.json")
	if err := os.WriteFile(file, []byte(gadgetDefinition), 0o600); err != nil {
		w.Fatal(err)
	}
	w.run("kubectl", "--context", "cellplane", "create", "-f", file)
	client := dynamic.NewForConfigOrDie(w.config)
	for resource, manifest := range manifests {
		for i := range bystanders {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON([]byte(manifest)); err != nil {
				w.Fatal(err)
			}
			object.SetName(bystander(i))
			testenv.Eventually(w, resource.Resource+" are served", func(ctx context.Context) (bool, error) {
				_, err := client.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
				return err == nil || apierrors.IsAlreadyExists(err), err // the answer to a former attempt may have been lost
			})
		}
	}
}

// startBystanderWriter increments all bystanders until stopBystanderWriter is called.
func (w *world) startBystanderWriter() {
	client := dynamic.NewForConfigOrDie(w.config)
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			for resource := range manifests {
				for i := range bystanders {
					patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)
					_, err := client.Resource(resource).Namespace(namespace).Patch(ctx, bystander(i), types.MergePatchType, patch, metav1.PatchOptions{})
					if err != nil && ctx.Err() == nil && !isUnavailable(err) {
						w.report("writing %s %s: %v", resource.Resource, bystander(i), err)
					}
				}
			}
		}
	})
	w.stopBystanderWriter = sync.OnceFunc(func() {
		stop()
		group.Wait()
	})
	w.Cleanup(w.stopBystanderWriter)
}

// startWatching runs typed, dynamic and metadata informers through the gateway until the test ends.
func (w *world) startWatching() {
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &listRecorder{next, &w.lists} })
	typed := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(config), 0, informers.WithNamespace(namespace))
	untyped := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, namespace, nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), 0, namespace, nil)
	w.informers = []cache.SharedIndexInformer{
		typed.Apps().V1().Deployments().Informer(), typed.Core().V1().ConfigMaps().Informer(),
		typed.Core().V1().Secrets().Informer(), typed.Core().V1().Services().Informer(), typed.Apps().V1().StatefulSets().Informer(),
		untyped.ForResource(gadgets).Informer(), untyped.ForResource(services).Informer(),
		partial.ForResource(gadgets).Informer(), partial.ForResource(secrets).Informer(),
	}
	for _, informer := range w.informers {
		if _, err := informer.AddEventHandler(w.checkingHandler()); err != nil {
			w.Fatal(err)
		}
	}
	stop := make(chan struct{})
	for _, factory := range []interface {
		Start(<-chan struct{})
		Shutdown()
	}{typed, untyped, partial} {
		factory.Start(stop)
		w.Cleanup(factory.Shutdown)
	}
	w.Cleanup(func() { close(stop) })
	for _, informer := range w.informers {
		if !cache.WaitForCacheSync(w.Context().Done(), informer.HasSynced) {
			w.Fatal("an informer does not sync")
		}
	}
	w.lists.take()
}

// checkingHandler reports events that no informer may get.
func (w *world) checkingHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) {
			before, after := old.(metav1.Object), now.(metav1.Object)
			if before.GetUID() != after.GetUID() {
				w.report("an informer saw %T %s with another UID", now, after.GetName())
			}
			if before.GetGeneration() > after.GetGeneration() {
				w.report("an informer saw %T %s go back from generation %d to %d", now, after.GetName(), before.GetGeneration(), after.GetGeneration())
			}
			if a, b := countOf(before), countOf(after); a > b && !w.mayGoBack(after.GetName(), a, b) {
				w.report("an informer saw %T %s go back from %d to %d", now, after.GetName(), a, b)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, missed := object.(cache.DeletedFinalStateUnknown); missed {
				object = tombstone.Obj
			}
			w.report("an informer saw %T %s deleted", object, object.(metav1.Object).GetName())
		},
	}
}

// countOf returns the number in an object.
func countOf(object metav1.Object) int {
	text := object.GetAnnotations()["n"]
	if note, ok := object.(*corev1.ConfigMap); ok {
		text = note.Data["n"]
	}
	n, _ := strconv.Atoi(text)
	return n
}

// listRecorder records lists, and watches that begin with the whole state.
type listRecorder struct {
	next  http.RoundTripper
	lists *requests
}

func (c *listRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); query.Get("sendInitialEvents") == "true" || query.Get("watch") == "" {
		c.lists.add(r.URL.Path + " as " + r.Header.Get("Accept"))
	}
	return c.next.RoundTrip(r)
}

// requests are recorded requests.
type requests struct {
	mu    sync.Mutex
	noted []string
}

func (n *requests) add(request string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noted = append(n.noted, request)
}

// take returns the requests since the last call.
func (n *requests) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	noted := n.noted
	n.noted = nil
	return noted
}

// waitRelisted waits until all informers have listed again. Positions do not survive the loss of a cell, so an informer in the present
// epoch has listed.
func (w *world) waitRelisted() {
	w.Helper()
	defer w.logDuration("informers have listed again")()
	epoch := w.topology(w.Context()).Generation
	w.waitInformersAt(fmt.Sprintf("in epoch %d", epoch), func(at position.Position) bool { return at.Epoch >= epoch })
	w.lists.take()
}

// waitReadToEnd waits until all informers have got every event of a cell that has left.
func (w *world) waitReadToEnd(cell string) {
	w.Helper()
	defer w.logDuration("informers read " + cell + " to its end")()
	topology := w.topology(w.Context())
	var least uint64
	cells := map[string]bool{}
	for _, c := range topology.Spec.Cells {
		cells[c.Name] = true
	}
	for _, epoch := range topology.Status.Epochs {
		if epoch.Epoch == topology.Generation {
			least = uint64(max(epoch.Least[cell], 0))
			for name := range epoch.Least {
				cells[name] = true // positions also include cells that have left
			}
		}
	}
	place := slices.Index(slices.Sorted(maps.Keys(cells)), cell)
	if least == 0 || place < 0 {
		w.Fatalf("%s has not left in epoch %d: %+v", cell, topology.Generation, topology.Status.Epochs)
	}
	w.waitInformersAt(fmt.Sprintf("behind revision %d of %s", least, cell), func(at position.Position) bool {
		return at.Epoch == topology.Generation && len(at.Versions) == len(cells) && at.Versions[place] >= least
	})
}

// writeInLeftCell creates and deletes an object of each watched kind in a cell that has left, in a namespace that no informer watches. The
// gateway reads these events, so informers need not wait up to a minute for the next bookmarks of that cell.
func (w *world) writeInLeftCell(cell string) {
	w.Helper()
	client := dynamic.NewForConfigOrDie(w.context(cell))
	kinds := maps.Clone(manifests)
	kinds[deployments] = strings.Replace(strings.Replace(manifests[statefulSets], "StatefulSet", "Deployment", 1), `"serviceName":"none",`, "", 1)
	kinds[corev1.SchemeGroupVersion.WithResource("configmaps")] = `{"apiVersion":"v1","kind":"ConfigMap"}`
	for resource, manifest := range kinds {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(manifest)); err != nil {
			w.Fatal(err)
		}
		object.SetName("left-cell")
		objects := client.Resource(resource).Namespace(metav1.NamespaceDefault)
		if _, err := objects.Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		if err := objects.Delete(w.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// waitInformersAt waits until the positions of all informers meet a condition. Positions come with events, so it causes events.
func (w *world) waitInformersAt(where string, there func(position.Position) bool) {
	w.Helper()
	client, n := dynamic.NewForConfigOrDie(w.config), 0
	testenv.Eventually(w, "all informers are "+where, func(ctx context.Context) (bool, error) {
		for i, informer := range w.informers {
			if at, err := position.Parse(informer.LastSyncResourceVersion()); err != nil || !there(at) {
				n++
				return false, errors.Join(fmt.Errorf("informer %d is at %+v", i, at), err, touchEachKind(ctx, client, n))
			}
		}
		return true, nil
	})
}

// touchEachKind changes one object of each watched kind, except notes, which the writers change.
func touchEachKind(ctx context.Context, client dynamic.Interface, n int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, n)
	_, err := client.Resource(deployments).Namespace(namespace).Patch(ctx, workload(0), types.MergePatchType, patch, metav1.PatchOptions{})
	for resource := range manifests {
		_, failed := client.Resource(resource).Namespace(namespace).Patch(ctx, bystander(0), types.MergePatchType, patch, metav1.PatchOptions{})
		err = errors.Join(err, failed)
	}
	return err
}

// checkNoRelist checks that no informer has listed since the last call.
func (w *world) checkNoRelist() {
	w.Helper()
	for _, request := range w.lists.take() {
		w.Errorf("an informer listed again: %s", request)
	}
}

// waitInformersUpToDate waits until all informers show the stored objects. An informer whose watch has silently ended would not.
func (w *world) waitInformersUpToDate() {
	w.Helper()
	defer w.logDuration("informers are up to date")()
	client := dynamic.NewForConfigOrDie(w.config)
	for resource := range manifests {
		list, err := client.Resource(resource).Namespace(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if len(list.Items) != bystanders {
			w.Errorf("there are %d %s", len(list.Items), resource.Resource)
		}
		for i := range list.Items {
			w.waitShown(&list.Items[i])
		}
	}
}

// waitShown waits until every informer of an object shows its present or a later state.
func (w *world) waitShown(want *unstructured.Unstructured) {
	w.Helper()
	testenv.Eventually(w, "informers show "+want.GetKind()+" "+want.GetName(), func(context.Context) (bool, error) {
		found := 0
		for _, informer := range w.informers {
			cached, exists, err := informer.GetStore().GetByKey(namespace + "/" + want.GetName())
			if err != nil {
				return false, err
			}
			if !exists || cached.(metav1.Object).GetUID() != want.GetUID() {
				continue // an informer of another kind
			}
			if got := countOf(cached.(metav1.Object)); got < countOf(want) {
				return false, fmt.Errorf("an informer shows %T at %d, want %d", cached, got, countOf(want))
			}
			found++
		}
		if found == 0 {
			return false, fmt.Errorf("no informer has %s", strings.ToLower(want.GetKind()))
		}
		return true, nil
	})
}
