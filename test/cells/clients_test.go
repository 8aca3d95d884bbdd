package cells

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	// clientsNamespace has the objects of clients, some of which move.
	clientsNamespace = "clients"
	counterObjects   = 12
	// clientWithin bounds what a client waits for. It is long, for loaded machines.
	clientWithin = 3 * time.Minute
)

func counter(i int) string { return fmt.Sprintf("counter-%d", i) }

// clients are the ways in which programs built with client-go follow objects. Each runs in rounds while cells change; name is that of an object
// of the round.
var clients = []struct {
	name  string
	round func(w *world, ctx context.Context, name string) error
}{
	{"retry watcher", (*world).useRetryWatcher},
	{"until", (*world).useUntil},
	{"until with sync", (*world).useUntilWithSync},
	{"informer", func(w *world, ctx context.Context, _ string) error {
		return useInformer(ctx, w.countersSource(nil), true)
	}},
	{"informer that lists", func(w *world, ctx context.Context, _ string) error {
		return useInformer(ctx, listing{w.countersSource(nil)}, true)
	}},
	{"informer without bookmarks", func(w *world, ctx context.Context, _ string) error {
		return useInformer(ctx, listing{w.countersSource(func(o *metav1.ListOptions) { o.AllowWatchBookmarks = false })}, false)
	}},
	{"mutation cache", (*world).useMutationCache},
	{"controller-runtime", (*world).useControllerRuntime},
	{"kubectl wait", (*world).useKubectlWait},
	{"kubectl wait for a Deployment", (*world).useConditions},
	{"helm --wait", (*world).useHelmWait},
}

func (w *world) maps() corev1client.ConfigMapInterface {
	return w.slow.CoreV1().ConfigMaps(clientsNamespace)
}

// withClients makes a change while clients work. Each client begins a round before the change, and ends one after it.
func (w *world) withClients(change func()) {
	w.Helper()
	w.createCounters()
	w.prepareReleases("cell-a", "cell-b", "cell-c")
	ctrllog.SetLogger(klog.Background())
	ctx, cancel := context.WithCancel(w.Context())
	var counting, using sync.WaitGroup
	defer counting.Wait()
	defer using.Wait()
	defer cancel()
	counting.Go(func() { w.keepCounting(ctx) })
	over := make(chan struct{})
	for number, client := range clients {
		using.Go(func() {
			for round := 0; ; round++ {
				last := false
				select {
				case <-over:
					last = true
				default:
				}
				ctx, cancel := context.WithTimeout(ctx, clientWithin)
				err := client.round(w, ctx, fmt.Sprintf("client-%d-%d", number, round))
				cancel()
				if err != nil {
					w.Errorf("%s, round %d: %v", client.name, round, err)
				}
				if err != nil || last {
					return
				}
			}
		})
	}
	change()
	close(over)
	defer w.logDuration("clients end their last rounds")()
	using.Wait()
}

// createCounters creates the counters, and a client that leaves some of the machine to the change.
func (w *world) createCounters() {
	w.Helper()
	config := rest.CopyConfig(w.config)
	config.QPS, config.Burst = 80, 80
	w.slow = kubernetes.NewForConfigOrDie(config)
	if _, err := w.gateway.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clientsNamespace}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	for i := range counterObjects {
		testenv.Eventually(w, "a counter is created", func(ctx context.Context) (bool, error) {
			_, err := w.maps().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: counter(i)}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), err
		})
	}
}

// keepCounting increments all counters until the context ends.
func (w *world) keepCounting(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		for i := range counterObjects {
			w.counted[i].Store(int64(n))
			if _, err := w.set(ctx, counter(i), n); err != nil && ctx.Err() == nil {
				w.Errorf("counting: %v", err)
				return
			}
		}
	}
}

// set writes a number into an object. A write that has to wait for a move is repeated by the client.
func (w *world) set(ctx context.Context, name string, n int) (*corev1.ConfigMap, error) {
	return w.maps().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
}

// create creates an object. While cells change, the gateway may not know whether a creation was successful; then it is repeated.
func (w *world) create(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	for unknown := false; ; unknown = true {
		created, err := w.maps().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
		if unknown && apierrors.IsAlreadyExists(err) {
			return w.maps().Get(ctx, name, metav1.GetOptions{})
		}
		if !apierrors.IsTimeout(err) {
			return created, err
		}
	}
}

// numberOf returns the number in an object.
func numberOf(object *corev1.ConfigMap) int {
	n, _ := strconv.Atoi(object.Data["n"])
	return n
}

// versionOf returns the version of an object as clients compare it.
func versionOf(object *corev1.ConfigMap) uint64 {
	version, err := strconv.ParseUint(object.ResourceVersion, 10, 63)
	if err != nil {
		return 0
	}
	return version
}

// countersSource lists and watches the namespace. Watches end after some seconds, so that they have to be resumed.
func (w *world) countersSource(change func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return w.maps().List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.TimeoutSeconds = ptr.To(int64(3))
			if change != nil {
				change(&o)
			}
			return w.maps().Watch(ctx, o)
		},
	}
}

// listing is a source for informers that list, as older ones do, and do not let the watch send the initial state.
type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by informers.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// useRetryWatcher watches from the version of a new object, over several watches, and misses no change of any counter after that. Earlier
// changes may be repeated, and if a counter has moved between cells meanwhile, perhaps only some of them.
func (w *world) useRetryWatcher(ctx context.Context, name string) error {
	created, err := w.create(ctx, name)
	if err != nil {
		return err
	}
	last := map[string]int{} // what came before it need not be seen
	for i := range counterObjects {
		last[counter(i)] = int(w.counted[i].Load())
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, created.ResourceVersion, w.countersSource(nil))
	if err != nil {
		return err
	}
	defer watcher.Stop()
	complete := 0
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("got %s: %v", event.Type, event.Object)
		}
		before, counts := last[object.Name]
		n := numberOf(object)
		switch {
		case event.Type == watch.Deleted:
			return fmt.Errorf("saw the deletion of %s", object.Name)
		case !counts:
			continue // of another client
		case n > before+1:
			return fmt.Errorf("from version %s: saw %s at %d (%s) after %d", created.ResourceVersion, object.Name, n, object.ResourceVersion, before)
		}
		last[object.Name] = max(n, before)
		if object.Name == counter(counterObjects-1) && n > before {
			if complete++; complete >= 8 {
				return nil
			}
		}
	}
	return fmt.Errorf("the watch has ended: %w", ctx.Err())
}

// useUntil waits from the version of a new object until it has changed.
func (w *world) useUntil(ctx context.Context, name string) error {
	created, err := w.create(ctx, name)
	if err != nil {
		return err
	}
	written, err := w.set(ctx, name, 1)
	if err != nil {
		return err
	}
	_, err = watchtools.Until(ctx, created.ResourceVersion, w.countersSource(nil), sees(written))
	return err
}

// useUntilWithSync waits until an informer has an object as it was written.
func (w *world) useUntilWithSync(ctx context.Context, name string) error {
	if _, err := w.create(ctx, name); err != nil {
		return err
	}
	written, err := w.set(ctx, name, 1)
	if err != nil {
		return err
	}
	_, err = watchtools.UntilWithSync(ctx, w.countersSource(nil), &corev1.ConfigMap{}, nil, sees(written))
	return err
}

// sees is a condition that holds once an object is as it was written.
func sees(written *corev1.ConfigMap) watchtools.ConditionFunc {
	return func(event watch.Event) (bool, error) {
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type == watch.Deleted {
			return false, fmt.Errorf("got %s: %v", event.Type, event.Object)
		}
		return object.Name == written.Name && versionOf(object) >= versionOf(written) && numberOf(object) == numberOf(written), nil
	}
}

// useInformer follows the counters for some time. Nothing is deleted, or becomes another object. Without bookmarks a watch that is resumed may
// repeat changes, so only then an object may go back for a moment.
func useInformer(ctx context.Context, source cache.ListerWatcher, strict bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	problems, progress := make(chan error, 1), make(chan struct{}, 1)
	report := func(err error) {
		select {
		case problems <- err:
		default:
		}
	}
	informer := cache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, nil)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) {
			before, after := old.(*corev1.ConfigMap), now.(*corev1.ConfigMap)
			switch {
			case before.UID != after.UID:
				report(fmt.Errorf("%s became another object", after.Name))
			case strict && (numberOf(before) > numberOf(after) || versionOf(before) > versionOf(after)):
				report(fmt.Errorf("%s went back from %d (%s) to %d (%s)", after.Name, numberOf(before), before.ResourceVersion, numberOf(after), after.ResourceVersion))
			case after.Name == counter(0) && numberOf(after) > numberOf(before):
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		},
		DeleteFunc: func(any) { report(errors.New("an object was deleted")) },
	}); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { informer.RunWithContext(ctx) })
	for range 8 {
		select {
		case err := <-problems:
			return err
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("the informer shows no changes: %w", ctx.Err())
		}
	}
	if got := len(informer.GetStore().ListKeys()); got < counterObjects {
		return fmt.Errorf("the informer has %d objects", got)
	}
	return nil
}

// useMutationCache reads its own writes, before and after the informer has them.
func (w *world) useMutationCache(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	informer := cache.NewSharedIndexInformer(w.countersSource(nil), &corev1.ConfigMap{}, 0, nil)
	group.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer does not sync: %w", ctx.Err())
	}
	if _, err := w.create(ctx, name); err != nil {
		return err
	}
	mutations := cache.NewIntegerResourceVersionMutationCache(klog.FromContext(ctx), informer.GetStore(), nil, time.Minute, true)
	for n := 1; n <= 10; n++ {
		written, err := w.set(ctx, name, n)
		if err != nil {
			return err
		}
		mutations.Mutation(written)
		found, exists, err := mutations.GetByKey(clientsNamespace + "/" + name)
		if err != nil || !exists || numberOf(found.(*corev1.ConfigMap)) != n {
			return fmt.Errorf("read %v after writing %d: %w", found, n, err)
		}
	}
	return nil
}

// useControllerRuntime writes, and waits until the cache of controller-runtime has the version that was written, or a later one.
func (w *world) useControllerRuntime(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	cached, err := ctrlcache.New(w.config, ctrlcache.Options{DefaultNamespaces: map[string]ctrlcache.Config{clientsNamespace: {}}})
	if err != nil {
		return err
	}
	group.Go(func() { _ = cached.Start(ctx) }) // it ends with the context
	informer, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	changed := make(chan *corev1.ConfigMap, 1000)
	deliver := func(object any) {
		if object := object.(*corev1.ConfigMap); object.Name == name {
			changed <- object
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: deliver, UpdateFunc: func(_, now any) { deliver(now) }}); err != nil {
		return err
	}
	if _, err := w.create(ctx, name); err != nil {
		return err
	}
	for n := 1; n <= 10; n++ {
		written, err := w.set(ctx, name, n)
		if err != nil {
			return err
		}
		for reached := false; !reached; {
			select {
			case object := <-changed:
				reached = versionOf(object) >= versionOf(written)
			case <-ctx.Done():
				return fmt.Errorf("the cache does not reach version %s: %w", written.ResourceVersion, ctx.Err())
			}
		}
		read := &corev1.ConfigMap{}
		if err := cached.Get(ctx, ctrlclient.ObjectKeyFromObject(written), read); err != nil {
			return err
		}
		if numberOf(read) != n || versionOf(read) < versionOf(written) {
			return fmt.Errorf("read %d at version %s after writing %d as %s", numberOf(read), read.ResourceVersion, n, written.ResourceVersion)
		}
	}
	return nil
}

// useKubectlWait lets kubectl wait for a change.
func (w *world) useKubectlWait(ctx context.Context, name string) error {
	if _, err := w.create(ctx, name); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		output, err := w.command(ctx, "kubectl", "--context", "cellplane", "wait", "-n", clientsNamespace, "configmap/"+name, "--for=jsonpath={.data.n}=1", "--timeout", clientWithin.String()).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl wait: %w: %s", err, output)
		}
		done <- err
	}()
	_, err := w.set(ctx, name, 1)
	return errors.Join(err, <-done)
}
