package endpointslices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/fleet"
)

func slice(name, service, address string) *fleet.Bare {
	return &fleet.Bare{Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"metadata":    map[string]any{"namespace": "shop", "name": name, "labels": map[string]any{"kubernetes.io/service-name": service}},
		"addressType": "IPv4",
		"endpoints":   []any{map[string]any{"addresses": []any{address}, "nodeName": "n", "targetRef": map[string]any{"kind": "Pod"}, "hostname": "web-0"}},
		"ports":       []any{map[string]any{"name": "http", "port": int64(80)}},
	}}}
}

// TestCollector lists, watches, and connects again.
func TestCollector(t *testing.T) {
	var feed execution.Feed
	var changed []string
	c := New("a", func(_ string, f execution.Feed) { feed = f }, func(service cell.Key) { changed = append(changed, service.Name) })
	check := func(step string, wantKnown bool, want string, wantChanged ...string) {
		t.Helper()
		found, known := c.Of("m", cell.Key{Namespace: "shop", Name: "web"})
		var got []string
		for _, s := range found {
			got = append(got, s.Name)
		}
		slices.Sort(changed)
		if fmt.Sprint(got) != want || known != wantKnown || !slices.Equal(changed, wantChanged) {
			t.Errorf("%s: %v, known %t, changed %v; want %s, %t, %v", step, got, known, changed, want, wantKnown, wantChanged)
		}
		changed = nil
	}
	check("before the first list", false, "[]")
	first := feed.Sink()
	done := first.Relist()
	first.Set(slice("web-1", "web", "10.0.0.1"))
	first.Set(slice("other-1", "other", "10.0.0.2"))
	check("during the first list", false, "[]")
	done("1")
	check("after it", true, "[web-1]", "web")

	first.Set(slice("web-1", "web", "10.0.0.1"))
	check("nothing new", true, "[web-1]")
	first.Set(slice("web-1", "web", "10.0.0.3"))
	first.Set(slice("web-2", "web", "10.0.0.4"))
	check("a change and an addition", true, "[web-1 web-2]", "web", "web")
	first.Set(slice("web-2", "other", "10.0.0.4"))
	check("it belongs to another Service", true, "[web-1]", "other", "web")

	// The connection changes: what the old watch still says does not count, and what is known stays until the list is complete.
	second := feed.Sink()
	first.Unset(slice("web-1", "web", ""))
	done = second.Relist()
	check("while listing again", true, "[web-1]")
	done("2")
	check("all are gone", true, "[]", "other", "other", "web")

	content := Condense(slice("web-1", "web", "10.0.0.1").Unstructured).Content
	if strings.Contains(content, "nodeName") || strings.Contains(content, "targetRef") || !strings.Contains(content, "hostname") || !strings.Contains(content, `"port":80`) {
		t.Errorf("content is %s", content)
	}
}
