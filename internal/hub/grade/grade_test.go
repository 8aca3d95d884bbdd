package grade

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestDefaultGrades(t *testing.T) {
	models := Default()
	if len(models) != 9 {
		t.Fatalf("%d grades, want 9", len(models))
	}
	for i, model := range models {
		if model.Grade != i || len(model.Ranges) != 2 {
			t.Fatalf("grade %d is %+v", i, model)
		}
		for j, r := range model.Ranges {
			switch {
			case i == 0 && !r.Min.IsZero():
				t.Errorf("the first grade of %s begins at %s", r.Name, r.Min.String())
			case i > 0 && models[i-1].Ranges[j].Max.Cmp(r.Min) != 0:
				t.Errorf("grade %d of %s begins at %s, but the one before ends at %s", i, r.Name, r.Min.String(), models[i-1].Ranges[j].Max.String())
			case i == 8 && r.Max.Value() != math.MaxInt64:
				t.Errorf("the last grade of %s ends at %s", r.Name, r.Max.String())
			}
		}
	}
	if got := models[5].Ranges; got[0].Min.String() != "16" || got[0].Max.String() != "32" || got[1].Min.String() != "128Gi" || got[1].Max.String() != "256Gi" {
		t.Errorf("grade 5 is %+v", got)
	}
}

func TestCount(t *testing.T) {
	for name, test := range map[string]struct {
		cpu, memory string
		want        int
	}{
		"nothing left":                   {"0", "0", 0},
		"overcommitted":                  {"-1", "-1Gi", 0},
		"just below a bound":             {"999m", "4Gi", 0},
		"at a bound":                     {"1", "4Gi", 1},
		"CPU decides":                    {"3", "1000Gi", 2},
		"memory decides":                 {"500", "40Gi", 3},
		"larger than every bound":        {"5000", "5000Gi", 8},
		"a resource that it has none of": {"64", "0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := Compile(Default())
			h.Count(func(resourceName corev1.ResourceName) int64 {
				return Value(resourceName, map[corev1.ResourceName]resource.Quantity{
					corev1.ResourceCPU: resource.MustParse(test.cpu), corev1.ResourceMemory: resource.MustParse(test.memory),
				}[resourceName])
			})
			for _, modeling := range h.Modelings() {
				want := 0
				if modeling.Grade == test.want {
					want = 1
				}
				if modeling.Count != want {
					t.Errorf("grade %d has %d nodes, want %d", modeling.Grade, modeling.Count, want)
				}
			}
		})
	}
}

func TestEveryNodeIsInExactlyOneGrade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Compile(Default())
		nodes := rapid.SliceOf(rapid.Int64()).Draw(t, "nodes")
		for _, size := range nodes {
			h.Count(func(corev1.ResourceName) int64 { return size })
		}
		sum := 0
		for _, modeling := range h.Modelings() {
			sum += modeling.Count
		}
		if sum != len(nodes) {
			t.Fatalf("%d nodes are counted, want %d", sum, len(nodes))
		}
	})
}
