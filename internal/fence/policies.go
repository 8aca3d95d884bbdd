package fence

import (
	"cmp"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Messages of refusals begin with one of these, after the API server's own prefix. Gateways look for them.
const (
	// StaleEpoch refuses a request that was routed by an earlier topology.
	StaleEpoch = "cellplane: stale epoch"
	// Absent refuses to create an object that belongs in another cell.
	Absent = "cellplane: absent here"
	// Frozen refuses to change an object that is being moved to another cell.
	Frozen = "cellplane: frozen"
	// Durable refuses a write to an object with the annotation names.DurabilityAnnotation, unless the gateway knows of it. DurabilityIn
	// returns what the annotation asks for.
	Durable = "cellplane: durability "
	// Reserved refuses to change what only the hub manager may change.
	Reserved = "cellplane: reserved"
)

// Mover is the hub manager's user name in a cell. It may change frozen objects.
const Mover = "system:cellplane:hub-manager"

const (
	// leaseName and leaseNamespace are where a cell keeps its floor. Every API server has this namespace from the start.
	leaseName      = "cellplane-fence"
	leaseNamespace = metav1.NamespaceSystem
	// floorAnnotation is the lowest epoch that the cell accepts.
	floorAnnotation = names.EpochExtra
	// termAnnotation is the term of the leader that has last closed or reopened the cell.
	termAnnotation = "cellplane.io/term"
)

// Fragments of CEL expressions.
var (
	throughGateway = fmt.Sprintf("(has(request.userInfo.groups) && '%s' in request.userInfo.groups)", fleet.AuthorizedGroup)
	isMover        = fmt.Sprintf("(request.userInfo.username == '%s' && !%s)", Mover, throughGateway)
	hasExtra       = "(has(request.userInfo.extra) && '%s' in request.userInfo.extra)"
	hasEpoch       = fmt.Sprintf(hasExtra, names.EpochExtra)
	existingOnly   = fmt.Sprintf("(%s && 'true' in request.userInfo.extra['%s'])", fmt.Sprintf(hasExtra, names.ExistingExtra), names.ExistingExtra)
	// pinned is whether an Eviction names the version of the pod that it evicts.
	pinned         = "(has(object.deleteOptions) && has(object.deleteOptions.preconditions) && has(object.deleteOptions.preconditions.resourceVersion) && object.deleteOptions.preconditions.resourceVersion != '')"
	knowsDurable   = fmt.Sprintf(hasExtra, names.DurabilityExtra)
	asksDurability = fmt.Sprintf("(%%[1]s != null && has(%%[1]s.metadata) && has(%%[1]s.metadata.annotations) && '%s' in %%[1]s.metadata.annotations)", names.DurabilityAnnotation)
	durabilityIs   = fmt.Sprintf("%%[1]s.metadata.annotations['%s']", names.DurabilityAnnotation)
	marked         = fmt.Sprintf("(%%[1]s != null && has(%%[1]s.metadata) && has(%%[1]s.metadata.labels) && '%s' in %%[1]s.metadata.labels)", names.RebalanceStatusLabel)
)

// beneath is whether a request is for one of these subresources.
func beneath(subresources ...string) string {
	return fmt.Sprintf("(has(request.subResource) && request.subResource in ['%s'])", strings.Join(subresources, "', '"))
}

// of is whether a request is for a resource.
func of(group, resource string) string {
	return fmt.Sprintf("(request.resource.group == '%s' && request.resource.resource == '%s')", group, resource)
}

// writesFloor is whether a request writes the Lease with the floor. The request to delete a collection does not name its objects.
var writesFloor = fmt.Sprintf("(%s && request.namespace == '%s' && ((has(request.name) && request.name == '%s') || (oldObject != null && oldObject.metadata.name == '%[3]s')))",
	of("coordination.k8s.io", "leases"), leaseNamespace, leaseName)

// policy is one of the fence's policies. An API server converts the objects of a request once for the condition of each policy whose constraints
// it meets, and three times more if it meets the condition, which costs more than all expressions. So there are few policies, their
// constraints are narrow, and only what they refuse meets their condition.
type policy struct {
	name string
	// match selects requests cheaply, when selects among those, and rules are what the rest must fulfil.
	match  *apply.MatchResourcesApplyConfiguration
	when   string
	rules  []rule
	params bool
}

// rule has a message, or a CEL expression for one.
type rule struct {
	expression        string
	message           string
	messageExpression string
	// reason is that of the refusal; Forbidden if it is empty.
	reason metav1.StatusReason
}

func policies() []policy {
	return []policy{
		{
			name:   "cellplane-gateway",
			match:  writes("*", "*/*"),
			when:   throughGateway,
			rules:  append(routingRules(), durabilityRules()...),
			params: true,
		},
		{
			name: "cellplane-freeze",
			match: writes("*", "*/*").WithObjectSelector(applymeta.LabelSelector().WithMatchExpressions(
				applymeta.LabelSelectorRequirement().WithKey(names.RebalanceStatusLabel).WithOperator(metav1.LabelSelectorOpExists))),
			when: "!" + isMover,
			rules: []rule{
				{expression: "!" + fmt.Sprintf(marked, "oldObject"), message: Frozen + ", the object is being moved to another cell"},
				{expression: fmt.Sprintf(marked, "oldObject") + " || !" + fmt.Sprintf(marked, "object"), message: Reserved + ", only the hub manager sets the label " + names.RebalanceStatusLabel},
			},
		},
		{
			name:  "cellplane-reserved",
			match: writes("coordination.k8s.io", "leases").WithResourceRules(changes("", "bindings"), changes("*", "*/scale", "*/binding", "*/eviction")),
			when:  "!" + isMover,
			rules: []rule{
				{expression: "!" + writesFloor, message: Reserved + ", only the hub manager changes the fence"},
				{expression: fmt.Sprintf("!(%s || %s) || %s", beneath("scale", "binding"), of("", "bindings"), throughGateway),
					message: Reserved + ", objects are scaled and bound through a gateway, which knows whether they are being moved"},
				{expression: fmt.Sprintf("!%s || (%s && %s)", beneath("eviction"), throughGateway, pinned),
					message: Reserved + ", pods are evicted through a gateway, which knows whether they are being moved, and in one version only"},
			},
		},
	}
}

// obsolete are policies of earlier versions. Those above have their rules.
var obsolete = []string{"cellplane-epoch", "cellplane-existing-only", "cellplane-durability", "cellplane-frozen"}

// routingRules refuse what was routed by an earlier topology, and what must not create an object here.
func routingRules() []rule {
	return []rule{
		{
			expression:        fmt.Sprintf("%s && request.userInfo.extra['%s'].all(e, int(e) >= int(params.metadata.annotations['%s']))", hasEpoch, names.EpochExtra, floorAnnotation),
			messageExpression: fmt.Sprintf("'%s, this cell accepts ' + params.metadata.annotations['%s'] + ' and later'", StaleEpoch, floorAnnotation),
		},
		{expression: fmt.Sprintf("!%s || request.operation != 'CREATE'", existingOnly), message: Absent + ", new objects of this name are created in another cell"},
		{expression: fmt.Sprintf("!%s || !%s", existingOnly, beneath("scale")), message: Frozen + ", the object can be scaled once it has moved"},
	}
}

// durabilityRules refuse wrong values of the annotation, and writes of gateways that do not know that the object has it: in its stored
// or in its new form. The stricter value comes first.
func durabilityRules() []rule {
	asks, strict := func(object string) string { return fmt.Sprintf(asksDurability, object) }, func(object string) string {
		return fmt.Sprintf("(%s && %s != '%s')", fmt.Sprintf(asksDurability, object), fmt.Sprintf(durabilityIs, object), names.DurabilityReplicatedPreferred)
	}
	value := fmt.Sprintf(durabilityIs, "object")
	return []rule{
		{
			expression: fmt.Sprintf("!%s || %s in ['%s', '%s'] || (%s && %s == %s)", asks("object"), value, names.DurabilityReplicated, names.DurabilityReplicatedPreferred,
				asks("oldObject"), fmt.Sprintf(durabilityIs, "oldObject"), value),
			messageExpression: fmt.Sprintf(`%s ? 'the annotation %s is "' + %s + '"; use "%s" or "%s", or remove it' : ''`, asks("object"), names.DurabilityAnnotation, value,
				names.DurabilityReplicated, names.DurabilityReplicatedPreferred),
			reason: metav1.StatusReasonInvalid,
		},
		{expression: fmt.Sprintf("%s || !(%s || %s)", knowsDurable, strict("object"), strict("oldObject")), message: Durable + names.DurabilityReplicated},
		{expression: fmt.Sprintf("%s || !(%s || %s)", knowsDurable, asks("object"), asks("oldObject")), message: Durable + names.DurabilityReplicatedPreferred},
	}
}

// writes matches all writes of resources or subresources.
func writes(group string, resources ...string) *apply.MatchResourcesApplyConfiguration {
	return apply.MatchResources().WithMatchPolicy(admissionregistrationv1.Equivalent).WithResourceRules(changes(group, resources...))
}

func changes(group string, resources ...string) *apply.NamedRuleWithOperationsApplyConfiguration {
	return apply.NamedRuleWithOperations().
		WithAPIGroups(group).WithAPIVersions("*").WithResources(resources...).WithScope(admissionregistrationv1.AllScopes).
		WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete)
}

func (p policy) apply() *apply.ValidatingAdmissionPolicyApplyConfiguration {
	spec := apply.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(p.match).
		WithMatchConditions(apply.MatchCondition().WithName("refused").WithExpression(p.refused()))
	for _, r := range p.rules {
		validation := apply.Validation().WithExpression(r.expression).WithReason(cmp.Or(r.reason, metav1.StatusReasonForbidden))
		if r.message != "" {
			validation.WithMessage(r.message)
		}
		if r.messageExpression != "" {
			validation.WithMessageExpression(r.messageExpression)
		}
		spec.WithValidations(validation)
	}
	if p.params {
		spec.WithParamKind(apply.ParamKind().WithAPIVersion("coordination.k8s.io/v1").WithKind("Lease"))
	}
	return apply.ValidatingAdmissionPolicy(p.name).WithSpec(spec)
}

// refused is whether a request breaks a rule of the policy.
func (p policy) refused() string {
	rules := make([]string, len(p.rules))
	for i, r := range p.rules {
		rules[i] = "(" + r.expression + ")"
	}
	return fmt.Sprintf("%s && !(%s)", p.when, strings.Join(rules, " && "))
}

func (p policy) bind() *apply.ValidatingAdmissionPolicyBindingApplyConfiguration {
	spec := apply.ValidatingAdmissionPolicyBindingSpec().WithPolicyName(p.name).WithValidationActions(admissionregistrationv1.Deny)
	if p.params {
		spec.WithParamRef(apply.ParamRef().WithNamespace(leaseNamespace).WithName(leaseName).WithParameterNotFoundAction(admissionregistrationv1.DenyAction))
	}
	return apply.ValidatingAdmissionPolicyBinding(p.name).WithSpec(spec)
}
