package clustercache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

const testHistory = 24

// TestStoreIsLikeTheModel applies random operations to a Store and to its model, and compares what clients see.
func TestStoreIsLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		defer w.store.Close()
		t.Repeat(map[string]func(*rapid.T){
			"apply":    w.apply,
			"again":    w.applyAgain,
			"delete":   w.delete,
			"replace":  w.replace,
			"stale":    w.markStale,
			"mark":     w.markObjects,
			"drop":     w.drop,
			"list":     w.list,
			"page":     w.page,
			"remember": w.remember,
			"exact":    w.exact,
			"watch":    w.watch,
			"get":      w.get,
			"":         w.check,
		})
		w.finish(t)
	})
}

// world is a Store, its model and their clients.
type world struct {
	store    *clustercache.Store
	model    model
	feeds    map[string]*clustercache.Feed
	stale    map[string]time.Time
	version  int
	informer []*informer
	memories []memory
	pages    []paging
}

// memory is the content of a former version.
type memory struct {
	version uint64
	shown   map[string]shownPod
}

// paging is a list of which some pages are read.
type paging struct {
	memory
	of    selection
	token string
	seen  []string
}

func newWorld(t *rapid.T) *world {
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods(), History: testHistory, TrainingSamples: 16})
	if err != nil {
		t.Fatal(err)
	}
	return &world{store: store, model: model{members: map[string]map[string]*corev1.Pod{}}, feeds: map[string]*clustercache.Feed{}, stale: map[string]time.Time{}}
}

func (w *world) feed(cluster string) *clustercache.Feed {
	if w.feeds[cluster] == nil {
		w.feeds[cluster] = w.store.Feed(cluster)
		w.model.members[cluster] = map[string]*corev1.Pod{}
	}
	return w.feeds[cluster]
}

func (w *world) apply(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	w.version++
	pod := drawPod(t, w.version)
	if err := w.feed(cluster).ApplyObject(pod); err != nil {
		t.Fatal(err)
	}
	w.model.members[cluster][keyOf(pod)] = pod
}

func (w *world) applyAgain(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	feed := w.feed(cluster)
	before := w.store.Version()
	for _, pod := range w.model.members[cluster] {
		if err := feed.ApplyObject(pod); err != nil {
			t.Fatal(err)
		}
	}
	if w.store.Version() != before {
		t.Fatal("an unchanged object caused an event")
	}
}

func (w *world) delete(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	pod := drawPod(t, 0)
	feed := w.feed(cluster)
	if rapid.Bool().Draw(t, "by key") {
		feed.DeleteObject(pod.Namespace, pod.Name)
		delete(w.model.members[cluster], keyOf(pod))
		return
	}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Delete(raw); err != nil {
		t.Fatal(err)
	}
	if found := w.model.members[cluster][keyOf(pod)]; found != nil && found.UID == pod.UID {
		delete(w.model.members[cluster], keyOf(pod))
	}
}

func (w *world) replace(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	feed := w.feed(cluster)
	for range rapid.IntRange(0, 1).Draw(t, "false starts") {
		feed.Begin()
	}
	feed.Begin()
	after := map[string]*corev1.Pod{}
	for _, key := range slices.Sorted(maps.Keys(w.model.members[cluster])) {
		if rapid.Bool().Draw(t, "stays") {
			after[key] = w.model.members[cluster][key]
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "new") {
		w.version++
		pod := drawPod(t, w.version)
		after[keyOf(pod)] = pod
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if err := feed.ApplyObject(after[key]); err != nil {
			t.Fatal(err)
		}
	}
	feed.End()
	w.model.members[cluster] = after
	delete(w.stale, cluster)
}

func (w *world) markStale(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	before := w.store.Version()
	if rapid.Bool().Draw(t, "fresh") {
		w.feed(cluster).Fresh()
		delete(w.stale, cluster)
	} else {
		w.stale[cluster] = time.Unix(int64(1_800_000_000+len(w.stale)), 0)
		w.feed(cluster).MarkStale(w.stale[cluster])
	}
	if w.store.Version() != before {
		t.Fatal("staleness caused an event before objects were marked")
	}
}

func (w *world) markObjects(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	feed, limit := w.feed(cluster), rapid.IntRange(1, 3).Draw(t, "limit")
	since := ""
	if at := w.stale[cluster]; !at.IsZero() {
		since = at.UTC().Format(time.RFC3339)
	}
	looked := 0
	for more := true; more; {
		var n int
		n, more = feed.MarkObjects(limit)
		if looked += n; n > limit {
			t.Fatalf("looked at %d objects at once, want at most %d", n, limit)
		}
	}
	pods := w.model.members[cluster]
	if looked < len(pods) {
		t.Fatalf("looked at %d of %d objects", looked, len(pods))
	}
	for key, pod := range pods {
		if (pod.Annotations[names.StaleSinceAnnotation] == "") == (since == "") {
			continue // already marked, perhaps at another time
		}
		marked := pod.DeepCopy()
		marked.Annotations = map[string]string{names.StaleSinceAnnotation: since}
		if since == "" {
			marked.Annotations = nil
		}
		pods[key] = marked
	}
}

func (w *world) drop(t *rapid.T) {
	cluster := clusterNames.Draw(t, "cluster")
	w.feed(cluster).Drop()
	delete(w.feeds, cluster)
	delete(w.model.members, cluster)
	delete(w.stale, cluster)
}

func (w *world) list(t *rapid.T) {
	of := drawSelection(t)
	list, err := w.store.List(clustercache.ListOptions{Filter: of.Filter})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	got := w.identities(t, list)
	if want := of.of(w.model.shown()); !slices.Equal(got, want) {
		t.Fatalf("labels %q, fields %q, namespace %q, owner %q: got %q, want %q", of.labelText, of.fieldText, of.Namespace, of.Owner, got, want)
	}
	var body bytes.Buffer
	if err := list.WriteProtobuf(&body); err != nil {
		t.Fatal(err)
	}
	decoded := decodePodList(t, body.Bytes())
	if len(decoded.Items) != len(got) || decoded.ResourceVersion != fmt.Sprint(list.Version()) {
		t.Fatalf("in protobuf: %d objects of version %s", len(decoded.Items), decoded.ResourceVersion)
	}
	for i := range decoded.Items {
		if got[i] != w.checkPod(&decoded.Items[i]) {
			t.Fatalf("in protobuf: %v", decoded.Items[i])
		}
	}
}

func (w *world) page(t *rapid.T) {
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	if len(w.pages) == 0 || rapid.Bool().Draw(t, "first page") {
		of := drawSelection(t)
		list, err := w.store.List(clustercache.ListOptions{Filter: of.Filter, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		w.turn(t, list, limit, paging{memory: memory{list.Version(), w.model.shown()}, of: of})
		return
	}
	i := rapid.IntRange(0, len(w.pages)-1).Draw(t, "which")
	p := w.pages[i]
	w.pages = slices.Delete(w.pages, i, i+1)
	list, err := w.store.List(clustercache.ListOptions{Filter: p.of.Filter, Limit: limit, Continue: p.token})
	if w.gone(t, p.version, err) {
		return
	}
	if list.Version() != p.version {
		t.Fatal("a page has another version than the previous one")
	}
	w.turn(t, list, limit, p)
}

// turn reads a page.
func (w *world) turn(t *rapid.T, list *clustercache.List, limit int, p paging) {
	defer list.Close()
	got := w.identities(t, list)
	if len(got) > limit {
		t.Fatalf("%d objects on a page of %d", len(got), limit)
	}
	p.seen = append(slices.Clone(p.seen), got...)
	want := p.of.of(p.shown)
	token, remaining := list.Continue()
	if !slices.Equal(p.seen, want[:min(len(p.seen), len(want))]) || (token == "") != (len(p.seen) == len(want)) {
		t.Fatalf("pages so far: %q, want %q, more: %t", p.seen, want, token != "")
	}
	if remaining != nil && int(*remaining) != len(want)-len(p.seen) {
		t.Fatalf("%d remain, want %d", *remaining, len(want)-len(p.seen))
	}
	if token != "" {
		p.token = token
		w.pages = append(w.pages, p)
	}
}

func (w *world) remember(*rapid.T) {
	w.memories = append(w.memories, memory{w.store.Version(), w.model.shown()})
}

func (w *world) exact(t *rapid.T) {
	if len(w.memories) == 0 {
		return
	}
	m := rapid.SampledFrom(w.memories).Draw(t, "memory")
	of := drawSelection(t)
	list, err := w.store.List(clustercache.ListOptions{Filter: of.Filter, Version: m.version})
	if w.gone(t, m.version, err) {
		return
	}
	defer list.Close()
	if got, want := w.identities(t, list), of.of(m.shown); !slices.Equal(got, want) {
		t.Fatalf("at a former version: got %q, want %q", got, want)
	}
}

// gone reports whether a version is refused, and fails if it should not be.
func (w *world) gone(t *rapid.T, version uint64, err error) bool {
	if err == nil {
		return false
	}
	if !apierrors.IsResourceExpired(err) {
		t.Fatal(err)
	}
	// Versions are ten thousand apart.
	if (w.store.Version()-version)/10_000 <= testHistory {
		t.Fatalf("%d is refused, the current version is %d", version, w.store.Version())
	}
	return true
}

func (w *world) get(t *rapid.T) {
	namespace, name := namespaceNames.Draw(t, "namespace"), podNames.Draw(t, "name")
	cluster := rapid.SampledFrom([]string{"", "m1", "m2", "m3", "m9"}).Draw(t, "cluster")
	want, ok := w.model.shown()[namespace+"/"+name]
	if cluster != "" {
		pod := w.model.members[cluster][namespace+"/"+name]
		want, ok = shownPod{pod, cluster}, pod != nil
	}
	object, err := w.store.Get(cluster, namespace, name)
	if !ok {
		if !apierrors.IsNotFound(err) {
			t.Fatalf("got %v, %v", object, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := w.checkObject(t, object); got != want.identity() {
		t.Fatalf("got %s, want %s", got, want.identity())
	}
	if cluster != "" {
		return
	}
	in, memberVersion, ok := w.store.MemberVersion(namespace, name, object.Version)
	if !ok || in != want.cluster || memberVersion != want.ResourceVersion {
		t.Fatalf("the member's version is %q of %q", memberVersion, in)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is shown needs no wait
	version, err := w.store.VersionOf(ctx, clustercache.Revision{Cluster: in, Namespace: namespace, Name: name, Version: memberVersion})
	if stale := !w.stale[in].IsZero(); stale != errors.Is(err, clustercache.ErrNotShown) || !stale && version != object.Version {
		t.Fatalf("the version of %s is %d, %v, want %d; stale: %t", memberVersion, version, err, object.Version, stale)
	}
}

// check compares the statistics and the informers.
func (w *world) check(t *rapid.T) {
	stats := w.store.Stats()
	if all, shadowed := w.model.counts(); stats.Shadowed != shadowed || stats.Objects != all {
		t.Fatalf("%d objects, %d shadowed, want %d and %d", stats.Objects, stats.Shadowed, all, shadowed)
	}
	states := w.store.Clusters()
	if len(states) != len(w.feeds) {
		t.Fatalf("%d clusters, want %d", len(states), len(w.feeds))
	}
	for _, state := range states {
		if state.Objects != len(w.model.members[state.Name]) || !state.Stale.Equal(w.stale[state.Name]) {
			t.Fatalf("%+v", state)
		}
	}
	for _, i := range w.informer {
		i.catchUp(t, w)
	}
}

// finish removes all objects and checks that the store holds nothing.
func (w *world) finish(t *rapid.T) {
	for _, i := range w.informer {
		i.watcher.Close()
	}
	for _, feed := range w.feeds {
		feed.Drop()
	}
	w.store.Trim()
	if err := w.store.Leftovers(); err != nil {
		t.Fatalf("an empty store still holds %v", err)
	}
}

// informer is a client that caches the objects of a watch.
type informer struct {
	watcher *clustercache.Watcher
	of      selection
	synced  bool
	last    uint64
	known   map[string]string // key → UID
	states  map[string]string // key → identity
}

func (w *world) watch(t *rapid.T) {
	i := &informer{of: drawSelection(t), known: map[string]string{}, states: map[string]string{}}
	options := clustercache.WatchOptions{Filter: i.of.Filter}
	var err error
	if len(w.memories) > 0 && rapid.Bool().Draw(t, "resume") {
		m := rapid.SampledFrom(w.memories).Draw(t, "from")
		options.From, i.synced, i.last = m.version, true, m.version
		for _, pod := range m.shown {
			if i.of.matches(pod) {
				i.known[keyOf(pod.Pod)], i.states[keyOf(pod.Pod)] = pod.cluster+string(pod.UID), pod.identity()
			}
		}
	}
	i.watcher, err = w.store.Watch(options)
	if w.gone(t, options.From, err) {
		return
	}
	w.informer = append(w.informer, i)
}

func (i *informer) catchUp(t *rapid.T, w *world) {
	for {
		event, err := i.watcher.Pending()
		if err != nil {
			// One step causes fewer events than the history holds.
			t.Fatal(err)
		}
		if event == nil {
			break
		}
		i.receive(t, w, event)
	}
	want := map[string]string{}
	for key, pod := range w.model.shown() {
		if i.of.matches(pod) {
			want[key] = pod.identity()
		}
	}
	if !i.synced || !maps.Equal(i.states, want) {
		t.Fatalf("an informer of labels %q, fields %q has %q, want %q", i.of.labelText, i.of.fieldText, i.states, want)
	}
}

func (i *informer) receive(t *rapid.T, w *world, event *clustercache.Event) {
	if event.Type == watch.Bookmark {
		if !event.InitialEventsEnd || i.synced {
			t.Fatal("an unexpected bookmark")
		}
		i.synced, i.last = true, event.Version
		return
	}
	if i.synced && event.Version <= i.last {
		t.Fatalf("version %d after %d", event.Version, i.last)
	}
	if i.synced {
		i.last = event.Version
	}
	identity := w.checkObject(t, event.Object)
	key := event.Object.Namespace + "/" + event.Object.Name
	var pod corev1.Pod
	if err := pod.Unmarshal(event.Object.Raw); err != nil {
		t.Fatal(err)
	}
	uid := event.Object.Cluster + string(pod.UID)
	before, known := i.known[key]
	switch {
	case event.Type == watch.Added && !known:
	case event.Type == watch.Modified && known && before == uid:
	case event.Type == watch.Deleted && known && before == uid:
		delete(i.known, key)
		delete(i.states, key)
		return
	default:
		t.Fatalf("%s of %s, known: %t", event.Type, identity, known)
	}
	i.known[key], i.states[key] = uid, identity
}

func (w *world) identities(t *rapid.T, list *clustercache.List) []string {
	identities := []string{}
	for object, err := range list.Objects() {
		if err != nil {
			t.Fatal(err)
		}
		identities = append(identities, w.checkObject(t, object))
	}
	if list.Len() != len(identities) {
		t.Fatalf("%d objects, Len returned %d", len(identities), list.Len())
	}
	return identities
}

// checkObject checks that an object is consistent, and returns its identity.
func (w *world) checkObject(t *rapid.T, object clustercache.Object) string {
	var pod corev1.Pod
	if err := pod.Unmarshal(object.Raw); err != nil {
		t.Fatal(err)
	}
	if pod.Name != object.Name || pod.Namespace != object.Namespace || pod.Annotations[names.ClusterAnnotation] != object.Cluster ||
		pod.ResourceVersion != fmt.Sprint(object.Version) || pod.Annotations[names.MemberVersionAnnotation] != object.MemberVersion {
		t.Fatalf("%+v is %v", object, pod)
	}
	return w.checkPod(&pod)
}

func (w *world) checkPod(pod *corev1.Pod) string {
	original := pod.DeepCopy()
	original.ResourceVersion = pod.Annotations[names.MemberVersionAnnotation]
	return shownPod{original, pod.Annotations[names.ClusterAnnotation]}.identity()
}
