package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/cellplane/cellplane/internal/testenv"
)

// load is a writer and a watcher of the same objects. The writer counts up a number in each of them.
type load struct {
	client  kubernetes.Interface
	objects []string

	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	failed  []error
	written map[string]int
	seen    map[string]int
	slowest time.Duration
}

const counter = "count"

// startLoad creates objects, enough for all cells to have some, and starts to write and watch them.
func startLoad(t *testing.T, f *federation, name string) *load {
	t.Helper()
	l := &load{client: f.client, written: map[string]int{}, seen: map[string]int{}}
	for i := range 6 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{"load": name}}, Data: map[string]string{counter: "0"}}
		if _, err := f.client.CoreV1().ConfigMaps("shop").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l.objects = append(l.objects, object.Name)
	}
	selected := metav1.ListOptions{LabelSelector: "load=" + name}
	list, err := f.client.CoreV1().ConfigMaps("shop").List(t.Context(), selected)
	if err != nil || len(list.Items) != len(l.objects) {
		t.Fatalf("%d objects are listed: %v", len(list.Items), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.LabelSelector = selected.LabelSelector
		return f.client.CoreV1().ConfigMaps("shop").Watch(ctx, options)
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.ended.Go(func() { l.watch(watcher) })
	for _, object := range l.objects {
		l.ended.Go(func() { l.write(ctx, object) })
	}
	return l
}

// write counts up, about ten times a second. Each number is written once: what is not acknowledged is a failure.
func (l *load) write(ctx context.Context, object string) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for next := 1; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		patch := fmt.Sprintf(`{"data":{%q:%q}}`, counter, strconv.Itoa(next))
		// Not the context of the load: what has begun is finished.
		_, err := l.client.CoreV1().ConfigMaps("shop").Patch(context.WithoutCancel(ctx), object, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		took := time.Since(began)
		l.mu.Lock()
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s: writing %d to %s, after %v: %w", began.Format("15:04:05.000"), next, object, took, err))
		} else {
			l.written[object] = next
		}
		l.slowest = max(l.slowest, took)
		l.mu.Unlock()
	}
}

// watch expects every number in order. An object that moves to another cell has a new version with the same number.
func (l *load) watch(watcher watch.Interface) {
	for event := range watcher.ResultChan() {
		l.mu.Lock()
		switch object := event.Object.(type) {
		case *corev1.ConfigMap:
			number, err := strconv.Atoi(object.Data[counter])
			if last := l.seen[object.Name]; err != nil || event.Type != watch.Modified || number < last || number > last+1 {
				l.failed = append(l.failed, fmt.Errorf("%s: after %d of %s, the watcher sees %s %d", time.Now().Format("15:04:05.000"), last, object.Name, event.Type, number))
			}
			l.seen[object.Name] = number
		default:
			l.failed = append(l.failed, fmt.Errorf("%s: the watch ends with %w", time.Now().Format("15:04:05.000"), apierrors.FromObject(event.Object)))
		}
		l.mu.Unlock()
	}
}

// proceeds waits until every object was written some more times.
func (l *load) proceeds(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	before := map[string]int{}
	for _, object := range l.objects {
		before[object] = l.written[object]
	}
	l.mu.Unlock()
	testenv.Eventually(t, "all objects are written", func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, object := range l.objects {
			if l.written[object] < before[object]+10 {
				return false, fmt.Errorf("%s is at %d after %d, with %d failures", object, l.written[object], before[object], len(l.failed))
			}
		}
		return true, nil
	})
}

// end ends the load, and expects that everything has succeeded and was seen.
func (l *load) end(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the watcher has seen everything", func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, object := range l.objects {
			if l.seen[object]+20 < l.written[object] {
				return false, fmt.Errorf("of %s, %d are written and %d seen", object, l.written[object], l.seen[object])
			}
		}
		return true, nil
	})
	l.stop()
	l.ended.Wait()
	total := 0
	for _, number := range l.written {
		total += number
	}
	t.Logf("%d writes; the slowest took %v", total, l.slowest)
	if len(l.failed) > 0 {
		t.Errorf("%d failures:\n%v", len(l.failed), errors.Join(l.failed[:min(len(l.failed), 20)]...))
	}
}

// replacePod deletes a pod and waits until all pods of its part are ready again.
func (f *federation) replacePod(t *testing.T, selector, name string) {
	t.Helper()
	pods := f.node.Client.CoreV1().Pods(federationNamespace)
	before, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(before.Items) < 2 {
		t.Fatalf("there are %d pods with %s: %v", len(before.Items), selector, err)
	}
	if name == "" {
		name = before.Items[0].Name
	}
	var uid types.UID
	for i := range before.Items {
		if before.Items[i].Name == name {
			uid = before.Items[i].UID
		}
	}
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "there is another pod for "+name, func(ctx context.Context) (bool, error) {
		after, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		if len(after.Items) != len(before.Items) {
			return false, fmt.Errorf("there are %d pods", len(after.Items))
		}
		for i := range after.Items {
			if pod := &after.Items[i]; pod.UID == uid || !isReady(pod) {
				return false, errors.New(state(pod))
			}
		}
		return true, nil
	})
}

// testPodsCanBeMissed deletes pods under load.
func (f *federation) testPodsCanBeMissed(t *testing.T) {
	for part, pod := range map[string]struct{ selector, name string }{
		"a gateway": {component("gateway", ""), ""},
		"an engine": {component("engine", "cell-a"), ""},
		"an etcd":   {component("etcd", "cell-a"), "cellplane-cell-a-etcd-0"},
	} {
		t.Run(part, func(t *testing.T) {
			l := startLoad(t, f, "load-"+part[len(part)-4:])
			l.proceeds(t)
			f.replacePod(t, pod.selector, pod.name)
			l.proceeds(t)
			l.end(t)
		})
	}
}

// component returns the selector of a part's pods.
func component(name, plane string) string {
	selector := "app.kubernetes.io/component=" + name
	if plane != "" {
		selector += ",cellplane.io/control-plane=" + plane
	}
	return selector
}
