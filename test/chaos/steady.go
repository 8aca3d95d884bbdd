package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// steady is objects that are never deleted, and an informer that must show each with one UID and a growing number.
type steady struct {
	client kubernetes.Interface
	count  int
	store  cache.Store

	mu      sync.Mutex
	lists   int
	wrong   []string
	written map[string]int
}

// steadyLabel selects them.
const steadyLabel = "steady"

// counting counts how often the informer lists.
type counting struct {
	http.RoundTripper
	s *steady
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if r.Method == http.MethodGet && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") && query.Get("labelSelector") != "" {
		c.s.mu.Lock()
		c.s.lists++
		c.s.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// newSteady creates the objects and starts the informer.
func newSteady(ctx context.Context, config *rest.Config, count int) (*steady, error) {
	s := &steady{count: count, written: map[string]int{}}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, s} })
	var err error
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	for i := range count {
		name := fmt.Sprintf("steady-%d", i)
		_, err := s.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{steadyLabel: "yes"}}, Data: map[string]string{"n": "0"},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = steadyLabel + "=yes" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.updated(before.(*corev1.ConfigMap), after.(*corev1.ConfigMap)) },
		DeleteFunc: func(object any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object) // only for the message
			s.report("%s appears deleted", key)
		},
	}); err != nil {
		return nil, err
	}
	s.store = informer.GetStore()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return s, nil
}

func (s *steady) report(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *steady) updated(before, after *corev1.ConfigMap) {
	was, _ := strconv.Atoi(before.Data["n"])
	is, _ := strconv.Atoi(after.Data["n"])
	if before.UID != after.UID {
		s.report("%s changed its UID", after.Name)
	}
	if is < was {
		s.report("%s went back from %d to %d", after.Name, was, is)
	}
}

// run increments the objects, one after the other.
func (s *steady) run(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("steady-%d", n%s.count)
		_, err := s.client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		if err == nil {
			s.mu.Lock()
			s.written[name] = n
			s.mu.Unlock()
		}
		pause(ctx, 30*time.Millisecond)
	}
}

// lags returns the first object of which the informer misses a write, empty if there is none.
func (s *steady) lags() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.count {
		name := fmt.Sprintf("steady-%d", i)
		object, found, _ := s.store.GetByKey(namespace + "/" + name) // it does not fail
		if !found {
			return name + " is missing"
		}
		if n, _ := strconv.Atoi(object.(*corev1.ConfigMap).Data["n"]); n < s.written[name] {
			return fmt.Sprintf("%s is at %d, want %d", name, n, s.written[name])
		}
	}
	return ""
}
