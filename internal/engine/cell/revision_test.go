package cell

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// TestRevisionsAreNoTemplates divides ReplicaSets into revisions and templates, also when their labels change.
func TestRevisionsAreNoTemplates(t *testing.T) {
	kind := &Kind{GroupVersionKind: revisions.ReplicaSet, Resource: "replicasets", Namespaced: true}
	templates, stored := newTemplateStore(kind), newRevisions(nil)
	into := &divided{templates: reserved{templates}, revisions: stored.stores[revisions.ReplicaSet], kind: kind}
	set := func(version, uid string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{
			"namespace": "shop", "name": "web-0abc", "resourceVersion": version, "annotations": map[string]any{revisions.NumberAnnotation: "7"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u1", "controller": true}},
		}}}
		if uid != "" {
			obj.SetLabels(map[string]string{names.RevisionOfLabel: uid})
		}
		return obj
	}
	of := TemplateKey{GroupVersionKind: revisions.Deployment, Key: Key{Namespace: "shop", Name: "web"}}
	check := func(when string, wantRevisions, wantTemplates int) {
		t.Helper()
		if found := stored.Of(of); len(found) != wantRevisions || templates.Len() != wantTemplates {
			t.Errorf("%s: %d revisions and %d templates, want %d and %d", when, len(found), templates.Len(), wantRevisions, wantTemplates)
		}
	}
	done := into.Relist()
	into.Set(set("1", "u1"))
	done("1")
	check("listed", 1, 0)
	if r := stored.Of(of)[0]; r.Number != 7 || r.OwnerUID != "u1" {
		t.Errorf("read %+v", r)
	}
	if !into.knows("shop", "web-0abc", "1") || into.knows("shop", "web-0abc", "2") {
		t.Error("it is not known in the version that it has")
	}
	into.Set(set("2", ""))
	check("without the label", 0, 1)
	into.Set(set("3", "u1"))
	check("with the label again", 1, 0)
	into.Unset(set("4", "u1"))
	check("deleted", 0, 0)
	into.Set(set("5", "u1"))
	into.Relist()("6")
	check("not listed again", 0, 0)

	store, key := stored.stores[revisions.ReplicaSet], Key{Namespace: "shop", Name: "web-0abc"}
	into.Set(set("7", "u1"))
	earlier := store.Get(key)
	into.Set(set("8", "u1"))
	store.forget(key, earlier)
	check("another one was deleted", 1, 0)
	store.forget(key, store.Get(key))
	into.Set(set("8", "u1")) // a late answer
	check("it was deleted", 0, 0)
}
