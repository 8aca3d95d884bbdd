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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/util/podutils"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher watches the pods of all members and compares their sums with bounds at every event. It counts as the stock controllers do, in two respects:
//   - Pods that a ReplicaSet has been told to remove are gone: one ReplicaSet may create pods before another has removed its own.
//   - A ReplicaSet that removes one of several ready pods does not prefer one that has not been ready for minReadySeconds. So it may remove an available pod,
//     where the Deployment controller meant one that is not available yet.
type watcher struct {
	t        *testing.T
	ns       string
	minReady time.Duration

	mu             sync.Mutex
	pods           map[string]map[string]*corev1.Pod // by member and name
	lost           map[string]bool                   // members whose pods count for nothing
	most, least    int
	events         int
	maxSum, minSum int
	slow           bool   // pods take a while to become ready
	unready        int    // most pods at one time that ran and were not ready
	updated        string // the image of pods of which there may be mostUpdated; empty means any
	mostUpdated    int
	swapped        int // available pods that were removed instead of pods that were just ready, since the bounds last held
	broken         []string
	traced         string // the image of updated pods in samples; empty means that none are recorded
	samples        []sample
}

// watchPods begins to watch. The bounds hold from now on.
func watchPods(t *testing.T, ns string, minReady time.Duration, least, most int) *watcher {
	t.Helper()
	w := &watcher{t: t, ns: ns, minReady: minReady, pods: map[string]map[string]*corev1.Pod{}, lost: map[string]bool{}, most: most, least: least, minSum: most}
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
			if !open || event.Type == watch.Error {
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
	before := w.pods[member][pod.Name]
	if event.Type == watch.Deleted {
		delete(w.pods[member], pod.Name)
	} else {
		w.pods[member][pod.Name] = pod
	}
	removed := event.Type == watch.Deleted || pod.DeletionTimestamp != nil
	if removed && before != nil && before.DeletionTimestamp == nil && w.available(before) && w.justReady(member, pod) {
		w.swapped++
		w.t.Logf("%s removed %s, which was available, and not one that was just ready", member, pod.Name)
	}
	w.unready = max(w.unready, w.running())
	w.check(member, event)
	w.checkUpdated(member, pod)
	if w.traced != "" {
		w.samples = append(w.samples, w.sampled(w.traced))
	}
}

// running counts the pods that run and are not ready.
func (w *watcher) running() int {
	unready := 0
	for _, pods := range w.pods {
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && !podutils.IsPodReady(pod) {
				unready++
			}
		}
	}
	return unready
}

// checkUpdated compares the number of updated pods with what a partition allows. A pod that is updated stays so, so watches that are not in step do not matter.
func (w *watcher) checkUpdated(member string, pod *corev1.Pod) {
	updated := 0
	for _, pods := range w.pods {
		updated += imagesOf(pods)[w.updated]
	}
	if w.updated != "" && updated > w.mostUpdated {
		w.broken = append(w.broken, fmt.Sprintf("after an event of %s in %s: %d pods have %s, and %d may have it\n%s", pod.Name, member, updated, w.updated, w.mostUpdated, w.describe()))
	}
}

// allowUpdated changes how many pods may have an image.
func (w *watcher) allowUpdated(image string, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updated, w.mostUpdated = image, most
}

// justReady reports whether the ReplicaSet of a pod has one that is ready, but not yet available.
func (w *watcher) justReady(member string, pod *corev1.Pod) bool {
	for _, other := range w.pods[member] {
		if other.DeletionTimestamp == nil && setOf(other) == setOf(pod) && podutils.IsPodReady(other) && !w.available(other) {
			return true
		}
	}
	return false
}

// setOf returns the name of a pod's ReplicaSet.
func setOf(pod *corev1.Pod) string { return metav1.GetControllerOf(pod).Name }

// check compares the sums with the bounds. The watches of members are not in step: one may lag behind while another already shows what followed from it. So a
// sum that is out of bounds counts only if it also is with what the other members say now.
func (w *watcher) check(member string, event watch.Event) {
	if w.lost[member] {
		return
	}
	pods, available := w.sums(w.pods)
	w.maxSum, w.minSum = max(w.maxSum, pods), min(w.minSum, available)
	if available >= w.least {
		w.swapped = 0
	}
	if pods <= w.most && available+w.swapped >= w.least {
		return
	}
	pods, available = w.count(w.pods[member])
	pods -= w.surplus(member)
	for name := range w.pods {
		if name == member || w.lost[name] {
			continue
		}
		seenPods, seenAvailable := w.count(w.pods[name])
		nowPods, nowAvailable := w.count(w.list(name))
		pods, available = pods+min(seenPods, nowPods)-w.surplus(name), available+max(seenAvailable, nowAvailable)
	}
	if pods > w.most || available+w.swapped < w.least {
		w.broken = append(w.broken, fmt.Sprintf("after %s %s in %s: %d pods of at most %d, %d available of at least %d\n%s",
			event.Type, event.Object.(*corev1.Pod).Name, member, pods, w.most, available, w.least, w.describe()))
	}
}

// surplus returns how many pods of a member its ReplicaSets have yet to remove.
func (w *watcher) surplus(member string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var sets appsv1.ReplicaSetList
	if err := members[member].List(ctx, &sets, ctrlclient.InNamespace(w.ns)); err != nil {
		return 0
	}
	has := map[string]int{}
	for _, pod := range w.pods[member] {
		if pod.DeletionTimestamp == nil {
			has[setOf(pod)]++
		}
	}
	surplus := 0
	for i := range sets.Items {
		surplus += max(0, has[sets.Items[i].Name]-int(*sets.Items[i].Spec.Replicas))
	}
	return surplus
}

func (w *watcher) sums(all map[string]map[string]*corev1.Pod) (pods, available int) {
	for name, of := range all {
		if w.lost[name] {
			continue
		}
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
		if w.available(pod) {
			available++
		}
	}
	return pods, available
}

func (w *watcher) available(pod *corev1.Pod) bool {
	return podutils.IsPodAvailable(pod, int32(w.minReady/time.Second), metav1.Now())
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

// lose has the pods of a member count for nothing. Its replicas are missing until others have them.
func (w *watcher) lose(member string, replicas int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[member], w.least = true, max(0, w.least-replicas)
}

// find has the pods of a member that was lost count again.
func (w *watcher) find(member string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lost, member)
}

// held fails the test if a bound was broken, or if the watch saw no update at all, or none of pods that take a while to become ready.
func (w *watcher) held(what string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Logf("%s: %d events, at most %d pods, at least %d available, at most %d not ready", what, w.events, w.maxSum, w.minSum, w.unready)
	if w.events == 0 {
		w.t.Errorf("%s: nothing happened", what)
	}
	if w.slow && w.unready == 0 {
		w.t.Errorf("%s: all pods were ready as soon as they ran", what)
	}
	for i, text := range w.broken {
		if i == 3 {
			w.t.Errorf("... and %d more", len(w.broken)-i)
			break
		}
		w.t.Errorf("%s: %s", what, text)
	}
	w.broken, w.events, w.maxSum, w.minSum, w.unready = nil, 0, 0, w.most, 0
}
