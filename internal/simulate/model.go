package simulate

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Model is the nodes of a cluster and the resources that their pods use. It is updated with nodes, pods and volumes
// in any order and is safe for concurrent use. Create it with NewModel.
type Model struct {
	mu      sync.RWMutex
	version uint64

	classes    []class
	classIndex map[string]int32
	nodes      []node
	nodeIndex  map[string]int32
	vacant     []int32 // free indexes in nodes

	shapes     map[string]*shape
	pods       map[types.UID]placed
	volumes    map[string]volume // by namespace/claim
	bound      map[string]string // volume → namespace/claim
	storage    map[string]storageClass
	quotas     map[string][]quota // by namespace
	unassigned amounts            // used by pods without a node

	// quotasShared means that a clone uses the map of quotas too.
	quotasShared bool

	nodesKnown, podsKnown bool
}

// node is the state of one node name. Pods may arrive before their node and stay after it.
type node struct {
	name  string
	class int32 // noClass while the node is unknown
	pods  int32
	used  amounts
	rare  *rareFacts // nil for most nodes
}

// rareFacts are properties that few nodes have.
type rareFacts struct {
	ports map[hostPort]int32
	// levels are the amounts used by pods of priorities other than 0, from the lowest.
	levels []level
}

type level struct {
	priority int32
	pods     int32
	used     amounts
}

const noClass = -1

// NewModel returns a model without nodes.
func NewModel() *Model {
	return &Model{
		classIndex: map[string]int32{}, nodeIndex: map[string]int32{},
		shapes: map[string]*shape{}, pods: map[types.UID]placed{}, volumes: map[string]volume{}, bound: map[string]string{}, storage: map[string]storageClass{},
	}
}

// Version increases with every change.
func (m *Model) Version() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

// SetNode adds or updates a node.
func (m *Model) SetNode(n *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.place(n.Name)
	m.join(at, describe(n))
	m.version++
}

// RemoveNode removes a node.
func (m *Model) RemoveNode(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known := m.nodeIndex[name]
	if !known {
		return
	}
	m.leave(at)
	m.vacate(at)
	m.version++
}

// AddNodes adds unnamed nodes with the given free resources, to build a model from a summary.
func (m *Model) AddNodes(c Class, free corev1.ResourceList, count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := amountsOf(free)
	for range count {
		m.nodes = append(m.nodes, node{class: noClass})
		at := int32(len(m.nodes) - 1)
		m.join(at, c)
		n := &m.nodes[at]
		n.used = m.classes[n.class].allocatable.plus(&left, -1)
	}
	m.version++
}

// place returns the index of a node.
func (m *Model) place(name string) int32 {
	if at, known := m.nodeIndex[name]; known {
		return at
	}
	at := int32(len(m.nodes))
	if last := len(m.vacant) - 1; last >= 0 {
		at, m.vacant = m.vacant[last], m.vacant[:last]
	} else {
		m.nodes = append(m.nodes, node{})
	}
	m.nodes[at] = node{name: name, class: noClass}
	m.nodeIndex[name] = at
	return at
}

// vacate frees the index of a removed node without pods.
func (m *Model) vacate(at int32) {
	n := &m.nodes[at]
	if n.class != noClass || n.pods > 0 {
		return
	}
	delete(m.nodeIndex, n.name)
	*n = node{class: noClass}
	m.vacant = append(m.vacant, at)
}

// Class is a set of nodes that differ only in their free resources.
type Class struct {
	// Name is derived from the other fields if it is empty.
	Name string
	// Labels of the nodes, without the hostname.
	Labels map[string]string
	// Taints of the nodes.
	Taints []corev1.Taint
	// Allocatable resources of each node.
	Allocatable corev1.ResourceList
	// Potential means that the nodes do not exist yet but could be added.
	Potential bool
}

// class is a Class in a model.
type class struct {
	Class
	allocatable amounts
	nodes       int32
	// overdrawn means that more is reserved on these nodes than they have free. They do not count as capacity.
	overdrawn bool
	// sample is a node that stands for the class in affinity checks.
	sample *corev1.Node
}

func (m *Model) join(at int32, described Class) {
	if described.Name == "" {
		described.Name = described.name()
	}
	n := &m.nodes[at]
	if n.class != noClass && m.classes[n.class].Name == described.Name {
		return
	}
	m.leave(at)
	index, known := m.classIndex[described.Name]
	if !known {
		index = m.newClass(described)
	}
	m.classes[index].nodes++
	n.class = index
}

func (m *Model) leave(at int32) {
	n := &m.nodes[at]
	if n.class == noClass {
		return
	}
	c := &m.classes[n.class]
	n.class = noClass
	if c.nodes--; c.nodes == 0 {
		delete(m.classIndex, c.Name)
		*c = class{}
	}
}

func (m *Model) newClass(described Class) int32 {
	sample := &corev1.Node{}
	sample.Labels = described.Labels
	created := class{Class: described, allocatable: amountsOf(described.Allocatable), sample: sample}
	index := int32(-1)
	for i := range m.classes {
		if m.classes[i].nodes == 0 {
			index = int32(i)
			break
		}
	}
	if index < 0 {
		index = int32(len(m.classes))
		m.classes = append(m.classes, class{})
	}
	m.classes[index] = created
	m.classIndex[described.Name] = index
	return index
}

// ReplaceNodes replaces all nodes.
func (m *Model) ReplaceNodes(nodes []*corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		kept[n.Name] = true
		m.join(m.place(n.Name), describe(n))
	}
	for name, at := range m.nodeIndex {
		if !kept[name] {
			m.leave(at)
			m.vacate(at)
		}
	}
	m.nodesKnown = true
	m.version++
}

// ReplacePods replaces all pods.
func (m *Model) ReplacePods(pods []*corev1.Pod) {
	kept := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		kept[pod.UID] = true
		m.SetPod(pod)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, was := range m.pods {
		if !kept[uid] {
			delete(m.pods, uid)
			m.count(was, -1)
		}
	}
	m.podsKnown = true
	m.version++
}

// Synced reports whether all nodes and pods have been listed once.
func (m *Model) Synced() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.nodesKnown && m.podsKnown
}
