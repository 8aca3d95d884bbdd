package simulate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// scenario is a random cluster and a pod to place.
type scenario struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	pod   *corev1.Pod
}

// terms selects the constraints that may be drawn.
type terms struct{ spread, apart, together int }

func drawWorld(t *rapid.T, allowed terms) scenario {
	var w scenario
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}}
		n.Labels[corev1.LabelHostname] = n.Name
		if zone := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "zone"); zone != "" {
			n.Labels["zone"] = zone
		}
		if rapid.IntRange(0, 3).Draw(t, "disk") > 0 {
			n.Labels["disk"] = "ssd"
		}
		if rapid.IntRange(0, 4).Draw(t, "tainted") == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}
		}
		n.Status.Allocatable = list(rapid.IntRange(0, 5).Draw(t, "cpu"), 8)
		w.nodes = append(w.nodes, n)
	}
	w.pod = drawPod(t, "web", rapid.IntRange(1, 2).Draw(t, "request"))
	addTerms(t, w.pod, allowed)
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		p := drawPod(t, rapid.SampledFrom([]string{"web", "db"}).Draw(t, "app"), 1)
		p.UID, p.Name = types.UID(fmt.Sprint("p", i)), fmt.Sprint("p", i)
		p.Spec.NodeName = rapid.SampledFrom(w.nodes).Draw(t, "node").Name
		if rapid.IntRange(0, 4).Draw(t, "unfriendly") == 0 && allowed.apart > 0 {
			addApart(t, p)
		}
		w.pods = append(w.pods, p)
	}
	return w
}

func list(cpus, pods int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI), corev1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI)}
}

func drawPod(t *rapid.T, app string, cpus int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": app}}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}}}}
	if rapid.IntRange(0, 5).Draw(t, "port") == 0 {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
	}
	if rapid.IntRange(0, 3).Draw(t, "selects") == 0 {
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if rapid.Bool().Draw(t, "tolerates") {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
	}
	return p
}

func appSelector(t *rapid.T) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(t, "selector")}}
}

func drawKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{corev1.LabelHostname, "zone"}).Draw(t, "key")
}

func addTerms(t *rapid.T, p *corev1.Pod, allowed terms) {
	for range rapid.IntRange(0, allowed.spread).Draw(t, "spread") {
		c := corev1.TopologySpreadConstraint{MaxSkew: int32(rapid.IntRange(1, 2).Draw(t, "skew")), TopologyKey: drawKey(t), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: appSelector(t)}
		if least := int32(rapid.IntRange(0, 3).Draw(t, "minDomains")); least > 0 {
			c.MinDomains = &least
		}
		if rapid.Bool().Draw(t, "honorTaints") {
			honor := corev1.NodeInclusionPolicyHonor
			c.NodeTaintsPolicy = &honor
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	for range rapid.IntRange(0, allowed.apart).Draw(t, "apart") {
		addApart(t, p)
	}
	for range rapid.IntRange(0, allowed.together).Draw(t, "together") {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: drawKey(t), LabelSelector: appSelector(t)}}}
	}
}

func addApart(t *rapid.T, p *corev1.Pod) {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: drawKey(t), LabelSelector: appSelector(t)}}}
}

// most finds the maximum number of replicas by exhaustive search.
func (w *scenario) most() int {
	best, seen := 0, map[string]bool{}
	var try func(placed []*corev1.Pod, perNode []int)
	try = func(placed []*corev1.Pod, perNode []int) {
		key := fmt.Sprint(perNode)
		if seen[key] {
			return
		}
		seen[key] = true
		best = max(best, len(placed)-len(w.pods))
		for i, n := range w.nodes {
			if !w.takes(n, placed) {
				continue
			}
			next := w.pod.DeepCopy()
			next.Spec.NodeName = n.Name
			counts := append([]int(nil), perNode...)
			counts[i]++
			try(append(placed[:len(placed):len(placed)], next), counts)
		}
	}
	try(w.pods, make([]int, len(w.nodes)))
	return best
}

// takes applies kube-scheduler's filters for one pod.
func (w *scenario) takes(n *corev1.Node, placed []*corev1.Pod) bool {
	return w.suits(n) && w.tolerates(n) && w.hasRoom(n, placed) && w.spreads(n, placed) && w.friendly(n, placed)
}

func (w *scenario) suits(n *corev1.Node) bool {
	for key, value := range w.pod.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	return true
}

func (w *scenario) tolerates(n *corev1.Node) bool {
	return len(n.Spec.Taints) == 0 || len(w.pod.Spec.Tolerations) > 0
}

func (w *scenario) hasRoom(n *corev1.Node, placed []*corev1.Pod) bool {
	used, port := w.pod.Spec.Containers[0].Resources.Requests.Cpu().Value(), len(w.pod.Spec.Containers[0].Ports) > 0
	count := int64(1)
	for _, p := range placed {
		if p.Spec.NodeName != n.Name {
			continue
		}
		count++
		used += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		if port && len(p.Spec.Containers[0].Ports) > 0 {
			return false
		}
	}
	return used <= n.Status.Allocatable.Cpu().Value() && count <= n.Status.Allocatable.Pods().Value()
}

func (w *scenario) spreads(n *corev1.Node, placed []*corev1.Pod) bool {
	for _, c := range w.pod.Spec.TopologySpreadConstraints {
		here, has := n.Labels[c.TopologyKey]
		if !has {
			return false
		}
		counts := map[string]int{}
		for _, other := range w.nodes {
			if w.counts(other, &c) {
				counts[other.Labels[c.TopologyKey]] += 0
			}
		}
		for _, p := range placed {
			on := w.node(p.Spec.NodeName)
			if w.counts(on, &c) && p.Labels["app"] == c.LabelSelector.MatchLabels["app"] {
				counts[on.Labels[c.TopologyKey]]++
			}
		}
		least := 1 << 30
		for _, count := range counts {
			least = min(least, count)
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			least = 0
		}
		self := 0
		if w.pod.Labels["app"] == c.LabelSelector.MatchLabels["app"] {
			self = 1
		}
		if counts[here]+self-least > int(c.MaxSkew) {
			return false
		}
	}
	return true
}

// counts reports whether a node is in a domain of a constraint.
func (w *scenario) counts(n *corev1.Node, c *corev1.TopologySpreadConstraint) bool {
	for _, each := range w.pod.Spec.TopologySpreadConstraints {
		if _, has := n.Labels[each.TopologyKey]; !has {
			return false
		}
	}
	return w.suits(n) && (c.NodeTaintsPolicy == nil || w.tolerates(n))
}

func (w *scenario) node(name string) *corev1.Node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (w *scenario) friendly(n *corev1.Node, placed []*corev1.Pod) bool {
	near := func(p *corev1.Pod, term corev1.PodAffinityTerm) bool {
		value, has := n.Labels[term.TopologyKey]
		other, hasToo := w.node(p.Spec.NodeName).Labels[term.TopologyKey]
		return has && hasToo && value == other
	}
	means := func(term corev1.PodAffinityTerm, p *corev1.Pod) bool {
		return p.Labels["app"] == term.LabelSelector.MatchLabels["app"]
	}
	for _, p := range placed {
		if p.Spec.Affinity != nil && p.Spec.Affinity.PodAntiAffinity != nil {
			for _, term := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				if means(term, w.pod) && near(p, term) {
					return false
				}
			}
		}
	}
	if w.pod.Spec.Affinity == nil {
		return true
	}
	if w.pod.Spec.Affinity.PodAntiAffinity != nil {
		for _, term := range w.pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			for _, p := range placed {
				if means(term, p) && near(p, term) {
					return false
				}
			}
		}
	}
	if w.pod.Spec.Affinity.PodAffinity == nil {
		return true
	}
	for _, term := range w.pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if _, has := n.Labels[term.TopologyKey]; !has {
			return false
		}
		some, close := false, false
		for _, p := range placed {
			if !means(term, p) {
				continue
			}
			if _, has := w.node(p.Spec.NodeName).Labels[term.TopologyKey]; has {
				some = true
			}
			close = close || near(p, term)
		}
		if !close && (some || !means(term, w.pod)) {
			return false
		}
	}
	return true
}

func (w *scenario) fit(t *rapid.T) int64 {
	m := NewModel()
	// Pods may arrive before their nodes.
	early := rapid.Bool().Draw(t, "pods first")
	if early {
		w.setPods(m)
	}
	for _, n := range w.nodes {
		m.SetNode(LeanNode(n))
	}
	if !early {
		w.setPods(m)
	}
	p, err := compilePod(w.pod)
	if err != nil {
		t.Fatal(err)
	}
	fit := m.Fit(p)
	if fit.Growth != 0 {
		t.Fatalf("growth without potential nodes: %+v", fit)
	}
	return fit.Replicas
}

func (w *scenario) setPods(m *Model) {
	for _, p := range w.pods {
		m.SetPod(LeanPod(p))
	}
}

func (w *scenario) describe() string {
	text := ""
	for _, n := range w.nodes {
		text += fmt.Sprintf("%s %v taints=%d cpu=%s\n", n.Name, n.Labels, len(n.Spec.Taints), n.Status.Allocatable.Cpu())
	}
	for _, p := range append(w.pods, w.pod) {
		text += fmt.Sprintf("pod %v on %q: cpu=%s selector=%v tolerations=%d ports=%d spread=%v affinity=%v\n", p.Labels, p.Spec.NodeName, p.Spec.Containers[0].Resources.Requests.Cpu(), p.Spec.NodeSelector, len(p.Spec.Tolerations), len(p.Spec.Containers[0].Ports), p.Spec.TopologySpreadConstraints, p.Spec.Affinity)
	}
	return text
}

// TestFitIsWhatCanBePlaced compares with an exhaustive search.
func TestFitIsWhatCanBePlaced(t *testing.T) {
	for name, allowed := range map[string]terms{"nodes": {}, "spread": {spread: 1}, "apart": {apart: 1}, "together": {together: 1}} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, allowed)
				if got, want := w.fit(t), int64(w.most()); got != want {
					t.Fatalf("capacity for %d replicas, %d can be placed:\n%s", got, want, w.describe())
				}
			})
		})
	}
}

// TestFitIsNeverTooMuch combines constraints. The result may then be below the maximum, never above.
func TestFitIsNeverTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, terms{spread: 2, apart: 1, together: 1})
		if got, most := w.fit(t), int64(w.most()); got > most {
			t.Fatalf("capacity for %d replicas, %d can be placed:\n%s", got, most, w.describe())
		}
	})
}
