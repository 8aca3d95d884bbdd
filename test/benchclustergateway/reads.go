package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// tableContentType is the Accept header of kubectl get.
const tableContentType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// reads measures lists.
func (c *cache) reads(ctx context.Context) error {
	small := []struct {
		name string
		of   func(pod int) clustercache.Filter
	}{
		{"list a namespace of 100 pods", func(pod int) clustercache.Filter {
			return clustercache.Filter{Namespace: synthetic.Namespace(pod)}
		}},
		{"list by label, all namespaces", func(pod int) clustercache.Filter {
			return clustercache.Filter{Labels: labels.SelectorFromSet(labels.Set{"app": synthetic.App(pod)})}
		}},
		{"list by node, all namespaces", func(pod int) clustercache.Filter {
			return clustercache.Filter{Fields: fields.OneTermEqualSelector("spec.nodeName", synthetic.Node(pod))}
		}},
	}
	for _, s := range small {
		if err := c.smallList(s.name, s.of); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	server := handler(c.store)
	for _, format := range formats {
		if err := c.largeList(ctx, server, format.name, format.accept); err != nil {
			return fmt.Errorf("listing %d pods as %s: %w", c.large, format.name, err)
		}
	}
	return nil
}

// handler serves the pods of a store as the cluster-gateway does.
func handler(store *clustercache.Store) http.Handler {
	server := serve.New()
	server.Ready = func() bool { return true }
	all := views.Default()
	pods := slices.IndexFunc(all, func(v views.View) bool { return v.Resource.Resource == "pods" })
	server.Add(all[pods], clustercache.Pods(), store)
	return server
}

func (c *cache) smallList(name string, of func(pod int) clustercache.Filter) error {
	r := rand.New(rand.NewPCG(2, 0))
	times := make([]time.Duration, c.samples)
	pods := 0
	for i := range times {
		filter := of(r.IntN(c.size))
		start := time.Now()
		list, err := c.store.List(clustercache.ListOptions{Filter: filter})
		if err != nil {
			return err
		}
		pods += list.Len()
		err = list.WriteProtobuf(io.Discard)
		list.Close()
		if err != nil {
			return err
		}
		times[i] = time.Since(start)
	}
	report(name, "p50 %v, p99 %v (%d pods on average)", quantile(times, 0.5).Round(time.Microsecond), quantile(times, 0.99).Round(time.Microsecond), pods/len(times))
	return nil
}

func (c *cache) largeList(ctx context.Context, server http.Handler, name, accept string) error {
	const runs = 5
	times := make([]time.Duration, runs)
	answer := &answerCounter{}
	for i := range times {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?limit="+strconv.Itoa(c.large), http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Accept", accept)
		*answer = answerCounter{header: http.Header{}}
		start := time.Now()
		server.ServeHTTP(answer, request)
		times[i] = time.Since(start)
		if answer.status > http.StatusOK {
			return fmt.Errorf("unexpected status %d", answer.status)
		}
	}
	report(fmt.Sprintf("list %d pods as %s", min(c.large, c.size), name), "median %v (%.1f MB)", quantile(times, 0.5).Round(100*time.Microsecond), float64(answer.size)/1e6)
	return nil
}

// answerCounter is a ResponseWriter that discards the body.
type answerCounter struct {
	header       http.Header
	status, size int
}

// Header returns the header.
func (a *answerCounter) Header() http.Header { return a.header }

// WriteHeader keeps the status.
func (a *answerCounter) WriteHeader(status int) { a.status = status }

// Write counts.
func (a *answerCounter) Write(b []byte) (int, error) {
	a.size += len(b)
	return len(b), nil
}
