package clustercache

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/cellplane/cellplane/api/names"
)

// compiled is a compiled Filter.
type compiled struct {
	namespace string
	name      string // what metadata.name must be, unless empty
	owner     string
	labels    labels.Selector // nil selects all
	all       bool            // there are no requirements on fields
	// indexed, together and distinct are the requirements on such fields.
	indexed, together, distinct []requirement
	unequal                     []unequalKey
	// nothing is set if no object can match.
	nothing bool
}

// requirement is a requirement on the ith field of its sort.
type requirement struct {
	i     int
	value string
	equal bool
}

// unequalKey is the requirement that the name or the namespace differs from a value.
type unequalKey struct {
	name  bool
	value string
}

func (s *Store) compile(f Filter) (*compiled, error) {
	c := &compiled{namespace: f.Namespace, owner: f.Owner}
	if f.Labels != nil && !f.Labels.Empty() {
		c.labels = f.Labels
	}
	if f.Labels != nil {
		_, selectable := f.Labels.Requirements()
		c.nothing = !selectable
	}
	if f.Fields == nil || f.Fields.Empty() {
		c.all = true
		return c, nil
	}
	for _, r := range f.Fields.Requirements() {
		if err := s.require(c, r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (s *Store) require(c *compiled, r fields.Requirement) error {
	equal := r.Operator != selection.NotEquals
	switch {
	case r.Field == nameField && equal:
		c.nothing = c.nothing || r.Value == "" || c.name != "" && c.name != r.Value
		c.name = r.Value
		return nil
	case r.Field == namespaceField && equal:
		c.nothing = c.nothing || c.namespace != "" && c.namespace != r.Value || (r.Value == "") == s.kind.Namespaced
		c.namespace = r.Value
		return nil
	case r.Field == nameField || r.Field == namespaceField:
		c.unequal = append(c.unequal, unequalKey{r.Field == nameField, r.Value})
		return nil
	}
	field := s.fields.index(r.Field)
	if field < 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("field selectors on %q are not supported for %s", r.Field, s.kind.Resource))
	}
	if i := slices.Index(s.fields.indexed, field); i >= 0 {
		c.indexed = append(c.indexed, requirement{i, r.Value, equal})
	} else if i := slices.Index(s.fields.together, field); i >= 0 {
		c.together = append(c.together, requirement{i, r.Value, equal})
	} else {
		c.distinct = append(c.distinct, requirement{field, r.Value, equal})
	}
	return nil
}

// everything reports whether all objects, or all of a namespace, are selected.
func (c *compiled) everything() bool {
	return c.labels == nil && c.all && c.owner == "" && !c.nothing
}

// matcher checks entries against a filter. It caches which label sets match, so that it must not outlive the pin of its version.
type matcher struct {
	*compiled
	labelSets map[uint64]bool
}

// matches reports whether an entry matches, except for distinct fields. The caller holds the lock.
func (m *matcher) matches(s *Store, e *entry) bool {
	c := m.compiled
	k := s.keys.At(e.key)
	if c.namespace != "" && string(s.namespaces.Get(k.namespace)) != c.namespace || c.name != "" && string(s.nameOf(k)) != c.name {
		return false
	}
	if c.owner != "" && string(s.attributes.owners.Get(e.terms.owner)) != c.owner {
		return false
	}
	for _, r := range c.indexed {
		if (string(s.attributes.values[r.i].Get(e.terms.indexed[r.i])) == r.value) != r.equal {
			return false
		}
	}
	for _, r := range c.together {
		if (string(joined(s.attributes.fieldSets.Get(e.terms.fields), r.i)) == r.value) != r.equal {
			return false
		}
	}
	if len(c.unequal) > 0 && !c.keySelected(string(s.namespaces.Get(k.namespace)), string(s.nameOf(k))) {
		return false
	}
	return c.labels == nil || m.labelsMatch(s, e)
}

// keySelected checks the inequality requirements on name and namespace.
func (c *compiled) keySelected(namespace, name string) bool {
	for _, r := range c.unequal {
		if r.name && r.value == name || !r.name && r.value == namespace {
			return false
		}
	}
	return true
}

func (m *matcher) labelsMatch(s *Store, e *entry) bool {
	set := uint64(e.terms.labels)<<16 | uint64(e.terms.cluster)
	matches, known := m.labelSets[set]
	if !known {
		matches = m.labels.Matches(s.attributes.labelSet(&e.terms, s.clusterIDs[e.terms.cluster].name))
		if m.labelSets == nil {
			m.labelSets = map[uint64]bool{}
		}
		m.labelSets[set] = matches
	}
	return matches
}

// distinctMatch checks the requirements on distinct fields of an encoded object.
func (c *compiled) distinctMatch(plan *fieldPlan, raw []byte) (bool, error) {
	values, _, err := plan.values(nil, nil, raw)
	if err != nil {
		return false, err
	}
	for _, r := range c.distinct {
		if (string(values[r.i]) == r.value) != r.equal {
			return false, nil
		}
	}
	return true, nil
}

// labelSetsOf returns the label sets that satisfy a requirement, from the index, and how many keys they have; ok is false if the index
// cannot answer, or if there are too many.
func (s *Store) labelSetsOf(r labels.Requirement) (sets []uint32, keys int, ok bool) {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
	default:
		return nil, 0, false
	}
	if r.Key() == names.ClusterLabel {
		return nil, 0, false
	}
	few := true
	for _, value := range r.ValuesUnsorted() {
		label, known := s.attributes.labels.Lookup([]byte(r.Key() + separator + value))
		if !known {
			continue
		}
		s.attributes.setsByLabel.Ascend(label, nil, func(set uint32) bool {
			sets = append(sets, set)
			keys += s.attributes.labelSets.Refs(set)
			few = len(sets) <= maxLabelSets
			return few
		})
	}
	return sets, keys, few
}

// maxLabelSets is the largest number of label sets that a list looks up. An index does not help with a more common label.
const maxLabelSets = 4096

// clustersOf returns the members that satisfy a requirement on the virtual label, and how many objects they have; ok is false for a requirement on another label.
func (s *Store) clustersOf(r labels.Requirement) (ids []uint32, keys int, ok bool) {
	if r.Key() != names.ClusterLabel {
		return nil, 0, false
	}
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
	default:
		return nil, 0, false
	}
	for _, value := range r.ValuesUnsorted() {
		if c := s.clusters[value]; c != nil && !slices.Contains(ids, uint32(c.id)) {
			ids = append(ids, uint32(c.id))
			keys += c.objects
		}
	}
	return ids, keys, true
}
