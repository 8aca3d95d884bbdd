package simulate

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Volumes is a set of claims whose volumes are reachable from the same nodes only. It is part of a summary.
type Volumes struct {
	// Reach selects the nodes.
	Reach *corev1.NodeSelector
	// Mode is the only access mode of the volumes; empty if there are several.
	Mode corev1.PersistentVolumeAccessMode
	// Claims as namespace/name.
	Claims []string
}

// volume is where the volume of a claim is reachable.
type volume struct {
	name     string
	reach    *corev1.NodeSelector
	mode     corev1.PersistentVolumeAccessMode
	affinity *nodeaffinity.LazyErrorNodeSelector
}

// exclusive reports whether only one pod may use the volume.
func (v *volume) exclusive() bool { return v.mode == corev1.ReadWriteOncePod }

// oneNode reports whether only pods of one node may use the volume.
func (v *volume) oneNode() bool { return v.mode == corev1.ReadWriteOnce }

func newVolume(name string, reach *corev1.NodeSelector, mode corev1.PersistentVolumeAccessMode) volume {
	return volume{name: name, reach: reach, mode: mode, affinity: nodeaffinity.NewLazyErrorNodeSelector(reach)}
}

// SetVolume adds or updates a volume. Pods with its claim run only where the volume is reachable. Volumes that are
// reachable from everywhere are not stored.
func (m *Model) SetVolume(v *corev1.PersistentVolume) {
	reach := reachOf(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	claim := ""
	if reach != nil && v.Spec.ClaimRef != nil && v.Status.Phase == corev1.VolumeBound {
		claim = v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	}
	if was, known := m.bound[v.Name]; known && was != claim {
		m.unbind(v.Name)
	}
	if claim == "" {
		return
	}
	mode := corev1.PersistentVolumeAccessMode("")
	if len(v.Spec.AccessModes) == 1 {
		mode = v.Spec.AccessModes[0]
	}
	m.volumes[claim], m.bound[v.Name] = newVolume(v.Name, reach, mode), claim
	m.version++
}

// RemoveVolume removes a volume.
func (m *Model) RemoveVolume(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unbind(name)
}

// KeepVolumes removes all other volumes.
func (m *Model) KeepVolumes(kept map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.bound {
		if !kept[name] {
			m.unbind(name)
		}
	}
}

func (m *Model) unbind(name string) {
	claim, known := m.bound[name]
	if !known {
		return
	}
	delete(m.bound, name)
	if m.volumes[claim].name == name {
		delete(m.volumes, claim)
	}
	m.version++
}

// AddVolumes adds claims from a summary.
func (m *Model) AddVolumes(v Volumes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	described := newVolume("", v.Reach, v.Mode)
	for _, claim := range v.Claims {
		m.volumes[claim] = described
	}
	m.version++
}

// topologyLabels maps labels of volumes to labels of nodes.
var topologyLabels = map[string]string{
	corev1.LabelTopologyZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone,
	corev1.LabelTopologyRegion: corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
}

// zoneSeparator separates the zones of a volume.
const zoneSeparator = "__"

// reachOf returns a selector of the nodes that reach a volume, as kube-scheduler does: by its node affinity, and by
// its zone and region labels. Nil means all nodes.
func reachOf(v *corev1.PersistentVolume) *corev1.NodeSelector {
	var terms []corev1.NodeSelectorTerm
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		terms = v.Spec.NodeAffinity.Required.NodeSelectorTerms
	}
	var inside []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(topologyLabels)) {
		if value := v.Labels[key]; value != "" {
			inside = append(inside, corev1.NodeSelectorRequirement{
				Key: topologyLabels[key], Operator: corev1.NodeSelectorOpIn, Values: strings.Split(value, zoneSeparator),
			})
		}
	}
	if len(inside) == 0 {
		if len(terms) == 0 {
			return nil
		}
		return &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
	nowhere := []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpDoesNotExist},
		{Key: corev1.LabelTopologyRegion, Operator: corev1.NodeSelectorOpDoesNotExist},
	}
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{}}
	}
	reach := &corev1.NodeSelector{}
	for i := range terms {
		for _, also := range [][]corev1.NodeSelectorRequirement{inside, nowhere} {
			reach.NodeSelectorTerms = append(reach.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchFields: terms[i].MatchFields, MatchExpressions: slices.Concat(terms[i].MatchExpressions, also),
			})
		}
	}
	return reach
}

// Bounds of a summary. Volumes of claims beyond them count as reachable from everywhere.
const (
	maxClaims = 1024
	maxNamed  = 128
)

// SummarizeVolumes returns the claims whose volumes not all nodes reach, in a fixed order.
func (m *Model) SummarizeVolumes() []Volumes {
	m.mu.RLock()
	defer m.mu.RUnlock()
	claims, _ := m.summarizedVolumes()
	groups := map[string]*Volumes{}
	for _, claim := range claims {
		v := m.volumes[claim]
		text, err := json.Marshal([]any{v.reach, v.mode})
		if err != nil {
			continue
		}
		key := string(text)
		if groups[key] == nil {
			groups[key] = &Volumes{Reach: v.reach, Mode: v.mode}
		}
		groups[key].Claims = append(groups[key].Claims, claim)
	}
	var summary []Volumes
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		summary = append(summary, *groups[key])
	}
	return summary
}

// summarizedVolumes returns the claims in a summary, and the nodes named by their volumes or by storage classes.
func (m *Model) summarizedVolumes() (claims []string, named map[string]bool) {
	named = map[string]bool{}
	for _, name := range m.summarizedStorage() {
		for _, node := range namesIn(m.storage[name].reach) {
			named[node] = true
		}
	}
	for _, claim := range slices.Sorted(maps.Keys(m.volumes)) {
		more := namesIn(m.volumes[claim].reach)
		more = slices.DeleteFunc(more, func(name string) bool { return named[name] })
		if len(claims) == maxClaims {
			break
		}
		if len(named)+len(more) > maxNamed {
			continue
		}
		claims = append(claims, claim)
		for _, name := range more {
			named[name] = true
		}
	}
	return claims, named
}

// namesIn returns the node names in a selector, without duplicates.
func namesIn(selector *corev1.NodeSelector) []string {
	var found []string
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		for _, r := range term.MatchExpressions {
			if r.Key == corev1.LabelHostname {
				found = append(found, r.Values...)
			}
		}
		for _, r := range term.MatchFields {
			found = append(found, r.Values...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// volumesOf returns where the volumes of a pod's claims are or can be created.
func (m *Model) volumesOf(p *Pod) []volume {
	found := m.sharedVolumes(p)
	for _, own := range p.own {
		found = append(found, m.newVolumes(own)...)
	}
	return found
}

// sharedVolumes returns the known volumes of the claims in a pod template.
func (m *Model) sharedVolumes(p *Pod) []volume {
	var found []volume
	for _, claim := range p.claims {
		if v, known := m.volumes[p.namespace+"/"+claim]; known {
			found = append(found, v)
		}
	}
	return found
}

// nameOf returns the name of a node. A node from a summary has none, unless it is a class of its own.
func (n *node) nameOf(c *class) string { return cmp.Or(n.name, c.Labels[corev1.LabelHostname]) }
