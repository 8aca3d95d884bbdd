// Package grade classifies nodes by size. A Cluster's resource models are grades; each is a range for every resource. A node
// has the highest grade that it reaches in all resources.
package grade

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// bounds are where the default grades begin: cores, and gibibytes of memory.
var bounds = []struct{ cores, gibibytes int64 }{
	{0, 0}, {1, 4}, {2, 16}, {4, 32}, {8, 64}, {16, 128}, {32, 256}, {64, 512}, {128, 1024},
}

const gibibyte = 1 << 30

// Default returns the default grades.
func Default() []clusterv1alpha1.ResourceModel {
	models := make([]clusterv1alpha1.ResourceModel, len(bounds))
	for i, from := range bounds {
		cores, memory := int64(math.MaxInt64), int64(math.MaxInt64)
		if i+1 < len(bounds) {
			cores, memory = bounds[i+1].cores, bounds[i+1].gibibytes*gibibyte
		}
		models[i] = clusterv1alpha1.ResourceModel{Grade: i, Ranges: []clusterv1alpha1.ResourceModelRange{
			{Name: corev1.ResourceCPU, Min: *resource.NewQuantity(from.cores, resource.DecimalSI), Max: *resource.NewQuantity(cores, resource.DecimalSI)},
			{Name: corev1.ResourceMemory, Min: *resource.NewQuantity(from.gibibytes*gibibyte, resource.BinarySI), Max: *resource.NewQuantity(memory, format(memory))},
		}}
	}
	return models
}

// format is the format of a quantity of memory; the largest number has no binary unit.
func format(memory int64) resource.Format {
	if memory == math.MaxInt64 {
		return resource.DecimalSI
	}
	return resource.BinarySI
}

// Histogram counts nodes by grade.
type Histogram struct {
	grades []int
	counts []int
	// from is the lower bound of each grade, by resource.
	from map[corev1.ResourceName][]int64
}

// Compile prepares grades for counting.
func Compile(models []clusterv1alpha1.ResourceModel) *Histogram {
	h := &Histogram{counts: make([]int, len(models)), from: map[corev1.ResourceName][]int64{}}
	ordered := slices.Clone(models)
	slices.SortFunc(ordered, func(a, b clusterv1alpha1.ResourceModel) int { return cmp.Compare(a.Grade, b.Grade) })
	for _, model := range ordered {
		h.grades = append(h.grades, model.Grade)
		for i := range model.Ranges {
			r := &model.Ranges[i]
			h.from[r.Name] = append(h.from[r.Name], Value(r.Name, r.Min))
		}
	}
	return h
}

// Value returns a quantity as a number: millicores for CPU, whole units for all else.
func Value(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// Count counts a node by its free amount of each resource.
func (h *Histogram) Count(available func(corev1.ResourceName) int64) {
	if len(h.grades) == 0 {
		return
	}
	reached := len(h.grades) - 1
	for name, from := range h.from {
		value := available(name)
		// The grade is the one before the first that begins above the value.
		above, _ := slices.BinarySearchFunc(from, value, func(begin, value int64) int {
			if begin <= value {
				return -1
			}
			return 1
		})
		reached = min(reached, max(0, above-1))
	}
	h.counts[reached]++
}

// Modelings returns the counts, in order of the grades.
func (h *Histogram) Modelings() []clusterv1alpha1.AllocatableModeling {
	var all []clusterv1alpha1.AllocatableModeling
	for i, grade := range h.grades {
		all = append(all, clusterv1alpha1.AllocatableModeling{Grade: grade, Count: h.counts[i]})
	}
	return all
}
