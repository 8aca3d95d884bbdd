package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// hashesWithin bounds how long a discovery document waits for the hub.
const hashesWithin = 2 * time.Second

// storageHashes knows the hashes of the versions in which resources are stored. Only the legacy format of discovery has them. The version may
// change without any change of the aggregated documents, so the hub is asked each time.
type storageHashes struct {
	hub *fleet.Upstream

	mu   sync.Mutex
	last map[string]map[string]string // by path, for when the hub does not answer
}

// of returns the hashes of the resources of a discovery path, by the names of the resources.
func (s *storageHashes) of(ctx context.Context, path string) map[string]string {
	hashes, err := s.read(ctx, path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).V(2).Info("cannot read the hashes of storage versions; showing the last ones", "path", path, "err", err)
		return s.last[path]
	}
	if s.last == nil {
		s.last = map[string]map[string]string{}
	}
	s.last[path] = hashes
	return hashes
}

func (s *storageHashes) read(ctx context.Context, path string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, hashesWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://upstream"+path, nil)
	if err != nil {
		return nil, err
	}
	forward.AsGateway(request, forward.Hub)
	request.Header.Set("Accept", "application/json")
	response, err := s.hub.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", path, response.Status)
	}
	var list metav1.APIResourceList
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(&list); err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for i := range list.APIResources {
		if hash := list.APIResources[i].StorageVersionHash; hash != "" {
			hashes[list.APIResources[i].Name] = hash
		}
	}
	return hashes, nil
}

// hashed serves a list of resources with the hashes of their storage versions.
type hashed struct {
	list   *metav1.APIResourceList
	path   string
	hashes *storageHashes
}

// ServeHTTP writes the list in the format the client accepts.
func (h hashed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := *h.list
	list.APIResources = slices.Clone(list.APIResources)
	hashes := h.hashes.of(r.Context(), h.path)
	for i := range list.APIResources {
		list.APIResources[i].StorageVersionHash = hashes[list.APIResources[i].Name]
	}
	fixed{&list}.ServeHTTP(w, r)
}
