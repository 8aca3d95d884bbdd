package clusterstatus

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Reasons of the condition CompleteAPIEnablements.
const (
	reasonFullAPIs    = "FullAPIEnablements"
	reasonPartialAPIs = "PartialAPIEnablements"
	reasonEmptyAPIs   = "EmptyAPIEnablements"
)

// apis caches what a member serves. It reads nothing while the member answers that nothing has changed.
type apis struct {
	discovery *discovery.DiscoveryClient
	client    *http.Client
	server    string
	seen      *validators

	known []clusterv1alpha1.APIEnablement // complete, or nil
}

func newAPIs(config *rest.Config, timeout time.Duration) (*apis, error) {
	seen := &validators{}
	config.Timeout = timeout // nothing here is a stream
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{seen: seen, next: next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	finder, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return &apis{discovery: finder, client: client, server: strings.TrimSuffix(config.Host, "/"), seen: seen}, nil
}

// refresh returns what the member serves, and whether that is complete. An empty list means that discovery failed.
func (a *apis) refresh(ctx context.Context) ([]clusterv1alpha1.APIEnablement, *metav1.Condition) {
	if a.known != nil && a.unchanged(ctx) {
		return a.known, complete(metav1.ConditionTrue, reasonFullAPIs, "status.apiEnablements lists everything that the cluster serves.")
	}
	a.seen.forget()
	_, lists, err := a.discovery.ServerGroupsAndResources()
	found := enablements(lists)
	if err == nil {
		a.known = found
		return found, complete(metav1.ConditionTrue, reasonFullAPIs, "status.apiEnablements lists everything that the cluster serves.")
	}
	a.known = nil
	if len(found) == 0 {
		return nil, complete(metav1.ConditionFalse, reasonEmptyAPIs, "The cluster did not say what it serves; status.apiEnablements is from before: "+steady(err))
	}
	return found, complete(metav1.ConditionFalse, reasonPartialAPIs, "The cluster did not say everything that it serves: "+failedGroups(err))
}

// failedGroups lists the groups that failed, sorted.
func failedGroups(err error) string {
	failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err)
	if !ok {
		return steady(err)
	}
	texts := make([]string, 0, len(failed))
	for group := range failed {
		texts = append(texts, group.String())
	}
	slices.Sort(texts)
	return "no word about " + strings.Join(texts, ", ")
}

func complete(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: names.ClusterCompleteAPIEnablements, Status: status, Reason: reason, Message: message}
}

func enablements(lists []*metav1.APIResourceList) []clusterv1alpha1.APIEnablement {
	all := make([]clusterv1alpha1.APIEnablement, 0, len(lists))
	for _, list := range lists {
		enablement := clusterv1alpha1.APIEnablement{GroupVersion: list.GroupVersion}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue // a subresource
			}
			enablement.Resources = append(enablement.Resources, clusterv1alpha1.APIResource{Name: resource.Name, Kind: resource.Kind})
		}
		slices.SortFunc(enablement.Resources, func(x, y clusterv1alpha1.APIResource) int { return cmp.Compare(x.Name, y.Name) })
		all = append(all, enablement)
	}
	slices.SortFunc(all, func(x, y clusterv1alpha1.APIEnablement) int { return cmp.Compare(x.GroupVersion, y.GroupVersion) })
	return all
}

// discoveryPaths are what discovery reads of a member that supports aggregated discovery.
var discoveryPaths = []string{"/api", "/apis"}

// unchanged asks the member whether its discovery documents are unchanged.
func (a *apis) unchanged(ctx context.Context) bool {
	for _, path := range discoveryPaths {
		if same, err := a.unchangedAt(ctx, path); err != nil || !same {
			return false
		}
	}
	return true
}

func (a *apis) unchangedAt(ctx context.Context, path string) (bool, error) {
	validator, ok := a.seen.get(path)
	if !ok {
		return false, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+path, nil)
	if err != nil {
		return false, fmt.Errorf("requesting %s: %w", path, err)
	}
	request.Header.Set("Accept", validator.accept)
	request.Header.Set("If-None-Match", validator.etag)
	response, err := a.client.Do(request)
	if err != nil {
		return false, err
	}
	response.Body.Close()
	return response.StatusCode == http.StatusNotModified, nil
}

// validators make requests conditional: the ETags of responses, and their content types.
type validators struct {
	mu     sync.Mutex
	byPath map[string]validator
}

type validator struct{ accept, etag string }

func (v *validators) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byPath = map[string]validator{}
}

func (v *validators) get(path string) (validator, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.byPath[path]
	return found, ok
}

func (v *validators) put(path string, found validator) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byPath == nil {
		v.byPath = map[string]validator{}
	}
	v.byPath[path] = found
}

// recorder notes the ETags of responses.
type recorder struct {
	seen *validators
	next http.RoundTripper
}

// RoundTrip notes the ETag of the response.
func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK && response.Header.Get("ETag") != "" {
		for _, path := range discoveryPaths {
			if strings.HasSuffix(request.URL.Path, path) {
				r.seen.put(path, validator{accept: request.Header.Get("Accept"), etag: response.Header.Get("ETag")})
			}
		}
	}
	return response, err
}

// WrappedRoundTripper returns what the request is passed to.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }
