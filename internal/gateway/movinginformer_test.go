package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/testenv"
)

// movingInformer is an informer of Deployments. No move may make it list again, or show an object deleted or older than before.
type movingInformer struct {
	t     *testing.T
	store cache.Store

	lock     sync.Mutex
	lists    int
	problems []string
}

// listCounter counts the requests that list, and the watches that begin with the whole state.
type listCounter struct {
	http.RoundTripper
	informer *movingInformer
}

// RoundTrip implements http.RoundTripper.
func (c listCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.informer.lock.Lock()
		c.informer.lists++
		c.informer.lock.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// startInformer runs an informer through a gateway until the test ends.
func (f *movingFixture) startInformer(gateway int) *movingInformer {
	f.t.Helper()
	i := &movingInformer{t: f.t}
	config := f.gateways[gateway].Config(f.t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listCounter{next, i} })
	factory := informers.NewSharedInformerFactoryWithOptions(clientFor(f.t, config), 0, informers.WithNamespace(f.namespace))
	informer := factory.Apps().V1().Deployments().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { i.updated(before.(*appsv1.Deployment), after.(*appsv1.Deployment)) },
		DeleteFunc: i.deleted,
	})
	must(f.t, err)
	i.store = informer.GetStore()
	factory.StartWithContext(f.t.Context())
	f.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(f.t.Context().Done(), informer.HasSynced) {
		f.t.Fatal("the informer does not sync")
	}
	return i
}

func (i *movingInformer) updated(before, after *appsv1.Deployment) {
	i.lock.Lock()
	defer i.lock.Unlock()
	if before.UID != after.UID {
		i.problems = append(i.problems, after.Name+" changed its UID")
	}
	was, _ := strconv.Atoi(before.Annotations["value"])
	if is, err := strconv.Atoi(after.Annotations["value"]); err == nil && is < was || before.Generation > after.Generation {
		i.problems = append(i.problems, after.Name+" went back to an earlier state")
	}
}

// deleted complains about deletions, except of the objects that stages delete.
func (i *movingInformer) deleted(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err == nil && (strings.Contains(name, "delete-") || strings.Contains(name, "collected-")) {
		return
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	i.problems = append(i.problems, name+" appears deleted")
}

// waitFor waits until the informer has exactly what a list returned.
func (i *movingInformer) waitFor(want map[string]string) {
	i.t.Helper()
	testenv.Eventually(i.t, "the informer is up to date", func(context.Context) (bool, error) {
		got := map[string]string{}
		for _, object := range i.store.List() {
			d := object.(*appsv1.Deployment)
			got[d.Name] = string(d.UID) + " " + d.Annotations["value"]
		}
		for name, value := range want {
			if got[name] != value {
				return false, fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		return len(got) == len(want), fmt.Errorf("it has %d objects, want %d", len(got), len(want))
	})
}

func (i *movingInformer) check() {
	i.t.Helper()
	i.lock.Lock()
	defer i.lock.Unlock()
	for _, problem := range i.problems {
		i.t.Error(problem)
	}
	if i.lists != 1 {
		i.t.Errorf("the informer listed %d times, want once", i.lists)
	}
}
