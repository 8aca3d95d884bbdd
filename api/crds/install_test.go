package crds_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/testenv"
)

func TestInstall(t *testing.T) {
	config := testenv.SharedAPIServer(t).RESTConfig()
	slow := &slowServer{seen: map[string]bool{}}
	slowConfig := rest.CopyConfig(config)
	slowConfig.Wrap(slow.wrap)
	// The definitions are installed already; installing them again must change nothing.
	if err := crds.Install(t.Context(), slowConfig); err != nil {
		t.Fatal(err)
	}
	if len(slow.seen) < len(crds.All()) {
		t.Errorf("only %d requests were answered with a timeout", len(slow.seen))
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range crds.All() {
		for _, version := range definition.Spec.Versions {
			groupVersion := definition.Spec.Group + "/" + version.Name
			resources, err := client.ServerResourcesForGroupVersion(groupVersion)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, resource := range resources.APIResources {
				found = found || resource.Name == definition.Spec.Names.Plural && resource.Kind == definition.Spec.Names.Kind
			}
			if !found {
				t.Errorf("%s does not list %s", groupVersion, definition.Spec.Names.Plural)
			}
		}
	}
}

// slowServer answers the first request for each path as an API server does whose etcd is too slow.
type slowServer struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *slowServer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		s.mu.Lock()
		seen := s.seen[request.URL.Path]
		s.seen[request.URL.Path] = true
		s.mu.Unlock()
		if seen {
			return next.RoundTrip(request)
		}
		if request.Body != nil {
			_ = request.Body.Close()
		}
		status := apierrors.NewTimeoutError("request did not complete within requested timeout", 0).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		body, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		return &http.Response{
			StatusCode: int(status.Code), Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(body)), Request: request,
		}, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
