package multicluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
	"github.com/cellplane/cellplane/internal/engine/exposure"
)

// came returns a MultiClusterService that has been in another cell.
func came(uid types.UID) *cell.Template {
	return &cell.Template{UID: uid, Kind: &cell.Kind{GroupVersionKind: exposure.MultiClusterServiceKind}, Labels: map[string]string{names.MultiClusterServicePermanentIDLabel: "id"}}
}

func keyOf(name string) cell.TemplateKey {
	return cell.TemplateKey{GroupVersionKind: exposure.MultiClusterServiceKind, Key: cell.Key{Namespace: "shop", Name: name}}
}

// TestSettledOnce checks that what is settled in one cluster is not found again while another one does not answer, not even when the first is asked for another Service.
func TestSettledOnce(t *testing.T) {
	var l left
	l.ownerChanged(keyOf("web"), nil, came("web"))
	since := l.of(web)["web"].since
	remnants := []remnant{{kind: endpointslices.Kind, key: cell.Key{Namespace: "shop", Name: "a-web-1"}}, {kind: endpointslices.Kind, key: cell.Key{Namespace: "shop", Name: "a-web-2"}}}
	of := func() map[types.UID][]remnant {
		return map[types.UID][]remnant{"web": slices.Clone(remnants), "unknown": slices.Clone(remnants)}
	}
	if _, known, ask := l.in("a", "web", since); known || !ask {
		t.Fatal("the cluster is not asked")
	}
	if _, _, again := l.in("a", "web", since); again {
		t.Error("the cluster is asked twice")
	}
	if waiting := l.answered("a", time.Now(), nil, errors.New("down")); fmt.Sprint(waiting) != "[shop/web]" {
		t.Errorf("after a failure, %v wait", waiting)
	}
	if _, known, ask := l.in("a", "web", since); known || !ask {
		t.Fatal("the cluster is not asked again")
	}
	if waiting := l.answered("a", time.Now(), of(), nil); fmt.Sprint(waiting) != "[shop/web]" {
		t.Errorf("%v have waited", waiting)
	}
	found, known, _ := l.in("a", "web", since)
	if !known || len(found) != 2 {
		t.Fatalf("found are %v", found)
	}
	l.settled("a", "web", found[0])
	if found, _, _ := l.in("a", "web", since); len(found) != 1 || found[0] != remnants[1] {
		t.Errorf("after one is settled, found are %v", found)
	}

	// Another Service comes, and the cluster is listed again.
	l.ownerChanged(keyOf("db"), nil, came("db"))
	later := l.of(keyOf("db").Key)["db"].since
	if _, known, ask := l.in("a", "db", later); known || !ask {
		t.Fatal("the cluster is not asked for the other Service")
	}
	if waiting := l.answered("a", time.Now(), of(), nil); fmt.Sprint(waiting) != "[shop/db]" {
		t.Errorf("%v have waited", waiting)
	}
	if found, known, _ := l.in("a", "web", since); !known || len(found) != 1 {
		t.Errorf("after the next list, found are %v", found)
	}
	l.settled("a", "web", remnants[1])
	if found, known, _ := l.in("a", "web", since); !known || len(found) != 0 {
		t.Errorf("after all are settled, found are %v", found)
	}
}

// TestStays checks who is asked about: an owner that comes or stays, and not one that has gone on or is new.
func TestStays(t *testing.T) {
	var l left
	fresh := came("new")
	fresh.Labels = nil
	l.ownerChanged(keyOf("web"), nil, fresh)
	if len(l.of(web)) > 0 {
		t.Error("clusters are asked about a new MultiClusterService")
	}
	l.ownerChanged(keyOf("web"), fresh, came("new"))
	if len(l.of(web)) > 0 {
		t.Error("clusters are asked about one that has got its ID")
	}
	imported := came("import")
	imported.Kind, imported.Labels = &cell.Kind{GroupVersionKind: exposure.ServiceImportKind}, nil
	l.ownerChanged(keyOf("web"), nil, imported)
	if since := l.of(web)["import"].since; !l.has(web, "import", since) || l.has(web, "import", since.Add(-time.Second)) {
		t.Error("a ServiceImport is not waited for")
	}
	since := l.of(web)["import"].since
	frozen := *imported
	frozen.Frozen = true
	l.ownerChanged(keyOf("web"), imported, &frozen)
	if l.has(web, "import", since) {
		t.Error("one that goes on to another cell is still here")
	}
	l.ownerChanged(keyOf("web"), &frozen, imported)
	if now := l.of(web)["import"].since; !l.has(web, "import", now) || l.has(web, "import", since) {
		t.Error("one that has come back is that of before")
	}
	l.in("a", "import", since)
	l.clusterGone("a")
	if waiting := l.answered("a", time.Now(), nil, nil); len(waiting) > 0 || len(l.clusters) > 0 {
		t.Errorf("a cluster that has gone is known: %v", l.clusters)
	}
}

// TestOffered checks that EndpointSlices that are not sent do not keep their copies.
func TestOffered(t *testing.T) {
	live := func(name, port string, addresses ...any) unstructured.Unstructured {
		endpoints := []any{}
		for _, address := range addresses {
			endpoints = append(endpoints, map[string]any{"addresses": []any{address}})
		}
		return unstructured.Unstructured{Object: map[string]any{
			"metadata":    map[string]any{"namespace": "shop", "name": name, "labels": map[string]any{"kubernetes.io/service-name": "web"}},
			"addressType": "IPv4", "endpoints": endpoints, "ports": []any{map[string]any{"name": port, "port": int64(80)}},
		}}
	}
	s := crossCluster(&exposure.CrossCluster{Template: &cell.Template{UID: "uid"}, Ports: []string{"http"}}, web, []string{"a", "b"})
	got, err := s.offered("a", []unstructured.Unstructured{live("web-1", "http", "10.0.0.1"), live("web-2", "http"), live("web-3", "debug", "10.0.0.3")})
	if want := map[string]bool{"a-web-1": true}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("offered are %v, %v; want %v", got, err, want)
	}
}
