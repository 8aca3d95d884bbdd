package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// watchLoad holds many watches open and writes, and measures CPU time and the delay of events.
func (b *bench) watchLoad(ctx context.Context) error {
	for _, w := range b.ways[:2] { // the bare proxy adds nothing here
		if err := b.watchOne(ctx, w); err != nil {
			return fmt.Errorf("%d watches, %s: %w", b.watches, w.name, err)
		}
	}
	return nil
}

func (b *bench) watchOne(ctx context.Context, w way) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var events atomic.Int64
	for range b.watches {
		r, err := newRequest(http.MethodGet, w.base+"/api/v1/namespaces/large/configmaps?watch=1&labelSelector=index%3D0", "application/json", nil)
		if err != nil {
			return err
		}
		response, err := w.client.Do(r.WithContext(ctx))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("watching: %s", response.Status)
		}
		go func() {
			defer response.Body.Close()
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				events.Add(1)
			}
		}()
	}
	servers, gateway := b.cpu()
	began := time.Now()
	for time.Since(began) < b.seconds { // idle
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	idleServers, idleGateway := b.cpu()
	fmt.Printf("%d idle watches %-12s API servers %.2f s CPU/s, gateway %.2f s CPU/s\n", b.watches, w.name,
		(idleServers-servers).Seconds()/time.Since(began).Seconds(), (idleGateway-gateway).Seconds()/time.Since(began).Seconds())

	before := events.Load()
	write := load{name: "PATCH", workers: 4, request: func(w way, i int) (*http.Request, error) {
		r, err := newRequest(http.MethodPatch, fmt.Sprintf("%s/api/v1/namespaces/large/configmaps/map-%d", w.base, 1+i%(b.large-1)), "application/json", fmt.Appendf(nil, `{"data":{"value":"w%d"}}`, i))
		if err == nil {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		return r, err
	}}
	into := &result{}
	if err := b.drive(ctx, w, write, b.seconds, into); err != nil {
		return err
	}
	into.print(fmt.Sprintf("PATCH beside %d watches", b.watches), w.name)
	if got := events.Load() - before; got != 0 {
		return fmt.Errorf("%d events came for objects that were not watched", got)
	}
	return nil
}
