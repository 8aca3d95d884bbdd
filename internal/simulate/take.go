package simulate

import (
	corev1 "k8s.io/api/core/v1"
)

// Take places reserved pods on the nodes of a class, as kube-scheduler does by default: on those with the most free
// resources. If they do not fit, the class no longer counts as capacity.
func (m *Model) Take(className string, requests corev1.ResourceList, count int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	index, known := m.classIndex[className]
	if !known || count <= 0 {
		return
	}
	m.version++
	c := &m.classes[index]
	wanted := amountsOf(requests).plusPod()
	freeByNode, total, highest := make([]int64, len(m.nodes)), int64(0), int64(0)
	for at := range m.nodes {
		if n := &m.nodes[at]; n.class == index {
			free := c.allocatable.plus(&n.used, -1)
			freeByNode[at] = free.times(&wanted)
			total += freeByNode[at]
			highest = max(highest, freeByNode[at])
		}
	}
	if total < count {
		c.overdrawn = true
		return
	}
	// Find the lowest level of free resources that the nodes have to go down to.
	low, high := int64(0), highest
	for low < high {
		middle := (low + high + 1) / 2
		if above(freeByNode, middle) >= count {
			low = middle
		} else {
			high = middle - 1
		}
	}
	spare := above(freeByNode, low) - count
	for at := range freeByNode {
		taken := freeByNode[at] - low
		if taken <= 0 {
			continue
		}
		if spare > 0 {
			taken--
			spare--
		}
		n := &m.nodes[at]
		n.used = n.used.plus(&wanted, taken)
	}
}

// CapacityIn returns how many pods with the given requests fit the nodes of a class, ignoring other rules.
func (m *Model) CapacityIn(className string, requests corev1.ResourceList) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	index, known := m.classIndex[className]
	if !known || m.classes[index].overdrawn {
		return 0
	}
	wanted, total := amountsOf(requests).plusPod(), int64(0)
	for at := range m.nodes {
		if n := &m.nodes[at]; n.class == index {
			free := m.classes[index].allocatable.plus(&n.used, -1)
			total += free.times(&wanted)
		}
	}
	return total
}

// Share keeps every n-th node, beginning with the given one of the first n, and the n-th part of quotas. Holders with different shares cannot
// use the same nodes.
func (m *Model) Share(first, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.nodes {
		if at%n != first {
			m.nodes[at].class = noClass
		}
	}
	m.shareQuotas(n)
	m.version++
}

func above(freeByNode []int64, level int64) int64 {
	sum := int64(0)
	for _, free := range freeByNode {
		sum += max(0, free-level)
	}
	return sum
}

// Clone returns a copy for Take. Pods are shared and must not change.
func (m *Model) Clone() *Model {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.clone()
}

func (m *Model) clone() *Model {
	return &Model{
		version: m.version, classIndex: m.classIndex, nodeIndex: m.nodeIndex, shapes: m.shapes, pods: m.pods, volumes: m.volumes, bound: m.bound, storage: m.storage,
		classes: append([]class(nil), m.classes...), nodes: append([]node(nil), m.nodes...),
		quotas: m.quotas, quotasShared: true,
	}
}
