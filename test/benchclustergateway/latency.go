package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

// beat is what a write leaves in a pod, to identify its event.
const beat = "bench.cellplane.io/beat"

// latency measures the time from a write into a member's store to its event at a client of the cluster-gateway.
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
	pods, err := f.storedPods(ctx)
	if err != nil {
		return err
	}
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
					return fmt.Errorf("unexpected watch event %v", event.Object)
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
				return fmt.Errorf("no events for %d of %d writes", writes-len(times), writes)
			}
		}
		return nil
	})
	start := time.Now()
	group.Go(func() error {
		return f.write(ctx, pods, writes, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			sent[id] = time.Now()
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	report("store of a member to event at a client", "p50 %v, p99 %v at %.0f updates/s", quantile(times, 0.5).Round(100*time.Microsecond), quantile(times, 0.99).Round(100*time.Microsecond),
		float64(writes)/time.Since(start).Seconds())
	return nil
}

// written is the number of pods that are changed repeatedly, divided evenly among the members.
const written = 300 * members

// storedPods reads them.
func (f *federation) storedPods(ctx context.Context) ([]storedPod, error) {
	pods := make([]storedPod, written)
	for i := range pods {
		pod := synthetic.Pod(i*f.through/written, 0)
		store := f.stores[i*members/written]
		key := store.Key("pods/" + pod.Namespace + "/" + pod.Name)
		stored, err := store.Client().Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(stored.Kvs) == 0 {
			return nil, fmt.Errorf("%s has no %s", store.Cell, key)
		}
		pods[i] = storedPod{store.Client(), key, stored.Kvs[0].Value}
	}
	return pods, nil
}

// write changes pods at a rate, or as fast as the stores accept writes. It writes into the members' etcd, which the API servers watch:
// three API servers beside everything else on a small machine do not serve a thousand writes a second.
func (f *federation) write(ctx context.Context, pods []storedPod, writes int, sending func(id string)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	begin, due := time.Now(), time.NewTimer(0)
	defer due.Stop()
	for n := range writes {
		select {
		case <-due.C: // by the clock, so that a late write does not delay others
			due.Reset(time.Until(begin.Add(time.Duration(n+1) * time.Second / time.Duration(f.rate))))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), group.Wait())
		}
		group.Go(func() error {
			id := strconv.Itoa(n)
			pod := pods[n*7919%len(pods)]
			value, err := cellstore.WithMark(pod.value, cellstore.Mark{Annotations: map[string]string{beat: id}})
			if err != nil {
				return err
			}
			sending(id)
			_, err = pod.store.Put(ctx, pod.key, string(value))
			return err
		})
	}
	return group.Wait()
}

// storedPod is a pod in the etcd of a member.
type storedPod struct {
	store *clientv3.Client
	key   string
	value []byte
}
