package simulate

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
)

// Workload is the owner of pods.
type Workload struct{ Kind, Namespace, Name string }

// shape holds the common properties of a workload's pods, stored once.
type shape struct {
	key       string
	workload  Workload
	namespace string
	labels    map[string]string
	requests  amounts
	ports     []hostPort
	priority  int32
	apart     []podTerm
	// where counts the pods by node, total counts all.
	where map[int32]int32
	total int
}

// placed is a pod's shape and its node, if it has one.
type placed struct {
	shape *shape
	node  int32
}

const noNode = -1

// SetPod adds or updates a pod.
func (m *Model) SetPod(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		m.RemovePod(pod.UID)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := int32(noNode)
	if pod.Spec.NodeName != "" {
		at = m.place(pod.Spec.NodeName)
	}
	s := m.shapeOf(pod)
	was, known := m.pods[pod.UID]
	now := placed{shape: s, node: at}
	if known && was == now {
		return
	}
	// Add the new state before removing the old one, so that the node keeps its index.
	m.count(now, 1)
	if known {
		m.count(was, -1)
	}
	m.pods[pod.UID] = now
	m.version++
}

// RemovePod removes a pod.
func (m *Model) RemovePod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.pods[uid]
	if !known {
		return
	}
	delete(m.pods, uid)
	m.count(was, -1)
	m.version++
}

// count adds a pod to the sums or removes it.
func (m *Model) count(p placed, sign int32) {
	s := p.shape
	s.total += int(sign)
	if p.node == noNode {
		m.unassigned = m.unassigned.plus(&s.requests, int64(sign))
	} else {
		n := &m.nodes[p.node]
		n.pods += sign
		n.used = n.used.plus(&s.requests, int64(sign))
		n.countRare(s, sign)
		if s.where[p.node] += sign; s.where[p.node] == 0 {
			delete(s.where, p.node)
		}
		m.vacate(p.node)
	}
	if s.total == 0 {
		delete(m.shapes, s.key)
	} else {
		m.shapes[s.key] = s
	}
}

func (n *node) countRare(s *shape, sign int32) {
	if len(s.ports) == 0 && s.priority == 0 {
		return
	}
	if n.rare == nil {
		n.rare = &rareFacts{}
	}
	for _, port := range s.ports {
		if n.rare.ports == nil {
			n.rare.ports = map[hostPort]int32{}
		}
		if n.rare.ports[port] += sign; n.rare.ports[port] == 0 {
			delete(n.rare.ports, port)
		}
	}
	if s.priority != 0 {
		n.rare.countLevel(s, sign)
	}
	if len(n.rare.ports) == 0 && len(n.rare.levels) == 0 {
		n.rare = nil
	}
}

func (r *rareFacts) countLevel(s *shape, sign int32) {
	at, found := slices.BinarySearchFunc(r.levels, s.priority, func(l level, priority int32) int {
		switch {
		case l.priority < priority:
			return -1
		case l.priority > priority:
			return 1
		}
		return 0
	})
	if !found {
		r.levels = slices.Insert(r.levels, at, level{priority: s.priority})
	}
	l := &r.levels[at]
	l.pods += sign
	l.used = l.used.plus(&s.requests, int64(sign))
	if l.pods == 0 {
		r.levels = slices.Delete(r.levels, at, at+1)
	}
}

// shapeOf finds or creates the shape of a pod.
func (m *Model) shapeOf(pod *corev1.Pod) *shape {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	s := &shape{
		workload: WorkloadOf(pod), namespace: pod.Namespace, labels: pod.Labels, requests: amountsOf(requests).plusPod(),
		ports: hostPortsOf(&pod.Spec), priority: schedulinghelper.PodPriority(pod), where: map[int32]int32{},
	}
	if _, apart, err := compileAffinity(pod); err == nil {
		s.apart = apart
	}
	var anti *corev1.PodAntiAffinity
	if pod.Spec.Affinity != nil {
		anti = pod.Spec.Affinity.PodAntiAffinity
	}
	text, err := json.Marshal([]any{s.workload, s.namespace, s.labels, requests, s.ports, s.priority, anti})
	if err != nil {
		text = []byte(pod.UID) // a shape of its own is also correct
	}
	s.key = string(text)
	if known := m.shapes[s.key]; known != nil {
		return known
	}
	return s
}

// WorkloadOf returns the owner of a pod: its controller, or the Deployment of its ReplicaSet.
func WorkloadOf(pod *corev1.Pod) Workload {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return Workload{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	}
	w := Workload{Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name}
	if hash := pod.Labels["pod-template-hash"]; w.Kind == "ReplicaSet" && hash != "" {
		if name, cut := strings.CutSuffix(owner.Name, "-"+hash); cut {
			w.Kind, w.Name = "Deployment", name
		}
	}
	return w
}

// PodCount is the number of pods of a workload with a node, and of those that wait for one.
type PodCount struct{ Bound, Waiting int32 }

// CountPods counts the pods of workloads.
func (m *Model) CountPods(workloads []Workload) map[Workload]PodCount {
	counts := make(map[Workload]PodCount, len(workloads))
	for _, w := range workloads {
		counts[w] = PodCount{}
	}
	if len(counts) == 0 {
		return counts
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, s := range m.shapes {
		count, wanted := counts[s.workload]
		if !wanted {
			continue
		}
		bound := int32(0)
		for _, here := range s.where {
			bound += here
		}
		count.Bound += bound
		count.Waiting += int32(s.total) - bound
		counts[s.workload] = count
	}
	return counts
}

// LeanPod returns a copy of a pod with only the fields that a Model reads. Its requests are merged into one
// container.
func LeanPod(p *corev1.Pod) *corev1.Pod {
	lean := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels, OwnerReferences: p.OwnerReferences,
		},
		Spec: corev1.PodSpec{NodeName: p.Spec.NodeName, Priority: p.Spec.Priority, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})},
		}}},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	for _, port := range hostPortsOf(&p.Spec) {
		lean.Spec.Containers[0].Ports = append(lean.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: port.Port, HostIP: port.IP, Protocol: port.Protocol})
	}
	if p.Spec.Affinity != nil && p.Spec.Affinity.PodAntiAffinity != nil {
		lean.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: p.Spec.Affinity.PodAntiAffinity}
	}
	return lean
}
