package adopt_test

import (
	"fmt"
	"testing"

	"github.com/cellplane/cellplane/internal/adopt"
)

// BenchmarkPlan plans one Deployment with differences in three clusters.
func BenchmarkPlan(b *testing.B) {
	p := planner()
	first := object(b, web)
	second := edited(b, web, "web:1.2", "web:1.3", "west", "east", "replicas: 3\n", "replicas: 5\n")
	third := edited(b, web, "west", "north", "replicas: 3\n", "replicas: 1\n")
	b.ReportAllocs()
	for i := range b.N {
		name := fmt.Sprint("web-", i)
		g := group(first, second, third)
		for _, member := range g.Objects {
			member.Object.SetName(name)
		}
		g.Key = adopt.KeyOf(first)
		item, err := p.Plan(b.Context(), g)
		if err != nil || len(item.Obstacles) > 0 {
			b.Fatalf("err %v, obstacles %v", err, item.Obstacles)
		}
	}
}
