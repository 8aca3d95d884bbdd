package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

// beat is what a write leaves in a pod, for its event to be known by.
const beat = "bench.cellplane.io/beat"

// latency measures how long it takes from a write in a member to its event at a client of the cluster-gateway.
func (f *federation) latency(ctx context.Context) error {
	config := &rest.Config{Host: f.client.url, Transport: f.client.client.Transport, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf"}}
	watching, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	listed, err := watching.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	events, err := watching.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
	if err != nil {
		return err
	}
	defer events.Stop()
	writes := f.rate * int(f.rateTime/time.Second)
	var mu sync.Mutex
	sent, times := map[string]time.Time{}, make([]time.Duration, 0, writes)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for len(times) < writes {
			select {
			case event, ok := <-events.ResultChan():
				if !ok {
					return errors.New("the watch has ended")
				}
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					return fmt.Errorf("the watch says %v", event.Object)
				}
				mu.Lock()
				at, known := sent[pod.Annotations[beat]]
				delete(sent, pod.Annotations[beat])
				mu.Unlock()
				if known {
					times = append(times, time.Since(at))
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return fmt.Errorf("%d of %d writes have not become events", writes-len(times), writes)
			}
		}
		return nil
	})
	start := time.Now()
	group.Go(func() error {
		return f.write(ctx, writes, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			sent[id] = time.Now()
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	report("write in a member to event at a client", "p50 %v, p99 %v at %.0f updates/s", quantile(times, 0.5).Round(100*time.Microsecond), quantile(times, 0.99).Round(100*time.Microsecond),
		float64(writes)/time.Since(start).Seconds())
	return nil
}

// write changes pods in all members at the rate asked for, or as fast as they take it.
func (f *federation) write(ctx context.Context, writes int, sending func(id string)) error {
	var clients []*kubernetes.Clientset
	for _, config := range f.members {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		clients = append(clients, client)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	ticker := time.NewTicker(time.Second / time.Duration(f.rate))
	defer ticker.Stop()
	for n := range writes {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), group.Wait())
		}
		group.Go(func() error {
			i := n * 7919 % f.through
			pod := synthetic.Pod(i, 0)
			id := fmt.Sprint(n)
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, beat, id)
			sending(id)
			_, err := clients[i*members/f.through].CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	return group.Wait()
}
