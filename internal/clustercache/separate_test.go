package clustercache_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

const fromAnnotation = "example.com/from"

func separatePods(t *testing.T) *clustercache.Store {
	t.Helper()
	kind := clustercache.Pods()
	kind.Separate, kind.ClusterAnnotation = true, fromAnnotation
	store, err := clustercache.New(clustercache.Options{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func separatePod(namespace, name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", ResourceVersion: version, Annotations: map[string]string{fromAnnotation: "forged"}}}
}

// fillSeparate gives each member the pods web, web-a and web.b in two namespaces.
func fillSeparate(t *testing.T, store *clustercache.Store) {
	t.Helper()
	for _, cluster := range []string{"m2", "m10", "m1"} {
		feed := store.Feed(cluster)
		feed.Begin()
		for _, namespace := range []string{"b", "a"} {
			for _, name := range []string{"web.b", "web", "web-a"} {
				if err := feed.ApplyObject(separatePod(namespace, name, "7")); err != nil {
					t.Fatal(err)
				}
			}
		}
		feed.End()
	}
}

// shownIn returns the objects of a list as namespace/name/cluster.
func shownIn(t *testing.T, list *clustercache.List) []string {
	t.Helper()
	var all []string
	for object, err := range list.Objects() {
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if err := pod.Unmarshal(object.Raw); err != nil {
			t.Fatal(err)
		}
		if pod.Name != object.Name || pod.Annotations[fromAnnotation] != object.Cluster || pod.Annotations[names.ClusterAnnotation] != "" {
			t.Errorf("%s of %s is %v", object.Name, object.Cluster, pod.ObjectMeta)
		}
		all = append(all, object.Namespace+"/"+object.Name+"/"+object.Cluster)
	}
	return all
}

func all(t *testing.T, store *clustercache.Store, filter clustercache.Filter, limit int) []string {
	t.Helper()
	var shown []string
	options := clustercache.ListOptions{Filter: filter, Limit: limit}
	for {
		list, err := store.List(options)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, shownIn(t, list)...)
		options.Continue, _ = list.Continue()
		list.Close()
		if options.Continue == "" {
			return shown
		}
	}
}

func TestSeparateKindsShowEveryCluster(t *testing.T) {
	store := separatePods(t)
	fillSeparate(t, store)
	want := strings.Fields(`a/web/m1 a/web/m10 a/web/m2 a/web-a/m1 a/web-a/m10 a/web-a/m2 a/web.b/m1 a/web.b/m10 a/web.b/m2
		b/web/m1 b/web/m10 b/web/m2 b/web-a/m1 b/web-a/m10 b/web-a/m2 b/web.b/m1 b/web.b/m10 b/web.b/m2`)
	for _, limit := range []int{0, 1, 2, 5, 18} {
		if got := all(t, store, clustercache.Filter{}, limit); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v", limit, got)
		}
	}
	for selector, want := range map[string]string{
		"metadata.name=web":                        "a/web/m1 a/web/m10 a/web/m2 b/web/m1 b/web/m10 b/web/m2",
		"metadata.name=web,metadata.namespace=b":   "b/web/m1 b/web/m10 b/web/m2",
		"metadata.name!=web,metadata.namespace!=b": "a/web-a/m1 a/web-a/m10 a/web-a/m2 a/web.b/m1 a/web.b/m10 a/web.b/m2",
	} {
		for _, limit := range []int{0, 1, 4} {
			if got := strings.Join(all(t, store, fieldFilter(t, selector), limit), " "); got != want {
				t.Errorf("%s in pages of %d: %s", selector, limit, got)
			}
		}
	}
	of, err := labels.Parse(names.ClusterLabel + "=m10")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(all(t, store, clustercache.Filter{Labels: of, Namespace: "b"}, 2), " "); got != "b/web/m10 b/web-a/m10 b/web.b/m10" {
		t.Errorf("of one cluster: %s", got)
	}
	if got := store.Stats(); got.Objects != 18 || got.Shadowed != 0 {
		t.Errorf("the statistics are %+v", got)
	}
}

func TestSeparateKindsChangeByCluster(t *testing.T) {
	store := separatePods(t)
	fillSeparate(t, store)
	watcher, err := store.Watch(clustercache.WatchOptions{From: store.Version(), Filter: fieldFilter(t, "metadata.name=web")})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	feed := store.Feed("m10")
	if err := feed.ApplyObject(separatePod("a", "web", "8")); err != nil {
		t.Fatal(err)
	}
	changed, err := watcher.Next(t.Context())
	if err != nil || changed.Type != "MODIFIED" || changed.Object.Cluster != "m10" || changed.Object.Name != "web" {
		t.Fatalf("got %+v, %v", changed, err)
	}
	if cluster, version, ok := store.MemberVersion("a", "web", changed.Version); !ok || cluster != "m10" || version != "8" {
		t.Errorf("version %d is %s of %s", changed.Version, version, cluster)
	}
	if holders := store.Holders("a", "web"); strings.Join(holders, " ") != "m1 m10 m2" {
		t.Errorf("the holders are %v", holders)
	}
	feed.DeleteObject("a", "web")
	if gone, err := watcher.Next(t.Context()); err != nil || gone.Type != "DELETED" || gone.Object.Cluster != "m10" {
		t.Fatalf("got %+v, %v", gone, err)
	}
	if _, err := store.Get("m10", "a", "web"); err == nil {
		t.Error("what was deleted is found")
	}
	if object, err := store.Get("m2", "a", "web"); err != nil || object.Cluster != "m2" {
		t.Errorf("that of another cluster is %v, %v", object, err)
	}
	if holders := store.Holders("a", "web"); strings.Join(holders, " ") != "m1 m2" {
		t.Errorf("the holders are then %v", holders)
	}
	if object, err := store.Get("", "a", "web"); err != nil || object.Cluster != "m1" {
		t.Errorf("the first is %v, %v", object, err)
	}
	store.Feed("m1").Drop()
	if got := strings.Join(all(t, store, fieldFilter(t, "metadata.name=web"), 0), " "); got != "a/web/m2 b/web/m10 b/web/m2" {
		t.Errorf("without a cluster: %s", got)
	}
}
