package index

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/generic"
)

// cached returns an object as the cache of a cluster-gateway has it.
func cached(t *testing.T, kind schema.GroupVersionKind, apply func(*clustercache.Feed) error) clustercache.Object {
	t.Helper()
	store, err := clustercache.New(clustercache.Options{KeepLastApplied: true, Kind: clustercache.Kind{
		GroupVersionKind: kind, Namespaced: true, Separate: true, ClusterAnnotation: names.CachedFromClusterAnnotation,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := apply(store.Feed("m1")); err != nil {
		t.Fatal(err)
	}
	o, err := store.Get("m1", "shop", "it")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDocuments(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "it", UID: "1-2", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		Labels: map[string]string{"app.kubernetes.io/name": "it"}, Annotations: map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: "hidden"},
	}
	metadata := `"metadata":{"name":"it","namespace":"shop","creationTimestamp":"2023-11-14T22:13:20Z","labels":{"app.kubernetes.io/name":"it"},` +
		`"annotations":{"note":"n","resource.karmada.io/cached-from-cluster":"m1"},"deletionTimestamp":null}`
	custom := map[string]any{"apiVersion": "example.io/v1", "kind": "Widget", "metadata": meta, "spec": map[string]any{"size": 3}, "data": "hidden"}
	widget, err := json.Marshal(custom)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind  schema.GroupVersionKind
		apply func(*clustercache.Feed) error
		want  string
	}{
		{
			schema.GroupVersionKind{Version: "v1", Kind: "Service"},
			func(f *clustercache.Feed) error {
				return f.ApplyObject(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}})
			},
			`{"apiVersion":"v1","kind":"Service",` + metadata + `,"spec":"{\"clusterIP\":\"10.0.0.1\"}","status":"{\"loadBalancer\":{}}","cellplane":{"cluster":"m1","apiVersion":"v1"}}`,
		},
		{
			schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
			func(f *clustercache.Feed) error {
				return f.ApplyObject(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte("hidden")}})
			},
			`{"apiVersion":"v1","kind":"Secret",` + metadata + `,"spec":"null","status":"null","cellplane":{"cluster":"m1","apiVersion":"v1"}}`,
		},
		{
			schema.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Widget"},
			func(f *clustercache.Feed) error {
				raw, err := generic.Encode(widget)
				if err != nil {
					return err
				}
				return f.Apply(raw)
			},
			`{"apiVersion":"example.io/v1","kind":"Widget",` + metadata + `,"spec":"{\"size\":3}","status":"null","cellplane":{"cluster":"m1","apiVersion":"example.io/v1"}}`,
		},
	} {
		o := cached(t, test.kind, test.apply)
		operation, err := identity(&o)
		if err != nil || operation.ID != "1-2" || operation.Version != 7 || operation.Name != "shop/it" {
			t.Errorf("%s: the operation is %+v, %v", test.kind.Kind, operation, err)
		}
		got, err := encode(test.kind, &o)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n%s, want\n%s", test.kind.Kind, err, got, test.want)
		}
		if Name(test.kind) != "kubernetes-"+strings.ToLower(test.kind.Kind) {
			t.Errorf("the index is %s", Name(test.kind))
		}
	}
}

func TestPending(t *testing.T) {
	var p pending
	start := time.Unix(0, 0)
	add := func(at int, id string, version int64, size int) {
		p.add(&Operation{ID: id, Version: version, Document: make([]byte, size)}, start.Add(time.Duration(at)))
	}
	text := func(all []*Operation) (s string) {
		for _, o := range all {
			s += fmt.Sprintf("%s@%d ", o.ID, o.Version)
		}
		return s
	}
	add(1, "a", 5, 10)
	add(2, "b", 1, 10)
	add(3, "a", 7, 30) // replaces
	add(4, "a", 6, 99) // is older
	add(5, "c", 1, 10)
	if got := text(p.operations); got != "a@7 b@1 c@1 " || p.bytes != 50 || !p.oldest().Equal(start.Add(1)) {
		t.Errorf("%s with %d bytes since %v", got, p.bytes, p.oldest())
	}
	if got := text(p.first(40)); got != "a@7 b@1 " {
		t.Errorf("the first are %s", got)
	}
	if got := text(p.first(1)); got != "a@7 " {
		t.Errorf("the first of little is %s", got)
	}
	p.settle(2, func(i int) bool { return i == 1 })
	add(6, "b", 2, 20)
	if got := text(p.operations); got != "b@2 c@1 " || p.bytes != 30 || !p.oldest().Equal(start.Add(2)) {
		t.Errorf("then %s with %d bytes since %v", got, p.bytes, p.oldest())
	}
	add(7, "large", 1, maxBytes)
	if !p.full() || p.empty() {
		t.Error("it is not full")
	}
}
