package simulate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// volume is where a claim's volume can be reached.
type volume struct {
	affinity *nodeaffinity.LazyErrorNodeSelector // nil means everywhere
	// exclusive tells that only one pod at a time may use it.
	exclusive bool
	// oneNode tells that only the pods of one node at a time may use it.
	oneNode bool
}

// SetVolume takes over a volume that is bound to a claim: pods with the claim run only where the volume is.
func (m *Model) SetVolume(v *corev1.PersistentVolume) {
	if v.Spec.ClaimRef == nil {
		return
	}
	bound := volume{exclusive: onlyMode(v, corev1.ReadWriteOncePod), oneNode: onlyMode(v, corev1.ReadWriteOnce)}
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		bound.affinity = nodeaffinity.NewLazyErrorNodeSelector(v.Spec.NodeAffinity.Required)
	} else if zone := v.Labels[corev1.LabelTopologyZone]; zone != "" {
		bound.affinity = nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name] = bound
	m.version++
}

// RemoveVolume forgets a volume.
func (m *Model) RemoveVolume(v *corev1.PersistentVolume) {
	if v.Spec.ClaimRef == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name)
	m.version++
}

func onlyMode(v *corev1.PersistentVolume, mode corev1.PersistentVolumeAccessMode) bool {
	return len(v.Spec.AccessModes) == 1 && v.Spec.AccessModes[0] == mode
}

// volumesOf returns the known volumes of a pod's claims.
func (m *Model) volumesOf(p *Pod) []volume {
	var found []volume
	for _, claim := range p.claims {
		if v, known := m.volumes[p.namespace+"/"+claim]; known {
			found = append(found, v)
		}
	}
	return found
}
