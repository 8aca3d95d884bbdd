package policies

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Index indexes policies. It is safe for concurrent use.
type Index struct {
	mu   sync.RWMutex
	byID map[string]*Policy
	// A policy of the namespace always wins over a cluster policy, so they are indexed separately.
	namespaced, clusterWide scopeIndex
}

type reference struct{ namespace, name string }

// scopeIndex indexes policies by what their selectors name. A selector without namespace or name is under "".
type scopeIndex struct {
	policies  map[reference]*Policy
	selectors map[Scope]map[*Policy]struct{}
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	newScopeIndex := func() scopeIndex {
		return scopeIndex{policies: map[reference]*Policy{}, selectors: map[Scope]map[*Policy]struct{}{}}
	}
	return &Index{byID: map[string]*Policy{}, namespaced: newScopeIndex(), clusterWide: newScopeIndex()}
}

func (ix *Index) scopeIndex(namespace string) *scopeIndex {
	if namespace == "" {
		return &ix.clusterWide
	}
	return &ix.namespaced
}

// Set adds a policy and returns the policy of the same name that it replaces.
func (ix *Index) Set(policy *Policy) (old *Policy) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s := ix.scopeIndex(policy.Namespace)
	old = ix.take(s, reference{policy.Namespace, policy.Name})
	s.policies[reference{policy.Namespace, policy.Name}] = policy
	ix.byID[policy.ID] = policy
	for _, scope := range policy.Scopes() {
		if s.selectors[scope] == nil {
			s.selectors[scope] = map[*Policy]struct{}{}
		}
		s.selectors[scope][policy] = struct{}{}
	}
	return old
}

// Unset removes a policy and returns it; without a namespace it is a ClusterPropagationPolicy.
func (ix *Index) Unset(namespace, name string) (old *Policy) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.take(ix.scopeIndex(namespace), reference{namespace, name})
}

func (ix *Index) take(s *scopeIndex, ref reference) *Policy {
	old := s.policies[ref]
	if old == nil {
		return nil
	}
	delete(s.policies, ref)
	if ix.byID[old.ID] == old {
		delete(ix.byID, old.ID)
	}
	for _, scope := range old.Scopes() {
		delete(s.selectors[scope], old)
		if len(s.selectors[scope]) == 0 {
			delete(s.selectors, scope)
		}
	}
	return old
}

// ByID returns the policy with a permanent ID, nil if there is none.
func (ix *Index) ByID(id string) *Policy {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.byID[id]
}

// Options of a choice.
type Options struct {
	// ClaimedBy and ClusterClaimedBy are the permanent IDs on the template.
	ClaimedBy, ClusterClaimedBy string
	// Preemption lets policies that ask for it take templates from others.
	Preemption bool
}

// Choose returns the policy of a template and, if it preempts another, that one. A policy that has claimed the template
// and still selects it keeps it; otherwise the best policy of the namespace comes before the best cluster policy. It
// returns nil if no policy selects the template.
func (ix *Index) Choose(subject *Subject, options Options) (chosen, preempted *Policy) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if owner := ix.owner(subject, options); owner != nil {
		if options.Preemption {
			if taker := ix.preemptor(subject, owner); taker != nil {
				return taker, owner
			}
		}
		return owner, nil
	}
	if best := ix.namespaced.best(subject, nil); best != nil {
		return best, nil
	}
	return ix.clusterWide.best(subject, nil), nil
}

// owner returns the policy that claims the template and still selects it.
func (ix *Index) owner(subject *Subject, options Options) *Policy {
	for _, id := range []string{options.ClaimedBy, options.ClusterClaimedBy} {
		if policy := ix.byID[id]; id != "" && policy.Selects(subject) {
			return policy
		}
	}
	return nil
}

func (ix *Index) preemptor(subject *Subject, owner *Policy) *Policy {
	allowed := func(p *Policy) bool { return p != owner && p.Preempts(owner) }
	if taker := ix.namespaced.best(subject, allowed); taker != nil {
		return taker
	}
	return ix.clusterWide.best(subject, allowed)
}

// best returns the best of the policies that select a template: by priority, then narrowness, then name.
func (s *scopeIndex) best(subject *Subject, allowed func(*Policy) bool) *Policy {
	var best *Policy
	var bestMatch narrowness
	for _, scope := range scopesOf(subject) {
		for policy := range s.selectors[scope] {
			if allowed != nil && !allowed(policy) {
				continue
			}
			match := policy.match(subject)
			if match == selectsNothing {
				continue
			}
			if best == nil || better(policy, match, best, bestMatch) {
				best, bestMatch = policy, match
			}
		}
	}
	return best
}

func better(a *Policy, matchA narrowness, b *Policy, matchB narrowness) bool {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(matchA, matchB), cmp.Compare(b.Name, a.Name)) > 0
}

// scopesOf returns the scopes under which policies that select a template are indexed.
func scopesOf(subject *Subject) []Scope {
	scope := func(gvk schema.GroupVersionKind, namespace, name string) Scope { return Scope{gvk, namespace, name} }
	gvk := subject.GroupVersionKind
	scopes := []Scope{scope(gvk, "", subject.Name), scope(gvk, "", "")}
	if subject.Namespace != "" {
		scopes = append(scopes, scope(gvk, subject.Namespace, subject.Name), scope(gvk, subject.Namespace, ""))
	}
	return scopes
}
