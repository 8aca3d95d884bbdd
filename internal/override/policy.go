package override

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
)

// Reference identifies a policy. Without a namespace it is a ClusterOverridePolicy.
type Reference struct {
	Namespace string
	Name      string
}

// String returns kind and name of the policy, for messages.
func (r Reference) String() string {
	if r.Namespace == "" {
		return "ClusterOverridePolicy " + r.Name
	}
	return "OverridePolicy " + r.Namespace + "/" + r.Name
}

// Policy is a compiled OverridePolicy or ClusterOverridePolicy. It is immutable and safe for concurrent use.
type Policy struct {
	reference         Reference
	selectors         []selector
	selectsEverything bool
	rules             []rule
	mayChangeRights   bool // an administrator permits it to change what objects grant
	err               error
}

// rule is a compiled list of overriders and its clusters.
type rule struct {
	policy     Reference
	where      string // path of the rule in the policy, for messages
	target     affinity.Matcher
	operations []operation
	record     json.RawMessage // the rule's entry in the annotations of a Trace
}

// operation is one overrider. It modifies the object in place, and may leave it half modified when it fails.
type operation struct {
	where string
	apply func(obj map[string]any) error
}

// Compile compiles an OverridePolicy.
func Compile(policy *policyv1alpha1.OverridePolicy) *Policy {
	return compile(Reference{Namespace: policy.Namespace, Name: policy.Name}, &policy.Spec)
}

// CompileCluster compiles a ClusterOverridePolicy.
func CompileCluster(policy *policyv1alpha1.ClusterOverridePolicy) *Policy {
	compiled := compile(Reference{Name: policy.Name}, &policy.Spec)
	compiled.mayChangeRights = policy.Annotations[names.MayChangeRightsAnnotation] == "true"
	return compiled
}

// Err returns why the policy cannot be applied, or nil. Objects it selects fail with this error.
func (p *Policy) Err() error {
	if p.err != nil {
		return p.err
	}
	for i := range p.selectors {
		if err := p.selectors[i].err; err != nil {
			return err
		}
	}
	return nil
}

// Selects reports whether the policy selects the object, in any cluster. A nil Policy selects nothing: a creation,
// change or deletion of a policy affects an object if the old or the new Policy selects it.
func (p *Policy) Selects(obj *unstructured.Unstructured) bool {
	if p == nil {
		return false
	}
	key := keyOf(obj)
	if p.selectsEverything {
		return p.reference.Namespace == "" || p.reference.Namespace == key.namespace
	}
	for i := range p.selectors {
		if selector := &p.selectors[i]; selector.key.covers(key) && selector.matchesLabels(obj) {
			return true
		}
	}
	return false
}

func compile(reference Reference, spec *policyv1alpha1.OverrideSpec) *Policy {
	policy := &Policy{reference: reference, selectsEverything: len(spec.ResourceSelectors) == 0}
	for i := range spec.ResourceSelectors {
		selector, ok := compileSelector(reference, &spec.ResourceSelectors[i])
		if !ok {
			continue
		}
		if selector.err != nil {
			selector.err = fmt.Errorf("resourceSelectors[%d]: %w", i, selector.err)
		}
		policy.selectors = append(policy.selectors, selector)
	}

	rules, where := spec.OverrideRules, func(i int) string { return fmt.Sprintf("overrideRules[%d]", i) }
	if len(rules) == 0 {
		rules = []policyv1alpha1.RuleWithCluster{{TargetCluster: spec.TargetCluster, Overriders: spec.Overriders}}
		where = func(int) string { return "spec" }
	}
	for i := range rules {
		compiled, err := compileRule(reference, &rules[i])
		if err != nil {
			policy.err = fmt.Errorf("%s.%w", where(i), err)
			break
		}
		compiled.where = where(i)
		policy.rules = append(policy.rules, compiled)
	}
	return policy
}

func compileRule(reference Reference, spec *policyv1alpha1.RuleWithCluster) (rule, error) {
	target, err := affinity.Compile(spec.TargetCluster)
	if err != nil {
		return rule{}, fmt.Errorf("targetCluster: %w", err)
	}
	operations, err := compileOverriders(&spec.Overriders)
	if err != nil {
		return rule{}, err
	}
	record, err := json.Marshal(record{PolicyName: reference.Name, Overriders: spec.Overriders})
	if err != nil {
		return rule{}, fmt.Errorf("overriders: %w", err)
	}
	return rule{policy: reference, target: target, operations: operations, record: record}, nil
}

// compileOverriders defines the order of the kinds of overriders within a rule: plaintext, the most powerful, is last.
func compileOverriders(overriders *policyv1alpha1.Overriders) ([]operation, error) {
	var list operations
	for i := range overriders.ImageOverrider {
		apply, err := compileImage(&overriders.ImageOverrider[i])
		list.add("imageOverrider", i, apply, err)
	}
	for i := range overriders.CommandOverrider {
		apply, err := compileWords("command", &overriders.CommandOverrider[i])
		list.add("commandOverrider", i, apply, err)
	}
	for i := range overriders.ArgsOverrider {
		apply, err := compileWords("args", &overriders.ArgsOverrider[i])
		list.add("argsOverrider", i, apply, err)
	}
	for i := range overriders.LabelsOverrider {
		apply, err := compileMetadata("labels", &overriders.LabelsOverrider[i])
		list.add("labelsOverrider", i, apply, err)
	}
	for i := range overriders.AnnotationsOverrider {
		apply, err := compileMetadata("annotations", &overriders.AnnotationsOverrider[i])
		list.add("annotationsOverrider", i, apply, err)
	}
	for i := range overriders.FieldOverrider {
		apply, err := compileField(&overriders.FieldOverrider[i])
		list.add("fieldOverrider", i, apply, err)
	}
	for i := range overriders.Plaintext {
		apply, err := compilePlaintext(&overriders.Plaintext[i])
		list.add("plaintext", i, apply, err)
	}
	return list.operations, list.err
}

// operations collects compiled overriders and the first error among them.
type operations struct {
	operations []operation
	err        error
}

func (o *operations) add(kind string, i int, apply func(map[string]any) error, err error) {
	where := fmt.Sprintf("overriders.%s[%d]", kind, i)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", where, err)
	}
	o.operations = append(o.operations, operation{where, apply})
}

// priority is how narrowly a selector matches an object.
type priority int8

const (
	matchesAll priority = iota
	matchesLabels
	matchesName
)

// selector is a compiled ResourceSelector.
type selector struct {
	key      selectorKey
	priority priority
	labels   labels.Selector // nil matches all
	err      error           // the label selector is invalid; it matches all
}

// selectorKey is what a selector names. An empty namespace or name means any.
type selectorKey struct {
	apiVersion, kind, namespace, name string
}

func keyOf(obj *unstructured.Unstructured) selectorKey {
	return selectorKey{obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName()}
}

func (k selectorKey) covers(obj selectorKey) bool {
	return k.apiVersion == obj.apiVersion && k.kind == obj.kind &&
		(k.namespace == "" || k.namespace == obj.namespace) && (k.name == "" || k.name == obj.name)
}

// compileSelector returns false for a selector that can never match: an OverridePolicy selects in its own namespace
// only.
func compileSelector(policy Reference, spec *policyv1alpha1.ResourceSelector) (selector, bool) {
	if policy.Namespace != "" && spec.Namespace != "" && spec.Namespace != policy.Namespace {
		return selector{}, false
	}
	compiled := selector{key: selectorKey{spec.APIVersion, spec.Kind, spec.Namespace, spec.Name}}
	if policy.Namespace != "" {
		compiled.key.namespace = policy.Namespace
	}
	switch {
	case spec.Name != "":
		compiled.priority = matchesName
	case spec.LabelSelector != nil:
		compiled.priority = matchesLabels
		compiled.labels, compiled.err = metav1.LabelSelectorAsSelector(spec.LabelSelector)
	}
	return compiled, true
}

func (s *selector) matchesLabels(obj *unstructured.Unstructured) bool {
	if s.labels == nil || s.err != nil {
		return true
	}
	metadata, _ := obj.Object["metadata"].(map[string]any)
	raw, _ := metadata["labels"].(map[string]any)
	return s.labels.Matches(rawLabels(raw))
}

// rawLabels lets selectors read the labels of an unstructured object without copying them.
type rawLabels map[string]any

// Has implements labels.Labels.
func (l rawLabels) Has(key string) bool {
	_, ok := l[key]
	return ok
}

// Get implements labels.Labels.
func (l rawLabels) Get(key string) string {
	value, _ := l[key].(string)
	return value
}

// Lookup implements labels.Labels.
func (l rawLabels) Lookup(key string) (string, bool) {
	value, ok := l[key].(string)
	return value, ok
}
