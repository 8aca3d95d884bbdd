package adopt_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/adopt"
)

func sourceOf(t failer, cluster string, objects ...string) adopt.Source {
	return adopt.Source{Cluster: cluster, Next: func() (*unstructured.Unstructured, error) {
		if len(objects) == 0 {
			return nil, nil
		}
		obj := object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: `+objects[0]+`}}`)
		objects = objects[1:]
		return obj, nil
	}}
}

// Groups has each name once, with the clusters that have it. A template alone is no group.
func TestGroups(t *testing.T) {
	var got []string
	visit := func(group adopt.Group) error {
		text := group.Key.Name
		for _, o := range group.Objects {
			text += " " + o.Cluster
		}
		if group.Template != nil {
			text += " template"
		}
		got = append(got, text)
		return nil
	}
	err := adopt.Groups([]adopt.Source{sourceOf(t, "b", "a", "b", "d"), sourceOf(t, "", "b", "c"), sourceOf(t, "a", "b", "d"), sourceOf(t, "empty")}, visit)
	if want := "a b,b a b template,d a b"; err != nil || strings.Join(got, ",") != want {
		t.Errorf("the groups are %v: %v", got, err)
	}
	err = adopt.Groups([]adopt.Source{sourceOf(t, "a", "b", "a")}, visit)
	if err == nil || !strings.Contains(err.Error(), "a comes after b") {
		t.Errorf("a list out of order: %v", err)
	}
}

const workloadsPerCluster = 10_000

// BenchmarkNamespace plans 10 000 Deployments in three clusters, from pages of JSON. It reports the highest heap.
func BenchmarkNamespace(b *testing.B) {
	p := planner()
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	for range b.N {
		var sources []adopt.Source
		for _, cluster := range []string{"a", "b", "c"} {
			sources = append(sources, pagesOf(b, cluster))
		}
		var peak uint64
		items := make([]*adopt.Item, 0, workloadsPerCluster)
		err := adopt.Groups(sources, func(group adopt.Group) error {
			item, err := p.Plan(b.Context(), group)
			if err == nil && len(item.Obstacles) > 0 {
				err = fmt.Errorf("%s", item.Obstacles[0])
			}
			if items = append(items, item); len(items)%500 == 0 {
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				peak = max(peak, stats.HeapInuse)
			}
			return err
		})
		if err != nil || len(items) != workloadsPerCluster {
			b.Fatalf("%d items: %v", len(items), err)
		}
		b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	}
}

// pagesOf returns the Deployments of a cluster, decoded from pages as a client does.
func pagesOf(b *testing.B, cluster string) adopt.Source {
	const size = 500
	raw, err := edited(b, web, "web:1.2", "web:"+cluster, "west", cluster).MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	var page []unstructured.Unstructured
	next := 0
	return adopt.Source{Cluster: cluster, Next: func() (*unstructured.Unstructured, error) {
		if len(page) == 0 && next < workloadsPerCluster {
			var text strings.Builder
			text.WriteString(`{"apiVersion":"apps/v1","kind":"DeploymentList","items":[`)
			for i := range size {
				if i > 0 {
					text.WriteByte(',')
				}
				name := fmt.Sprintf(`"name":"web-%05d","namespace"`, next)
				text.WriteString(strings.Replace(string(raw), `"name":"web","namespace"`, name, 1))
				next++
			}
			text.WriteString(`]}`)
			list := &unstructured.UnstructuredList{}
			if err := list.UnmarshalJSON([]byte(text.String())); err != nil {
				return nil, err
			}
			page = list.Items
		}
		if len(page) == 0 {
			return nil, nil
		}
		obj := page[0]
		page = page[1:]
		return &obj, nil
	}}
}
