package policies

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
)

// Policy is a compiled PropagationPolicy or ClusterPropagationPolicy. It is immutable.
type Policy struct {
	// Namespace is empty for a ClusterPropagationPolicy.
	Namespace, Name string
	// ID is the permanent ID, or the UID if there is none.
	ID string
	// OfService is set if the placement is that of a MultiClusterService, with its namespace, name and ID.
	OfService bool
	// Created is when the user created it, in seconds. Generation counts the changes of its spec.
	Created, Generation int64
	Spec                *policyv1alpha1.PropagationSpec
	// Settings are the annotations that bindings take over; see [Settings].
	Settings map[string]string

	priority int32
	selectors
	// Invalid are the errors of invalid selectors; they select nothing.
	Invalid []error
}

// String returns kind and name, for messages.
func (p *Policy) String() string {
	if p.OfService {
		return "MultiClusterService " + p.Namespace + "/" + p.Name
	}
	if p.Namespace == "" {
		return "ClusterPropagationPolicy " + p.Name
	}
	return "PropagationPolicy " + p.Namespace + "/" + p.Name
}

// Compile compiles a PropagationPolicy.
func Compile(policy *policyv1alpha1.PropagationPolicy) *Policy {
	return compile(policy.Namespace, &policy.ObjectMeta, policy.Labels[names.PropagationPolicyPermanentIDLabel], &policy.Spec)
}

// CompileCluster compiles a ClusterPropagationPolicy.
func CompileCluster(policy *policyv1alpha1.ClusterPropagationPolicy) *Policy {
	return compile("", &policy.ObjectMeta, policy.Labels[names.ClusterPropagationPolicyPermanentIDLabel], &policy.Spec)
}

// ForService returns the policy by which a MultiClusterService places its Service.
func ForService(namespace, name, id string, placement policyv1alpha1.Placement) *Policy {
	return &Policy{Namespace: namespace, Name: name, ID: id, OfService: true, Spec: &policyv1alpha1.PropagationSpec{Placement: placement, SchedulerName: defaultScheduler}}
}

// defaultScheduler is what the API server sets in policies that name no scheduler.
const defaultScheduler = "default-scheduler"

func compile(namespace string, meta *metav1.ObjectMeta, id string, spec *policyv1alpha1.PropagationSpec) *Policy {
	if id == "" {
		id = string(meta.UID)
	}
	p := &Policy{Namespace: namespace, Name: meta.Name, ID: id, Spec: spec, priority: ptr.Deref(spec.Priority, 0)}
	p.Created, p.Generation = origin(meta)
	for _, key := range Settings {
		if value := meta.Annotations[key]; value != "" {
			if p.Settings == nil {
				p.Settings = map[string]string{}
			}
			p.Settings[key] = value
		}
	}
	p.selectors, p.Invalid = compileSelectors(namespace, spec.ResourceSelectors)
	return p
}

// Settings are the annotations by which a policy says more than its spec can. Bindings have them, too.
var Settings = append([]string{names.FailBackAnnotation, names.SchedulingProfileAnnotation, names.DispatchingAnnotation}, entry.RuleKeys...)

// origin returns when the user created a policy, and its generation. A copy in a cell has those of its original in
// annotations.
func origin(meta *metav1.ObjectMeta) (created, generation int64) {
	created, generation = meta.CreationTimestamp.Unix(), meta.Generation
	if at, err := time.Parse(time.RFC3339, meta.Annotations[names.SourceCreatedAnnotation]); err == nil {
		created = at.Unix()
	}
	if n, err := strconv.ParseInt(meta.Annotations[names.SourceGenerationAnnotation], 10, 64); err == nil {
		generation = n
	}
	return created, generation
}

// Subject is the part of a template that policies match.
type Subject struct {
	schema.GroupVersionKind
	Namespace, Name string
	Labels          map[string]string
}

// SubjectOf returns the part of a template that policies match.
func SubjectOf(t *cell.Template) *Subject {
	return &Subject{GroupVersionKind: t.Kind.GroupVersionKind, Namespace: t.Namespace, Name: t.Name, Labels: t.Labels}
}

// narrowness is how precisely a selector matches a template; the more precise one wins.
type narrowness int8

const (
	selectsNothing narrowness = iota
	selectsKind
	selectsLabels
	selectsName
)

// selectors are compiled ResourceSelectors.
type selectors []selector

// compileSelectors compiles the selectors of a policy. Invalid ones select nothing.
func compileSelectors(policyNamespace string, specs []policyv1alpha1.ResourceSelector) (selectors, []error) {
	var compiled selectors
	var invalid []error
	for i := range specs {
		s, reaches, err := compileSelector(policyNamespace, &specs[i])
		if err != nil {
			invalid = append(invalid, fmt.Errorf("resourceSelectors[%d]: %w", i, err))
		} else if reaches {
			compiled = append(compiled, s)
		}
	}
	return compiled, invalid
}

// match returns how narrowly the selectors select a template.
func (s selectors) match(subject *Subject) narrowness {
	best := selectsNothing
	for i := range s {
		best = max(best, s[i].match(subject))
	}
	return best
}

// selector is a compiled ResourceSelector.
type selector struct {
	gvk             schema.GroupVersionKind
	namespace, name string // empty: any
	labels          labels.Selector
}

// compileSelector returns false for a selector that can match nothing: a PropagationPolicy selects in its own namespace
// only.
func compileSelector(policyNamespace string, spec *policyv1alpha1.ResourceSelector) (selector, bool, error) {
	gv, err := schema.ParseGroupVersion(spec.APIVersion)
	if err != nil {
		return selector{}, false, fmt.Errorf("apiVersion: %w", err)
	}
	s := selector{gvk: gv.WithKind(spec.Kind), namespace: spec.Namespace, name: spec.Name}
	if policyNamespace != "" {
		if spec.Namespace != "" && spec.Namespace != policyNamespace {
			return s, false, nil
		}
		s.namespace = policyNamespace
	}
	if spec.Name == "" && spec.LabelSelector != nil {
		if s.labels, err = metav1.LabelSelectorAsSelector(spec.LabelSelector); err != nil {
			return s, false, fmt.Errorf("labelSelector: %w", err)
		}
	}
	return s, true, nil
}

func (s *selector) match(subject *Subject) narrowness {
	switch {
	case s.gvk != subject.GroupVersionKind, s.namespace != "" && s.namespace != subject.Namespace:
		return selectsNothing
	case s.name != "":
		if s.name != subject.Name {
			return selectsNothing
		}
		return selectsName
	case s.labels != nil:
		if !s.labels.Matches(labels.Set(subject.Labels)) {
			return selectsNothing
		}
		return selectsLabels
	default:
		return selectsKind
	}
}

// Selects reports whether the policy selects a template. The nil policy selects none.
func (p *Policy) Selects(subject *Subject) bool {
	return p != nil && p.match(subject) != selectsNothing
}

// Scope is a set of templates: those of a kind, in one namespace or all, of one name or any.
type Scope struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// Scopes returns the scopes of the templates that the policy may select.
func (p *Policy) Scopes() []Scope {
	if p == nil {
		return nil
	}
	var scopes []Scope
	for i := range p.selectors {
		s := &p.selectors[i]
		if scope := (Scope{s.gvk, s.namespace, s.name}); !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// Lazy reports whether changes of the policy wait for the next change of a template.
func (p *Policy) Lazy() bool { return p.Spec.ActivationPreference == policyv1alpha1.LazyActivation }

// Preempts reports whether the policy preempts another, if preemption is enabled.
func (p *Policy) Preempts(other *Policy) bool {
	if p.Spec.Preemption != policyv1alpha1.PreemptAlways {
		return false
	}
	if p.Namespace != "" && other.Namespace == "" {
		return true // a policy of the namespace is above cluster policies
	}
	return (p.Namespace == "") == (other.Namespace == "") && p.priority > other.priority
}
