package simulate

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Model is the nodes of a cluster and what their pods take up. It is fed with nodes, pods and volumes as they change, in any
// order, and is safe for concurrent use. The zero value is not usable; NewModel makes one.
type Model struct {
	mu      sync.RWMutex
	version uint64

	classes    []class
	classIndex map[string]int32
	nodes      []node
	nodeIndex  map[string]int32
	vacant     []int32 // places in nodes

	shapes     map[string]*shape
	pods       map[types.UID]placed
	volumes    map[string]volume // by namespace/claim
	bound      map[string]string // volume → namespace/claim
	storage    map[string]storageClass
	unassigned amounts // of pods without a node

	nodesKnown, podsKnown bool
}

// node is what is known under the name of a node. Pods may come before their node, and stay after it.
type node struct {
	name  string
	class int32 // noClass while the node itself is not known
	pods  int32
	used  amounts
	rare  *rareFacts // nil for most nodes
}

// rareFacts are what few nodes have.
type rareFacts struct {
	ports map[hostPort]int32
	// levels are what pods of a priority other than 0 take up, from the lowest on.
	levels []level
}

type level struct {
	priority int32
	pods     int32
	used     amounts
}

const noClass = -1

// NewModel returns a cluster without nodes.
func NewModel() *Model {
	return &Model{
		classIndex: map[string]int32{}, nodeIndex: map[string]int32{},
		shapes: map[string]*shape{}, pods: map[types.UID]placed{}, volumes: map[string]volume{}, bound: map[string]string{}, storage: map[string]storageClass{},
	}
}

// Version grows with every change.
func (m *Model) Version() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

// SetNode takes over a node as it is now.
func (m *Model) SetNode(n *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.place(n.Name)
	m.join(at, describe(n))
	m.version++
}

// RemoveNode forgets a node.
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

// AddNodes adds nodes without names that have some resources left. It is how a model is made from a summary.
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

// place returns where a node is kept.
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

// vacate gives up the place of a node that is gone and has no pods.
func (m *Model) vacate(at int32) {
	n := &m.nodes[at]
	if n.class != noClass || n.pods > 0 {
		return
	}
	delete(m.nodeIndex, n.name)
	*n = node{class: noClass}
	m.vacant = append(m.vacant, at)
}

// Class is nodes that pods cannot tell apart but by what they have left.
type Class struct {
	// Name is made from everything else; an empty name is filled in.
	Name string
	// Labels of the nodes, without the one that names a single node.
	Labels map[string]string
	// Taints of the nodes.
	Taints []corev1.Taint
	// Allocatable is what each node offers.
	Allocatable corev1.ResourceList
	// Potential tells that the nodes do not exist yet, but could.
	Potential bool
}

// class is a Class in use.
type class struct {
	Class
	allocatable amounts
	nodes       int32
	// overdrawn tells that more is promised on these nodes than they have left; they are not counted on.
	overdrawn bool
	// sample stands for all of the nodes when a pod's affinity is asked.
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

// ReplaceNodes takes over all nodes that there are.
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

// ReplacePods takes over all pods that there are.
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

// Synced tells whether all nodes and pods have been seen once.
func (m *Model) Synced() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.nodesKnown && m.podsKnown
}
