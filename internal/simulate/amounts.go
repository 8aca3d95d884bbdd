package simulate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources of every node have a fixed index, so that comparisons are plain arithmetic.
const (
	cpu = iota
	memory
	storage
	pods
	fixed
)

var fixedNames = [fixed]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}

// amounts are quantities of resources: CPU in thousandths, everything else in whole units.
type amounts struct {
	fixed [fixed]int64
	other map[corev1.ResourceName]int64 // may be nil; shared and immutable
}

func amountsOf(list corev1.ResourceList) amounts {
	var a amounts
	for name, quantity := range list {
		if place := placeOf(name); place >= 0 {
			a.fixed[place] = units(place, &quantity)
			continue
		}
		if value := quantity.Value(); value != 0 {
			if a.other == nil {
				a.other = map[corev1.ResourceName]int64{}
			}
			a.other[name] = value
		}
	}
	return a
}

func placeOf(name corev1.ResourceName) int {
	for place, known := range fixedNames {
		if name == known {
			return place
		}
	}
	return -1
}

func units(place int, quantity *resource.Quantity) int64 {
	if place == cpu {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// list converts amounts to a ResourceList.
func (a *amounts) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for place, value := range a.fixed {
		switch {
		case value == 0:
		case place == cpu:
			list[corev1.ResourceCPU] = *resource.NewMilliQuantity(value, resource.DecimalSI)
		case place == pods:
			list[corev1.ResourcePods] = *resource.NewQuantity(value, resource.DecimalSI)
		default:
			list[fixedNames[place]] = *resource.NewQuantity(value, resource.BinarySI)
		}
	}
	for name, value := range a.other {
		list[name] = *resource.NewQuantity(value, resource.DecimalSI)
	}
	return list
}

// plusPod adds one pod to the amounts.
func (a amounts) plusPod() amounts {
	a.fixed[pods] = 1
	return a
}

// plus returns a + times·b.
func (a amounts) plus(b *amounts, times int64) amounts {
	for place := range a.fixed {
		a.fixed[place] += times * b.fixed[place]
	}
	if len(b.other) == 0 {
		return a
	}
	sum := make(map[corev1.ResourceName]int64, len(a.other)+len(b.other))
	for name, value := range a.other {
		sum[name] = value
	}
	for name, value := range b.other {
		if sum[name] += times * value; sum[name] == 0 {
			delete(sum, name)
		}
	}
	a.other = sum
	return a
}

// times returns how often a request fits into the amounts.
func (a *amounts) times(request *amounts) int64 {
	most := int64(math.MaxInt32)
	for place, asked := range &request.fixed {
		if asked > 0 {
			most = min(most, a.fixed[place]/asked)
		}
	}
	for name, asked := range request.other {
		if asked > 0 {
			most = min(most, a.other[name]/asked)
		}
	}
	return max(0, most)
}
