package rollout_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher watches the pods of all members and compares their sums with bounds at every event.
type watcher struct {
	t        *testing.T
	ns       string
	minReady time.Duration

	mu             sync.Mutex
	pods           map[string]map[string]*corev1.Pod // by member and name
	most, least    int
	events         int
	maxSum, minSum int
	broken         []string
}

// watchPods begins to watch. The bounds hold from now on.
func watchPods(t *testing.T, ns string, minReady time.Duration, least, most int) *watcher {
	t.Helper()
	w := &watcher{t: t, ns: ns, minReady: minReady, pods: map[string]map[string]*corev1.Pod{}, most: most, least: least, minSum: most}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for name := range members {
		w.pods[name] = map[string]*corev1.Pod{}
		w.pods[name] = w.list(name)
	}
	for name := range members {
		stream, err := members[name].Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(ns))
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			for w.follow(ctx, name, stream) {
				stream = w.again(ctx, name)
			}
		})
	}
	return w
}

// follow handles the events of a member. It reports whether the watch has ended although the test has not: the member was restarted.
func (w *watcher) follow(ctx context.Context, name string, stream watch.Interface) bool {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case event, open := <-stream.ResultChan():
			if !open {
				return ctx.Err() == nil
			}
			w.handle(name, event)
		}
	}
}

// again watches a member that was restarted, from what it has now.
func (w *watcher) again(ctx context.Context, name string) watch.Interface {
	for {
		stream, err := members[name].Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(w.ns))
		if err == nil {
			pods := w.list(name)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pods[name] = pods
			return stream
		}
		select {
		case <-ctx.Done():
			return watch.NewFake()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// list returns the pods of a member, those seen last if it does not answer.
func (w *watcher) list(member string) map[string]*corev1.Pod {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var list corev1.PodList
	if err := members[member].List(ctx, &list, ctrlclient.InNamespace(w.ns)); err != nil {
		return w.pods[member]
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

func (w *watcher) handle(member string, event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		w.t.Errorf("%s: got %v", member, event)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if event.Type == watch.Deleted {
		delete(w.pods[member], pod.Name)
	} else {
		w.pods[member][pod.Name] = pod
	}
	w.check(member, event)
}

// check compares the sums with the bounds. The watches of members are not in step: one may lag behind while another already shows what followed from it. So a
// sum that is out of bounds counts only if it also is with what the other members say now.
func (w *watcher) check(member string, event watch.Event) {
	pods, available := w.sums(w.pods)
	w.maxSum, w.minSum = max(w.maxSum, pods), min(w.minSum, available)
	if pods <= w.most && available >= w.least {
		return
	}
	pods, available = w.count(w.pods[member])
	for name := range w.pods {
		if name == member {
			continue
		}
		seenPods, seenAvailable := w.count(w.pods[name])
		nowPods, nowAvailable := w.count(w.list(name))
		pods, available = pods+min(seenPods, nowPods), available+max(seenAvailable, nowAvailable)
	}
	if pods > w.most || available < w.least {
		w.broken = append(w.broken, fmt.Sprintf("after %s %s in %s: %d pods of at most %d, %d available of at least %d\n%s",
			event.Type, event.Object.(*corev1.Pod).Name, member, pods, w.most, available, w.least, w.describe()))
	}
}

func (w *watcher) sums(all map[string]map[string]*corev1.Pod) (pods, available int) {
	for _, of := range all {
		p, a := w.count(of)
		pods, available = pods+p, available+a
	}
	return pods, available
}

// count counts the pods that are not terminating, and those that are available, as the Deployment controller does.
func (w *watcher) count(of map[string]*corev1.Pod) (pods, available int) {
	for _, pod := range of {
		if pod.DeletionTimestamp != nil {
			continue
		}
		pods++
		for i := range pod.Status.Conditions {
			c := &pod.Status.Conditions[i]
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !time.Now().Before(c.LastTransitionTime.Add(w.minReady)) {
				available++
			}
		}
	}
	return pods, available
}

func (w *watcher) describe() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pods, available := w.count(w.pods[name])
		fmt.Fprintf(&text, "  %s: %d pods, %d available, images %v\n", name, pods, available, imagesOf(w.pods[name]))
	}
	return text.String()
}

func imagesOf(pods map[string]*corev1.Pod) map[string]int {
	images := map[string]int{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			images[pod.Spec.Containers[0].Image]++
		}
	}
	return images
}

// allow changes the bounds.
func (w *watcher) allow(least, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.least, w.most = least, most
}

// held fails the test if a bound was broken, or if the watch saw no update at all.
func (w *watcher) held(what string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Logf("%s: %d events, at most %d pods, at least %d available", what, w.events, w.maxSum, w.minSum)
	if w.events == 0 {
		w.t.Errorf("%s: nothing happened", what)
	}
	for i, text := range w.broken {
		if i == 3 {
			w.t.Errorf("... and %d more", len(w.broken)-i)
			break
		}
		w.t.Errorf("%s: %s", what, text)
	}
	w.broken, w.events, w.maxSum, w.minSum = nil, 0, 0, w.most
}
