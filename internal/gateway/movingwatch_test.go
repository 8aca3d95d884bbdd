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

// watcher is an informer that must not notice anything.
type watcher struct {
	t     *testing.T
	store cache.Store

	lock    sync.Mutex
	lists   int
	deleted map[string]bool
	wrong   []string
}

// RoundTrip counts how often the informer begins anew.
type counting struct {
	http.RoundTripper
	w *watcher
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.w.lock.Lock()
		c.w.lists++
		c.w.lock.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

func (y *yard) watch(gateway int) *watcher {
	w := &watcher{t: y.t, deleted: map[string]bool{}}
	config := y.gateways[gateway].Config(y.t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w} })
	factory := informers.NewSharedInformerFactoryWithOptions(clientFor(y.t, config), 0, informers.WithNamespace(y.namespace))
	informer := factory.Apps().V1().Deployments().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { w.update(before.(*appsv1.Deployment), after.(*appsv1.Deployment)) },
		DeleteFunc: func(object any) {
			name, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			w.lock.Lock()
			defer w.lock.Unlock()
			w.deleted[name] = true
			if !strings.Contains(name, "delete-") && !strings.Contains(name, "collected-") {
				w.wrong = append(w.wrong, name+" appears deleted")
			}
		},
	})
	must(y.t, err)
	w.store = informer.GetStore()
	factory.StartWithContext(y.t.Context())
	y.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(y.t.Context().Done(), informer.HasSynced) {
		y.t.Fatal("the informer does not sync")
	}
	return w
}

func (w *watcher) update(before, after *appsv1.Deployment) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if before.UID != after.UID {
		w.wrong = append(w.wrong, after.Name+" has another UID")
	}
	was, _ := strconv.Atoi(before.Annotations["value"])
	if is, err := strconv.Atoi(after.Annotations["value"]); err == nil && is < was || before.Generation > after.Generation {
		w.wrong = append(w.wrong, after.Name+" stepped back")
	}
}

// expect waits until the informer knows what a list shows.
func (w *watcher) expect(want map[string]string) {
	w.t.Helper()
	testenv.Eventually(w.t, "the informer is up to date", func(context.Context) (bool, error) {
		got := map[string]string{}
		for _, object := range w.store.List() {
			d := object.(*appsv1.Deployment)
			got[d.Name] = string(d.UID) + " " + d.Annotations["value"]
		}
		for name, value := range want {
			if got[name] != value {
				return false, fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		return len(got) == len(want), fmt.Errorf("it has %d, want %d", len(got), len(want))
	})
}

func (w *watcher) check() {
	w.t.Helper()
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, problem := range w.wrong {
		w.t.Error(problem)
	}
	if w.lists != 1 {
		w.t.Errorf("the informer began anew %d times", w.lists-1)
	}
}
