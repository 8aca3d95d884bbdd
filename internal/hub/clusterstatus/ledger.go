package clusterstatus

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/grade"
	"github.com/cellplane/cellplane/internal/simulate"
)

// ledger sums up the capacity of a member's nodes and the requests of its pods. Of a pod it keeps only what is needed to
// subtract it again.
type ledger struct {
	news  func()          // called once, when nodes and pods are known
	model *simulate.Model // gets the same objects; may be nil

	mu         sync.Mutex
	nodes      map[string]*node
	pods       map[types.UID]pod
	pending    amounts // of pods without a node
	nodesKnown bool
	podsKnown  bool
}

// node is the state of a node. Pods may arrive before their node, and stay after it.
type node struct {
	name        string
	exists      bool
	ready       bool
	allocatable amounts
	used        amounts
	pods        int
}

type pod struct {
	node     *node // nil while it is pending
	requests amounts
}

func newLedger(news func()) *ledger {
	return &ledger{news: news, nodes: map[string]*node{}, pods: map[types.UID]pod{}}
}

func (l *ledger) synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodesKnown && l.podsKnown
}

func (l *ledger) putNode(n *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setNode(n)
}

func (l *ledger) setNode(n *corev1.Node) {
	entry := l.node(n.Name)
	entry.exists = true
	entry.ready = isReady(n)
	entry.allocatable = amountsOf(n.Status.Allocatable)
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (l *ledger) dropNode(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsetNode(name)
}

func (l *ledger) unsetNode(name string) {
	entry := l.nodes[name]
	if entry == nil {
		return
	}
	entry.exists, entry.ready, entry.allocatable = false, false, nil
	l.forgetIfEmpty(entry)
}

func (l *ledger) forgetIfEmpty(entry *node) {
	if !entry.exists && entry.pods == 0 {
		delete(l.nodes, entry.name)
	}
}

func (l *ledger) replaceNodes(nodes []*corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.nodes {
		l.unsetNode(name)
	}
	for _, n := range nodes {
		l.setNode(n)
	}
	l.learned(&l.nodesKnown)
}

// learned notes that nodes or pods have been listed.
func (l *ledger) learned(known *bool) {
	before := l.nodesKnown && l.podsKnown
	*known = true
	if !before && l.nodesKnown && l.podsKnown {
		l.news()
	}
}

func (l *ledger) node(name string) *node {
	entry := l.nodes[name]
	if entry == nil {
		entry = &node{name: name}
		l.nodes[name] = entry
	}
	return entry
}

func (l *ledger) putPod(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setPod(p)
}

func (l *ledger) setPod(p *corev1.Pod) {
	l.unsetPod(p.UID)
	entry := pod{requests: amountsOf(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})).plusOne(corev1.ResourcePods, 1)}
	if p.Spec.NodeName == "" {
		l.pending = l.pending.plus(entry.requests, 1)
	} else {
		entry.node = l.node(p.Spec.NodeName)
		entry.node.used = entry.node.used.plus(entry.requests, 1)
		entry.node.pods++
	}
	l.pods[p.UID] = entry
}

func (l *ledger) dropPod(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsetPod(p.UID)
}

func (l *ledger) unsetPod(uid types.UID) {
	entry, known := l.pods[uid]
	if !known {
		return
	}
	delete(l.pods, uid)
	if entry.node == nil {
		l.pending = l.pending.plus(entry.requests, -1)
		return
	}
	entry.node.used = entry.node.used.plus(entry.requests, -1)
	entry.node.pods--
	l.forgetIfEmpty(entry.node)
}

func (l *ledger) replacePods(pods []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods, l.pending = make(map[types.UID]pod, len(pods)), nil
	for _, entry := range l.nodes {
		entry.used, entry.pods = nil, 0
		l.forgetIfEmpty(entry)
	}
	for _, p := range pods {
		l.setPod(p)
	}
	l.learned(&l.podsKnown)
}

// summarize writes the sums into the status of a Cluster.
func (l *ledger) summarize(cluster *clusterv1alpha1.Cluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var nodes clusterv1alpha1.NodeSummary
	var allocatable, allocated amounts
	models := grade.Compile(cluster.Spec.ResourceModels)
	for _, n := range l.nodes {
		allocated = allocated.plus(n.used, 1)
		if !n.exists {
			continue
		}
		nodes.TotalNum++
		if n.ready {
			nodes.ReadyNum++
		}
		allocatable = allocatable.plus(n.allocatable, 1)
		models.Count(func(name corev1.ResourceName) int64 { return n.allocatable.get(name) - n.used.get(name) })
	}
	cluster.Status.NodeSummary = &nodes
	cluster.Status.ResourceSummary = &clusterv1alpha1.ResourceSummary{
		Allocatable:          allocatable.list(),
		Allocating:           l.pending.list(),
		Allocated:            allocated.list(),
		AllocatableModelings: models.Modelings(),
	}
}
