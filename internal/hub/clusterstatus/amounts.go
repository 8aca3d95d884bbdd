package clusterstatus

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts are quantities of resources, ordered by name: CPU in millicores, everything else in whole units. Every pod of the
// fleet has one, so it is a tenth of the size of a corev1.ResourceList.
type amounts []amount

type amount struct {
	name  corev1.ResourceName
	value int64
}

func amountsOf(list corev1.ResourceList) amounts {
	all := make(amounts, 0, len(list))
	for name, quantity := range list {
		value := quantity.Value()
		if name == corev1.ResourceCPU {
			value = quantity.MilliValue()
		}
		if value != 0 {
			all = append(all, amount{name: name, value: value})
		}
	}
	slices.SortFunc(all, func(a, b amount) int { return cmp.Compare(a.name, b.name) })
	return slices.Clip(all)
}

func (a amounts) find(name corev1.ResourceName) (int, bool) {
	return slices.BinarySearchFunc(a, name, func(x amount, name corev1.ResourceName) int { return cmp.Compare(x.name, name) })
}

func (a amounts) get(name corev1.ResourceName) int64 {
	if i, found := a.find(name); found {
		return a[i].value
	}
	return 0
}

// plus adds a multiple of others in place, and returns the result.
func (a amounts) plus(others amounts, factor int64) amounts {
	for _, other := range others {
		a = a.plusOne(other.name, factor*other.value)
	}
	return a
}

func (a amounts) plusOne(name corev1.ResourceName, value int64) amounts {
	i, found := a.find(name)
	switch {
	case !found && value == 0:
		return a
	case !found:
		return slices.Insert(a, i, amount{name: name, value: value})
	}
	a[i].value += value
	if a[i].value == 0 {
		return slices.Delete(a, i, i+1)
	}
	return a
}

func (a amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for _, one := range a {
		list[one.name] = quantity(one.name, one.value)
	}
	return list
}

func quantity(name corev1.ResourceName, value int64) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	case name == corev1.ResourceMemory, name == corev1.ResourceStorage, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(value, resource.BinarySI)
	default:
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
}
