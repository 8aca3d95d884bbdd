// Package metricsapi serves the custom and the external metrics API of a cluster in tests, behind its API server, as adapters for monitoring systems do.
package metricsapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"github.com/cellplane/cellplane/internal/testenv/aggregated"
)

// The paths of both APIs.
const (
	custom   = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/"
	external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/"
)

// Server serves metrics.
type Server struct {
	mu      sync.Mutex
	values  map[string]any // lists, by path and query
	asked   []string
	hanging chan struct{} // if not nil, requests for metrics wait until it is closed
}

// Start serves both APIs in a cluster until the test ends.
func Start(t testing.TB, cluster *rest.Config) *Server {
	t.Helper()
	s := &Server{values: map[string]any{}}
	service := aggregated.New(metav1.NamespaceSystem, "metrics-adapter")
	service.Serve(t, cluster, s)
	service.Register(t, cluster, v1beta2.SchemeGroupVersion, externalv1beta1.SchemeGroupVersion)
	return s
}

// SetPods sets the values of a metric of pods, by their names. Selectors are those that have to be asked with.
func (s *Server) SetPods(namespace, metric, pods, selector string, values map[string]string) {
	list := &v1beta2.MetricValueList{}
	for pod, value := range values {
		list.Items = append(list.Items, valueOf("Pod", namespace, pod, value))
	}
	s.set(custom+namespace+"/pods/*/"+metric, "labelSelector="+pods, "metricLabelSelector="+selector, list)
}

// SetObject sets the value of a metric of an object, which is named by its resource and name.
func (s *Server) SetObject(namespace, object, metric, selector, value string) {
	_, name, _ := strings.Cut(object, "/")
	list := &v1beta2.MetricValueList{Items: []v1beta2.MetricValue{valueOf("", namespace, name, value)}}
	s.set(custom+namespace+"/"+object+"/"+metric, "", "metricLabelSelector="+selector, list)
}

// SetExternal sets the series of an external metric.
func (s *Server) SetExternal(namespace, metric, selector string, series ...string) {
	list := &externalv1beta1.ExternalMetricValueList{}
	for _, value := range series {
		list.Items = append(list.Items, externalv1beta1.ExternalMetricValue{MetricName: metric, Value: resource.MustParse(value), Timestamp: metav1.Now()})
	}
	s.set(external+namespace+"/"+metric, "labelSelector="+selector, "", list)
}

func valueOf(kind, namespace, name, value string) v1beta2.MetricValue {
	return v1beta2.MetricValue{
		DescribedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, Value: resource.MustParse(value), Timestamp: metav1.Now(),
	}
}

func (s *Server) set(path, first, second string, list any) {
	var query []string
	for _, part := range []string{first, second} {
		if part != "" && !strings.HasSuffix(part, "Selector=") {
			query = append(query, part)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[path+"?"+strings.Join(query, "&")] = list
}

// Hang lets requests for metrics wait until the returned function is called.
func (s *Server) Hang() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hanging := make(chan struct{})
	s.hanging = hanging
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hanging = nil
		close(hanging)
	})
}

// Asked returns the requests for metrics so far, sorted, as "user path?query", and forgets them.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	slices.Sort(asked)
	return asked
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, custom) && !strings.HasPrefix(r.URL.Path, external) {
		discover(w, r)
		return
	}
	var query []string
	for _, key := range []string{"labelSelector", "metricLabelSelector"} {
		if value := r.URL.Query().Get(key); value != "" {
			query = append(query, key+"="+value)
		}
	}
	key := r.URL.Path + "?" + strings.Join(query, "&")
	s.mu.Lock()
	s.asked = append(s.asked, r.Header.Get("X-Remote-User")+" "+key)
	list, hanging := s.values[key], s.hanging
	s.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-r.Context().Done():
			return
		}
	}
	if list == nil {
		write(w, http.StatusNotFound, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			Message: fmt.Sprintf("the adapter has no %s", key),
		})
		return
	}
	write(w, http.StatusOK, list)
}

// discover answers what API servers ask about an API.
func discover(w http.ResponseWriter, r *http.Request) {
	groupVersion, found := strings.CutPrefix(r.URL.Path, "/apis/")
	if !found || strings.Count(groupVersion, "/") != 1 {
		http.NotFound(w, r)
		return
	}
	write(w, http.StatusOK, &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion})
}

func write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // the client may have gone
}
