package fence

import (
	"cmp"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

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

// policy is one of the fence's policies.
type policy struct {
	name string
	// when selects requests, and rules are what these must fulfil.
	when   string
	rules  []rule
	params bool
}

type rule struct {
	expression string
	// message is a CEL expression.
	message string
	// reason is that of the refusal; Forbidden if it is empty.
	reason metav1.StatusReason
}

// durabilityRules refuse wrong values of the annotation, and writes of gateways that do not know that the object has it: in its stored
// or in its new form.
func durabilityRules() []rule {
	asks, strict := func(object string) string { return fmt.Sprintf(asksDurability, object) }, func(object string) string {
		return fmt.Sprintf("(%s && %s != '%s')", fmt.Sprintf(asksDurability, object), fmt.Sprintf(durabilityIs, object), names.DurabilityReplicatedPreferred)
	}
	value := fmt.Sprintf(durabilityIs, "object")
	return []rule{
		{
			expression: fmt.Sprintf("!%s || %s in ['%s', '%s'] || (%s && %s == %s)", asks("object"), value, names.DurabilityReplicated, names.DurabilityReplicatedPreferred,
				asks("oldObject"), fmt.Sprintf(durabilityIs, "oldObject"), value),
			message: fmt.Sprintf(`'the annotation %s is "' + %s + '"; use "%s" or "%s", or remove it'`, names.DurabilityAnnotation, value, names.DurabilityReplicated,
				names.DurabilityReplicatedPreferred),
			reason: metav1.StatusReasonInvalid,
		},
		{
			expression: fmt.Sprintf("%s || !(%s || %s)", knowsDurable, asks("object"), asks("oldObject")),
			message: fmt.Sprintf("'%s' + (%s || %s ? '%s' : '%s')", Durable, strict("oldObject"), strict("object"), names.DurabilityReplicated,
				names.DurabilityReplicatedPreferred),
		},
	}
}

func policies() []policy {
	return []policy{
		{
			name: "cellplane-epoch",
			when: throughGateway,
			rules: []rule{{
				expression: fmt.Sprintf("%s && request.userInfo.extra['%s'].all(e, int(e) >= int(params.metadata.annotations['%s']))", hasEpoch, names.EpochExtra, floorAnnotation),
				message:    fmt.Sprintf("'%s, this cell accepts ' + params.metadata.annotations['%s'] + ' and later'", StaleEpoch, floorAnnotation),
			}},
			params: true,
		},
		{
			name: "cellplane-existing-only",
			when: existingOnly,
			rules: []rule{
				{expression: "request.operation != 'CREATE'", message: fmt.Sprintf("'%s, new objects of this name are created in another cell'", Absent)},
				{expression: "!" + beneath("scale"), message: fmt.Sprintf("'%s, the object can be scaled once it has moved'", Frozen)},
			},
		},
		{name: "cellplane-durability", when: throughGateway, rules: durabilityRules()},
		{
			name: "cellplane-frozen",
			when: "!" + isMover,
			rules: []rule{
				{expression: "!" + fmt.Sprintf(marked, "oldObject"), message: fmt.Sprintf("'%s, the object is being moved to another cell'", Frozen)},
				{expression: fmt.Sprintf(marked, "oldObject") + " || !" + fmt.Sprintf(marked, "object"), message: fmt.Sprintf("'%s, only the hub manager sets the label %s'", Reserved, names.RebalanceStatusLabel)},
				{expression: fmt.Sprintf("!(%s && request.name == '%s' && request.namespace == '%s')", of("coordination.k8s.io", "leases"), leaseName, leaseNamespace),
					message: fmt.Sprintf("'%s, only the hub manager changes the fence'", Reserved)},
				{expression: fmt.Sprintf("!(%s || %s) || %s", beneath("scale", "binding"), of("", "bindings"), throughGateway),
					message: fmt.Sprintf("'%s, objects are scaled and bound through a gateway, which knows whether they are being moved'", Reserved)},
				{expression: fmt.Sprintf("!%s || (%s && %s)", beneath("eviction"), throughGateway, pinned),
					message: fmt.Sprintf("'%s, pods are evicted through a gateway, which knows whether they are being moved, and in one version only'", Reserved)},
			},
		},
	}
}

// everything matches all writes of all resources and subresources.
func everything() *apply.MatchResourcesApplyConfiguration {
	return apply.MatchResources().
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithResourceRules(apply.NamedRuleWithOperations().
			WithAPIGroups("*").WithAPIVersions("*").WithResources("*/*").WithScope(admissionregistrationv1.AllScopes).
			WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete))
}

func (p policy) apply() *apply.ValidatingAdmissionPolicyApplyConfiguration {
	spec := apply.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(everything()).
		WithMatchConditions(apply.MatchCondition().WithName("concerned").WithExpression(p.when))
	for _, r := range p.rules {
		spec.WithValidations(apply.Validation().WithExpression(r.expression).WithMessageExpression(r.message).WithReason(cmp.Or(r.reason, metav1.StatusReasonForbidden)))
	}
	if p.params {
		spec.WithParamKind(apply.ParamKind().WithAPIVersion("coordination.k8s.io/v1").WithKind("Lease"))
	}
	return apply.ValidatingAdmissionPolicy(p.name).WithSpec(spec)
}

func (p policy) bind() *apply.ValidatingAdmissionPolicyBindingApplyConfiguration {
	spec := apply.ValidatingAdmissionPolicyBindingSpec().WithPolicyName(p.name).WithValidationActions(admissionregistrationv1.Deny)
	if p.params {
		spec.WithParamRef(apply.ParamRef().WithNamespace(leaseNamespace).WithName(leaseName).WithParameterNotFoundAction(admissionregistrationv1.DenyAction))
	}
	return apply.ValidatingAdmissionPolicyBinding(p.name).WithSpec(spec)
}
