package views

import (
	"context"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

const (
	// probeInterval is how often the readiness of replicas is probed, and probeTimeout bounds a probe.
	probeInterval = 2 * time.Second
	probeTimeout  = 3 * time.Second
)

// replica is a cluster-gateway.
type replica struct {
	upstream *fleet.Upstream
	ready    atomic.Bool
}

// share is the cluster-gateways that serve the same clusters.
type share struct{ replicas []*replica }

// choose returns the replicas in the order in which requests of a caller try them. While they are ready, the order is the same at every
// gateway, because a replica does not know the versions of another.
func (s *share) choose(caller string) []*replica {
	chosen := slices.Clone(s.replicas)
	score := func(r *replica) uint64 {
		hash := fnv.New64a()
		// A hash's writes never fail.
		_, _ = io.WriteString(hash, r.upstream.Name()+"\x00"+caller)
		return hash.Sum64()
	}
	slices.SortStableFunc(chosen, func(a, b *replica) int {
		switch aReady, bReady := a.ready.Load(), b.ready.Load(); {
		case aReady != bReady && aReady:
			return -1
		case aReady != bReady:
			return 1
		case score(a) < score(b):
			return -1
		case score(a) > score(b):
			return 1
		default:
			return 0
		}
	})
	return chosen
}

// watch probes the replicas until the context ends.
func (s *share) watch(ctx context.Context) {
	for _, r := range s.replicas {
		go func() {
			ticker := time.NewTicker(probeInterval)
			defer ticker.Stop()
			for {
				r.probe(ctx)
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		}()
	}
}

func (r *replica) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	response, err := r.upstream.RoundTrip(get(ctx, "/readyz", nil))
	ready := err == nil && response.StatusCode == http.StatusOK
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	if r.ready.Swap(ready) != ready {
		klog.FromContext(ctx).Info("readiness of a cluster-gateway changed", "replica", r.upstream.Name(), "ready", ready)
	}
}

// get returns a GET request of the gateway itself.
func get(ctx context.Context, path string, query url.Values) *http.Request {
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Header: http.Header{"Accept": {"application/json"}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return r.WithContext(ctx)
}

// ask sends a request to the first replica that answers. make creates the request for each attempt. A version that this replica does not
// know may be of the next one: the order changes when a replica becomes ready.
func (s *share) ask(ctx context.Context, caller string, make func() *http.Request) (*http.Response, error) {
	chosen := s.choose(caller)
	for i, r := range chosen {
		request, others := make(), i+1 < len(chosen) && chosen[i+1].ready.Load()
		request.Header.Del(views.OthersHeader)
		if others {
			request.Header.Set(views.OthersHeader, "true")
		}
		response, err := r.upstream.RoundTrip(request)
		if err == nil && others && response.StatusCode == http.StatusGone {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			continue
		}
		if err == nil {
			return response, nil
		}
		if ctx.Err() != nil {
			return nil, forward.Unreachable("the cluster-gateway", ctx.Err())
		}
		r.ready.Store(false)
		klog.FromContext(ctx).V(2).Info("a cluster-gateway does not answer", "replica", r.upstream.Name(), "err", err)
	}
	unavailable := apierrors.NewServiceUnavailable("no cluster-gateway can be reached; use clusters/NAME/proxy to read a single cluster")
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return nil, unavailable
}
