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

// StorageClass is a class of volumes that not all nodes can reach, wherever in its topology a volume is made. It is what
// a cluster tells others of its storage.
type StorageClass struct {
	// Name of the class.
	Name string
	// Default tells that claims which name no class mean this one.
	Default bool
	// Reach selects the nodes.
	Reach *corev1.NodeSelector
}

// storageClass is a StorageClass in use.
type storageClass struct {
	volume
	isDefault bool
	created   metav1.Time
}

// defaultAnnotation of a storage class says whether claims without a class mean it.
const defaultAnnotation = "storageclass.kubernetes.io/is-default-class"

// SetStorageClass takes over a storage class as it is now.
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

// RemoveStorageClass forgets a storage class.
func (m *Model) RemoveStorageClass(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.storage, name)
	m.version++
}

// KeepStorageClasses forgets all storage classes but some.
func (m *Model) KeepStorageClasses(kept map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.storage, func(name string, _ storageClass) bool { return !kept[name] })
	m.version++
}

// AddStorageClass adds a storage class of which a summary tells.
func (m *Model) AddStorageClass(c StorageClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storage[c.Name] = storageClass{volume: newVolume(c.Name, c.Reach, ""), isDefault: c.Default}
	m.version++
}

// topologyReach selects the nodes that a topology consists of; nil means all of them.
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

// mostStorageClasses is of how many storage classes a summary tells. Those beyond count as if their volumes could be
// reached from everywhere.
const mostStorageClasses = 64

// SummarizeStorage returns the storage classes whose volumes cannot be reached from everywhere, in the order of their
// names.
func (m *Model) SummarizeStorage() []StorageClass {
	m.mu.RLock()
	defer m.mu.RUnlock()
	standard := m.defaultStorage()
	var summary []StorageClass
	for _, name := range m.toldStorage() {
		summary = append(summary, StorageClass{Name: name, Default: name == standard, Reach: m.storage[name].reach})
	}
	return summary
}

// toldStorage returns the storage classes that a summary tells of: the default first if there are too many.
func (m *Model) toldStorage() []string {
	standard := m.defaultStorage()
	named := map[string]bool{}
	var told []string
	for _, name := range slices.SortedFunc(maps.Keys(m.storage), func(a, b string) int {
		return cmp.Or(-cmp.Compare(asInt(a == standard), asInt(b == standard)), strings.Compare(a, b))
	}) {
		if m.storage[name].reach == nil || len(told) == mostStorageClasses {
			continue
		}
		more := slices.DeleteFunc(namesIn(m.storage[name].reach), func(node string) bool { return named[node] })
		if len(named)+len(more) > mostNamed {
			continue
		}
		told = append(told, name)
		for _, node := range more {
			named[node] = true
		}
	}
	slices.Sort(told)
	return told
}

// defaultStorage names the class that claims without one get: of several the youngest, as the API server has it.
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

// ownClaim is a claim that each replica of a pod has for itself.
type ownClaim struct {
	// prefix of the claims' names, which end in the number of the replica; empty for claims that come and go with their
	// pods.
	prefix string
	// class is empty for volumes that nobody provides, and nil means the default.
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

// newVolumes returns where the volumes can be that are yet to be made for a claim.
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
