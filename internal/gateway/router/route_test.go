package router

import (
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// BenchmarkRoute measures finding an object's cell.
func BenchmarkRoute(b *testing.B) {
	compiled, err := slots.Compile(1, []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 1}})
	if err != nil {
		b.Fatal(err)
	}
	rt := &Router{}
	c := &call{RequestInfo: &request.RequestInfo{Namespace: "some-namespace", Name: "some-name-of-a-deployment"}, view: &topology.View{View: routing.View{Map: compiled}}, placement: placement.ByName}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rt.locate(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRouteAllocatesNothing checks that routing does not allocate.
func TestRouteAllocatesNothing(t *testing.T) {
	result := testing.Benchmark(BenchmarkRoute)
	if result.AllocsPerOp() != 0 {
		t.Errorf("routing allocates %d times, want 0", result.AllocsPerOp())
	}
}
