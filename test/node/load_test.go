package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

// load is a writer and a watcher of the same objects. The writer counts up a number in each of them.
type load struct {
	client  kubernetes.Interface
	objects []string

	stopWriters, stopWatcher context.CancelFunc
	writers, watcher         sync.WaitGroup

	mu       sync.Mutex
	failed   []error
	written  map[string]int
	seen     map[string]int
	slowest  time.Duration
	repeated int
}

const counter = "count"

// inEachCell is how many objects are in each cell when the load starts.
const inEachCell = 3

// startLoad starts to write and watch some of the objects of testKubectl, in all cells.
func startLoad(t *testing.T, f *federation, name string) *load {
	t.Helper()
	l := &load{client: f.client, written: map[string]int{}, seen: map[string]int{}}
	for cell := range f.cells {
		l.objects = append(l.objects, f.namesIn(t, cell, inEachCell)...)
	}
	for _, object := range l.objects {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"load":%q}},"data":{%q:"0"}}`, name, counter)
		if _, err := f.client.CoreV1().ConfigMaps("shop").Patch(t.Context(), object, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	selected := metav1.ListOptions{LabelSelector: "load=" + name}
	list, err := f.client.CoreV1().ConfigMaps("shop").List(t.Context(), selected)
	if err != nil || len(list.Items) != len(l.objects) {
		t.Fatalf("%d objects are listed: %v", len(list.Items), err)
	}
	writing, stopWriters := context.WithCancel(t.Context())
	watching, stopWatcher := context.WithCancel(t.Context())
	l.stopWriters, l.stopWatcher = stopWriters, stopWatcher
	watcher, err := watchtools.NewRetryWatcherWithContext(watching, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.LabelSelector = selected.LabelSelector
		return f.client.CoreV1().ConfigMaps("shop").Watch(ctx, options)
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.watcher.Go(func() { l.watch(watcher) })
	for _, object := range l.objects {
		l.writers.Go(func() { l.write(writing, object) })
	}
	return l
}

// namesIn returns the names of some objects in a cell. Objects of other kinds with these names are in it too.
func (f *federation) namesIn(t *testing.T, cell string, count int) []string {
	t.Helper()
	list, err := f.cells[cell].CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{LabelSelector: "spread=config"})
	if err != nil || len(list.Items) < count {
		t.Fatalf("%s has %d objects, want %d: %v", cell, len(list.Items), count, err)
	}
	var found []string
	for i := range count {
		found = append(found, list.Items[i].Name)
	}
	return found
}

// writtenWithin bounds a write.
const writtenWithin = time.Minute

// write counts up, about ten times a second.
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
		repeated, err := l.set(ctx, object, next)
		took := time.Since(began)
		l.mu.Lock()
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s: writing %d to %s, after %v: %w", began.Format("15:04:05.000"), next, object, took, err))
		} else {
			l.written[object] = next
		}
		l.slowest, l.repeated = max(l.slowest, took), l.repeated+repeated
		l.mu.Unlock()
	}
}

// set writes a number. What is not acknowledged is a failure, but for writes of gateways without their writer lease, which they lose on a machine that is too
// busy. Those are repeated, whether they had an effect or not: a second one changes nothing.
func (l *load) set(ctx context.Context, object string, number int) (repeated int, err error) {
	// Not the context of the load: what has begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writtenWithin)
	defer cancel()
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, counter, strconv.Itoa(number))
	for {
		_, err := l.client.CoreV1().ConfigMaps("shop").Patch(ctx, object, types.MergePatchType, patch, metav1.PatchOptions{})
		if !lostWriterLease(err) {
			return repeated, err
		}
		repeated++
	}
}

func lostWriterLease(err error) bool {
	return (apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)) && strings.Contains(err.Error(), "cut off from most cells")
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

// end ends the writers and then the watcher, and expects that everything has succeeded and was seen.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stopWriters()
	l.writers.Wait()
	testenv.Eventually(t, "the watcher has seen everything", func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, object := range l.objects {
			if l.seen[object] != l.written[object] {
				return false, fmt.Errorf("of %s, %d are written and %d seen, with the failures %v", object, l.written[object], l.seen[object], l.failed)
			}
		}
		return true, nil
	})
	l.stopWatcher()
	l.watcher.Wait()
	total := 0
	for _, number := range l.written {
		total += number
	}
	t.Logf("%d writes; the slowest took %v; %d were repeated because a gateway had lost its writer lease", total, l.slowest, l.repeated)
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
func (f *federation) testPodsCanBeMissed(t *testing.T, members []*member) {
	f.propagateScaled(t)
	for name, missed := range map[string]func(*testing.T, *load){
		// Clients are connected to one of them.
		"gateways": func(t *testing.T, l *load) { f.replaceAll(t, l, component("gateway", "")) },
		"etcds":    func(t *testing.T, l *load) { f.replaceAll(t, l, component("etcd", "cell-a")) },
		"engine":   func(t *testing.T, _ *load) { f.replaceLeader(t, members) },
	} {
		t.Run(name, func(t *testing.T) {
			l := startLoad(t, f, name)
			l.proceeds(t)
			missed(t, l)
			l.proceeds(t)
			l.end(t)
		})
	}
}

// replaceAll deletes the pods of a part, one after the other.
func (f *federation) replaceAll(t *testing.T, l *load, selector string) {
	t.Helper()
	pods, err := f.node.Client.CoreV1().Pods(federationNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		f.replacePod(t, selector, pods.Items[i].Name)
		l.proceeds(t)
	}
}

// scaledPolicy is for the Deployment whose replicas change while an engine is missed.
const scaledPolicy = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: scaled, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchLabels: {app: scaled}}}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %q, namespace: shop, labels: {app: scaled}}
spec:
  replicas: 2
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec: {containers: [{name: main, image: simulated}]}
`

// scaled returns the name of the Deployment, which is in cell-a.
func (f *federation) scaled(t *testing.T) string {
	t.Helper()
	return f.namesIn(t, "cell-a", 1)[0]
}

func (f *federation) propagateScaled(t *testing.T) {
	t.Helper()
	name := f.scaled(t)
	if out, err := f.kubeconfig.Try(t.Context(), t, fmt.Sprintf(scaledPolicy, name), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := f.cells["cell-a"].AppsV1().Deployments("shop").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Fatalf("the engine of cell-a would not propagate the Deployment: %v", err)
	}
	f.waitScaled(t, 2)
}

// waitScaled waits until the Deployment has ready replicas.
func (f *federation) waitScaled(t *testing.T, replicas int32) {
	t.Helper()
	name := f.scaled(t)
	testenv.Eventually(t, fmt.Sprintf("the Deployment has %d replicas", replicas), func(ctx context.Context) (bool, error) {
		deployment, err := f.client.AppsV1().Deployments("shop").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return deployment.Status.ReadyReplicas == replicas, fmt.Errorf("the status is %+v", deployment.Status)
	})
}

// replaceLeader deletes the engine that leads, and expects that another one does its work.
func (f *federation) replaceLeader(t *testing.T, members []*member) {
	t.Helper()
	leader, deployments, name := f.leader(t), f.client.AppsV1().Deployments("shop"), f.scaled(t)
	scale := func(replicas int32) error {
		_, err := deployments.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
		return err
	}
	scaled := make(chan error, 1)
	go func() { scaled <- scale(4) }() // while there may be no leader
	f.replacePod(t, component("engine", "cell-a"), leader)
	if err := <-scaled; err != nil {
		t.Fatal(err)
	}
	f.waitScaled(t, 4)
	if err := scale(6); err != nil {
		t.Fatal(err)
	}
	f.waitScaled(t, 6)
	for _, m := range members {
		deployment, err := m.client.AppsV1().Deployments("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || *deployment.Spec.Replicas != 3 {
			t.Errorf("%s has %v replicas, want 3: %v", m.name, deployment.Spec.Replicas, err)
		}
	}
	if now := f.leader(t); now == leader {
		t.Errorf("%s, which was deleted, still leads", leader)
	}
}

// leader returns the pod of the engine of cell-a that leads. The identity in the Lease begins with the host name.
func (f *federation) leader(t *testing.T) string {
	t.Helper()
	lease, err := f.cells["cell-a"].CoordinationV1().Leases(names.SystemNamespace).Get(t.Context(), "cellplane-engine-cell-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return pod
}

// component returns the selector of a part's pods.
func component(name, plane string) string {
	selector := "app.kubernetes.io/component=" + name
	if plane != "" {
		selector += ",cellplane.io/control-plane=" + plane
	}
	return selector
}
