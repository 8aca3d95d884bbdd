package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
)

// StorageClass is a storage class whose volumes not all nodes can reach. It is part of a summary.
type StorageClass struct {
	// Name of the class.
	Name string
	// Default means that claims without a class use this one.
	Default bool
	// Reach selects the nodes.
	Reach *corev1.NodeSelector
}

// storageClass is a StorageClass in a model.
type storageClass struct {
	volume
	isDefault bool
	created   metav1.Time
}

// defaultAnnotation marks the default storage class.
const defaultAnnotation = "storageclass.kubernetes.io/is-default-class"

// SetStorageClass adds or updates a storage class.
func (m *Model) SetStorageClass(c *storagev1.StorageClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := storageClass{isDefault: c.Annotations[defaultAnnotation] == "true", created: c.CreationTimestamp}
	if reach := topologyReach(c.AllowedTopologies); reach != nil {
		known.volume = newVolume(c.Name, reach, "")
	}
	m.storage[c.Name] = known
	m.version++
}

// RemoveStorageClass removes a storage class.
func (m *Model) RemoveStorageClass(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.storage, name)
	m.version++
}

// KeepStorageClasses removes all other storage classes.
func (m *Model) KeepStorageClasses(kept map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.storage, func(name string, _ storageClass) bool { return !kept[name] })
	m.version++
}

// AddStorageClass adds a storage class from a summary.
func (m *Model) AddStorageClass(c StorageClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storage[c.Name] = storageClass{volume: newVolume(c.Name, c.Reach, ""), isDefault: c.Default}
	m.version++
}

// topologyReach returns a selector of the nodes of a topology; nil means all.
func topologyReach(topologies []corev1.TopologySelectorTerm) *corev1.NodeSelector {
	if len(topologies) == 0 {
		return nil
	}
	reach := &corev1.NodeSelector{}
	for i := range topologies {
		var term corev1.NodeSelectorTerm
		for _, r := range topologies[i].MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOpIn, Values: r.Values})
		}
		reach.NodeSelectorTerms = append(reach.NodeSelectorTerms, term)
	}
	return reach
}

// maxStorageClasses bounds the storage classes in a summary. Volumes of others count as reachable from everywhere.
const maxStorageClasses = 64

// SummarizeStorage returns the storage classes whose volumes not all nodes can reach, sorted by name.
func (m *Model) SummarizeStorage() []StorageClass {
	m.mu.RLock()
	defer m.mu.RUnlock()
	standard := m.defaultStorage()
	var summary []StorageClass
	for _, name := range m.summarizedStorage() {
		summary = append(summary, StorageClass{Name: name, Default: name == standard, Reach: m.storage[name].reach})
	}
	return summary
}

// summarizedStorage returns the names of the storage classes in a summary. The default class is always included.
func (m *Model) summarizedStorage() []string {
	standard := m.defaultStorage()
	named := map[string]bool{}
	var summarized []string
	for _, name := range slices.SortedFunc(maps.Keys(m.storage), func(a, b string) int {
		return cmp.Or(-cmp.Compare(asInt(a == standard), asInt(b == standard)), strings.Compare(a, b))
	}) {
		if m.storage[name].reach == nil || len(summarized) == maxStorageClasses {
			continue
		}
		more := slices.DeleteFunc(namesIn(m.storage[name].reach), func(node string) bool { return named[node] })
		if len(named)+len(more) > maxNamed {
			continue
		}
		summarized = append(summarized, name)
		for _, node := range more {
			named[node] = true
		}
	}
	slices.Sort(summarized)
	return summarized
}

// defaultStorage returns the default class: the youngest of several, as the API server does.
func (m *Model) defaultStorage() string {
	found := ""
	for name, c := range m.storage {
		if !c.isDefault {
			continue
		}
		if was := m.storage[found]; found == "" || was.created.Before(&c.created) || was.created.Equal(&c.created) && name < found {
			found = name
		}
	}
	return found
}

// ownClaim is a claim that each replica has for itself.
type ownClaim struct {
	// prefix of the claim names, which end in the ordinal; empty for ephemeral claims.
	prefix string
	// class is empty for volumes without a provisioner; nil means the default.
	class *string
}

func ownClaimOf(prefix string, claim *corev1.PersistentVolumeClaim) ownClaim {
	s := ownClaim{prefix: prefix}
	if volumehelper.PersistentVolumeClaimHasClass(claim) {
		name := volumehelper.GetPersistentVolumeClaimClass(claim)
		s.class = &name
	}
	return s
}

// newVolumes returns where volumes for a new claim can be created.
func (m *Model) newVolumes(s ownClaim) []volume {
	var name string
	if s.class != nil {
		name = *s.class
	} else {
		name = m.defaultStorage()
	}
	if c, known := m.storage[name]; known && c.reach != nil {
		return []volume{c.volume}
	}
	return nil
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
