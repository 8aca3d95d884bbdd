package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// way is a path to the objects: directly, through the gateway, or through a bare proxy.
type way struct {
	name   string
	client *http.Client
	base   string
}

// load is a kind of request.
type load struct {
	name    string
	workers int
	request func(w way, i int) (*http.Request, error)
	// merged is set for requests that several cells answer.
	merged bool
}

const protobuf = "application/vnd.kubernetes.protobuf"

func (b *bench) loads() []load {
	get := func(accept string) func(way, int) (*http.Request, error) {
		return func(w way, i int) (*http.Request, error) {
			return newRequest(http.MethodGet, fmt.Sprintf("%s/api/v1/namespaces/small/configmaps/map-%d", w.base, i%b.small), accept, nil)
		}
	}
	var writes atomic.Int64 // every value is new: an API server does not store a change that changes nothing
	patch := func(w way, i int) (*http.Request, error) {
		r, err := newRequest(http.MethodPatch, fmt.Sprintf("%s/api/v1/namespaces/small/configmaps/map-%d", w.base, i%b.small), "application/json", fmt.Appendf(nil, `{"data":{"value":"%d"}}`, writes.Add(1)))
		if err == nil {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		return r, err
	}
	list := func(namespace, accept string) func(way, int) (*http.Request, error) {
		return func(w way, _ int) (*http.Request, error) {
			return newRequest(http.MethodGet, fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps", w.base, namespace), accept, nil)
		}
	}
	return []load{
		{"GET json", b.workers, get("application/json"), false},
		{"GET protobuf", b.workers, get(protobuf), false},
		{"GET json, one at a time", 1, get("application/json"), false},
		{"PATCH", b.workers, patch, false},
		{"PATCH, one at a time", 1, patch, false},
		{fmt.Sprintf("LIST %d json", b.small), 1, list("small", "application/json"), true},
		{fmt.Sprintf("LIST %d protobuf", b.small), 1, list("small", protobuf), true},
		{fmt.Sprintf("LIST %d json", b.large), 1, list("large", "application/json"), true},
		{fmt.Sprintf("LIST %d protobuf", b.large), 1, list("large", protobuf), true},
	}
}

func newRequest(method, url, accept string, body []byte) (*http.Request, error) {
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.Header.Set("Accept", accept)
	return r, nil
}

// compare runs a load on all ways in turn, so that all run under the same conditions.
func (b *bench) compare(ctx context.Context, l load) error {
	results := map[string]*result{"direct": {}, "owners": {}, "gateway": {}, "bare": {}}
	ways := b.ways
	if l.merged {
		ways = slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.name == "owners" })
	}
	const rounds = 8
	for round := range rounds {
		for _, w := range ways {
			if w.name == "gateway" && b.profile != "" {
				go b.takeProfile(ctx, w, l, round, b.seconds/rounds)
			}
			if err := b.drive(ctx, w, l, b.seconds/rounds, results[w.name]); err != nil {
				return err
			}
		}
	}
	for _, w := range ways {
		results[w.name].print(l.name, w.name)
	}
	results["gateway"].against(results["direct"], "gateway to direct")
	if !l.merged {
		results["gateway"].against(results["owners"], "gateway to owners")
	}
	results["bare"].against(results["direct"], "bare to direct")
	return nil
}

// against prints the difference to another way.
func (r *result) against(other *result, name string) {
	fmt.Printf("%-37s time ×%.2f, p50 %+.2f ms, CPU %.0f %% of the API server's\n", name, r.perRequest()/other.perRequest(),
		(r.quantile(0.5)-other.quantile(0.5)).Seconds()*1000, 100*r.proxyCPU.Seconds()/float64(r.count())/(other.serverCPU.Seconds()/float64(other.count())))
}

// takeProfile writes a CPU profile of the gateway while a round of a load runs.
func (b *bench) takeProfile(ctx context.Context, w way, l load, round int, length time.Duration) {
	seconds := max(int(length.Seconds()), 1)
	r, err := newRequest(http.MethodGet, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", w.base, seconds), "*/*", nil)
	if err != nil {
		return
	}
	response, err := w.client.Do(r.WithContext(ctx))
	if err != nil {
		fmt.Fprintln(os.Stderr, "profiling:", err)
		return
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.profile, fmt.Sprintf("%s-%d.pprof", strings.ReplaceAll(l.name, " ", "-"), round)), profile, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "profiling:", err)
	}
}

// result is the measurement of a load.
type result struct {
	mu                  sync.Mutex
	latencies           []time.Duration
	elapsed             time.Duration
	serverCPU, proxyCPU time.Duration
}

func (r *result) count() int { return max(len(r.latencies), 1) }

func (r *result) perRequest() float64 { return r.elapsed.Seconds() / float64(r.count()) }

func (r *result) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[min(int(q*float64(len(r.latencies))), len(r.latencies)-1)]
}

func (r *result) print(load, way string) {
	n := float64(r.count())
	fmt.Printf("%-28s %-8s %9.1f %9.2f %9.2f %12.0f %12.0f\n", load, way, n/r.elapsed.Seconds(), r.quantile(0.5).Seconds()*1000,
		r.quantile(0.99).Seconds()*1000, r.serverCPU.Seconds()*1e6/n, r.proxyCPU.Seconds()*1e6/n)
}

// drive sends requests for a duration.
func (b *bench) drive(ctx context.Context, w way, l load, length time.Duration, into *result) error {
	for i := range 3 * l.workers { // warm up connections and caches
		if err := exchange(ctx, w, l, i); err != nil {
			return err
		}
	}
	servers, proxies := b.cpu()
	began := time.Now()
	var group sync.WaitGroup
	var next atomic.Int64
	failures := make(chan error, l.workers)
	for range l.workers {
		group.Go(func() {
			var own []time.Duration
			for time.Since(began) < length && ctx.Err() == nil {
				start := time.Now()
				if err := exchange(ctx, w, l, int(next.Add(1))); err != nil {
					failures <- err
					return
				}
				own = append(own, time.Since(start))
			}
			into.mu.Lock()
			defer into.mu.Unlock()
			into.latencies = append(into.latencies, own...)
		})
	}
	group.Wait()
	into.elapsed += time.Since(began)
	serversAfter, proxiesAfter := b.cpu()
	into.serverCPU += serversAfter - servers
	into.proxyCPU += proxiesAfter - proxies
	select {
	case err := <-failures:
		return err
	default:
		return ctx.Err()
	}
}

func exchange(ctx context.Context, w way, l load, i int) error {
	r, err := l.request(w, i)
	if err != nil {
		return err
	}
	response, err := w.client.Do(r.WithContext(ctx))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return fmt.Errorf("%s: %s: %s", r.URL, response.Status, body)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
