// Package detector finds the policy of every template and writes the binding that both define.
package detector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/exposure"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Interpreter interprets templates.
type Interpreter interface {
	Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
}

// Options switch features.
type Options struct {
	// Preemption lets policies take templates from others.
	Preemption bool
	// PermanentIDs ignores policies until they have one.
	PermanentIDs bool
}

// Controller writes the bindings of templates.
type Controller struct {
	cell        *cell.Cell
	index       *policies.Index
	interpreter Interpreter
	scheduler   *scheduler.Scheduler
	recorder    *events.Recorder
	options     Options
	queue       *queue.Queue[cell.TemplateKey]
	waiting     *waiting
	touched     *touched
	// bind is called with a binding when its template has changed but the binding has not.
	bind func(cell.Key)
}

// New returns a controller that watches a cell. Bind is called with bindings whose template has changed.
func New(c *cell.Cell, interpreter Interpreter, s *scheduler.Scheduler, recorder *events.Recorder, options Options, bind func(cell.Key)) *Controller {
	d := &Controller{
		cell: c, index: policies.NewIndex(), interpreter: interpreter, scheduler: s, recorder: recorder, options: options,
		queue: queue.New[cell.TemplateKey]("detector"), waiting: newWaiting(), touched: newTouched(), bind: bind,
	}
	d.subscribe()
	return d
}

// Run reconciles until the context ends.
func (d *Controller) Run(ctx context.Context, workers int) { d.queue.Run(ctx, workers, d.Reconcile) }

// Reconcile creates, updates or deletes the binding of a template.
func (d *Controller) Reconcile(ctx context.Context, key cell.TemplateKey) error {
	template := d.cell.Templates.Get(key)
	switch {
	case template == nil:
		return d.gone(ctx, key)
	case template.Frozen:
		return nil
	case template.Deleting:
		return d.deleteBinding(ctx, template.Key(), template)
	}

	// 1. Choose the policy.
	start := time.Now()
	policy, preempted, err := d.choose(template)
	if err != nil {
		return d.failed(template, err)
	}
	matchDuration.Observe(time.Since(start).Seconds())
	if policy == nil {
		d.touched.forget(key)
		return d.unclaim(ctx, template)
	}

	// 2. Wait for objects that the policy needs.
	if d.waits(template, policy) {
		return nil
	}

	// 3. Claim the template.
	claimed, err := d.claim(ctx, template, policy)
	if err != nil {
		if preempted != nil && !queue.Transient(err) {
			preemptions.WithLabelValues(result(err)).Inc()
			d.recorder.Failed(events.OfTemplate(template), "preemption", names.EventPreemptPolicyFailed, fmt.Sprintf("%s cannot take over from %s: %v", policy, preempted, err))
		}
		return d.failed(template, err)
	}
	if preempted != nil {
		preemptions.WithLabelValues(result(nil)).Inc()
		d.recorder.Succeeded(events.OfTemplate(template), "preemption", names.EventPreemptPolicySucceed,
			fmt.Sprintf("%s took over from %s", policy, preempted), claimed)
	}
	template = d.cell.Templates.Get(key) // the claim has changed it
	if template == nil || template.Frozen {
		return nil
	}

	// 4. Write the binding.
	if policy.Lazy() && !d.activated(template, policy) {
		if binding := d.cell.Binding(key.Binding()); binding != nil && belongs(binding, key) {
			next := binding.DeepCopy()
			setDigest(next, template)
			return d.refresh(ctx, template, binding, next) // changes of the template itself do not wait
		}
		return nil
	}
	changed, err := d.apply(ctx, template, policy)
	applyAttempts.WithLabelValues(result(err)).Inc()
	applyDuration.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	if err != nil {
		return d.failed(template, err)
	}
	d.touched.done(key, template.Digest)
	d.recorder.Succeeded(events.OfTemplate(template), "policy", names.EventApplyPolicySucceed, fmt.Sprintf("applied %s", policy), claimed || changed)
	d.bind(key.Binding())
	return nil
}

// failed records why a policy could not be applied.
func (d *Controller) failed(template *cell.Template, err error) error {
	if !queue.Transient(err) {
		d.recorder.Failed(events.OfTemplate(template), "policy", names.EventApplyPolicyFailed, err.Error())
	}
	return err
}

// choose returns the policy of a template. For the Service of a MultiClusterService, that goes before all policies.
func (d *Controller) choose(t *cell.Template) (chosen, preempted *policies.Policy, err error) {
	if t.Kind.GroupVersionKind == cell.ServiceKind {
		shared, err := exposure.CrossClusterOf(d.cell, t.Key().Key)
		if err != nil {
			return nil, nil, err
		}
		if shared != nil {
			return policies.ForService(t.Namespace, t.Name, shared.ID, shared.Placement()), nil, nil
		}
	}
	chosen, preempted = d.index.Choose(policies.SubjectOf(t), policies.Options{
		ClaimedBy: t.Claim.PolicyID, ClusterClaimedBy: t.Claim.ClusterPolicyID, Preemption: d.options.Preemption,
	})
	return chosen, preempted, nil
}

// waits reports whether the policy needs an object that does not exist; its creation enqueues the template. A missing
// priority class fails the policy instead, so that users see an error.
func (d *Controller) waits(t *cell.Template, policy *policies.Policy) bool {
	if class := policy.Spec.SchedulePriority; class != nil {
		d.waiting.add(priorityClassNamed(class.PriorityClassName), t.Key())
	}
	missing := d.missingOverride(policy, t.Namespace)
	if missing == "" {
		return false
	}
	namespace := t.Namespace
	if policy.Namespace == "" {
		namespace = ""
	}
	d.waiting.add(overrideNamed(namespace, missing), t.Key())
	if d.missingOverride(policy, t.Namespace) == "" {
		return false // it was created meanwhile
	}
	d.recorder.Failed(events.OfTemplate(t), "policy", names.EventApplyPolicyFailed,
		fmt.Sprintf("%s waits for the override policy %q; create it, or remove it from dependentOverrides", policy, missing))
	return true
}

// missingOverride returns an override policy that the policy depends on and that does not exist.
func (d *Controller) missingOverride(policy *policies.Policy, namespace string) string {
	for _, name := range policy.Spec.DependentOverrides {
		if policy.Namespace != "" && d.cell.OverridePolicies.Get(cell.Key{Namespace: namespace, Name: name}) == nil {
			return name
		}
		if policy.Namespace == "" && d.cell.ClusterOverridePolicies.Get(cell.Key{Name: name}) == nil {
			return name
		}
	}
	return ""
}

// claim labels the template with its policy and reports whether that changed it.
func (d *Controller) claim(ctx context.Context, t *cell.Template, policy *policies.Policy) (bool, error) {
	wanted := claimOf(policy)
	if t.Claim == wanted {
		return false, nil
	}
	return true, d.cell.PatchTemplate(ctx, t, claimPatch(t, wanted))
}

func claimOf(policy *policies.Policy) cell.Claim {
	if policy.OfService {
		return cell.Claim{ServiceID: policy.ID, ServiceNamespace: policy.Namespace, ServiceName: policy.Name}
	}
	if policy.Namespace == "" {
		return cell.Claim{ClusterPolicyID: policy.ID, ClusterPolicyName: policy.Name}
	}
	return cell.Claim{PolicyID: policy.ID, PolicyNamespace: policy.Namespace, PolicyName: policy.Name}
}

// claimPatch returns a patch of the claim, on condition that the template has not changed since.
func claimPatch(t *cell.Template, wanted cell.Claim) map[string]any {
	changes := func(now, then map[string]string) map[string]any {
		patch := map[string]any{}
		for key, value := range then {
			if value != "" {
				patch[key] = value
			} else if now[key] != "" {
				patch[key] = nil
			}
		}
		return patch
	}
	labels := changes(t.Claim.Labels(), wanted.Labels())
	switch {
	case wanted.ServiceID != "":
		labels[names.ClaimedByLabel] = names.ClaimedByMultiClusterService
	case t.Claim.ServiceID != "":
		labels[names.ClaimedByLabel] = nil
	}
	return map[string]any{"metadata": map[string]any{
		"resourceVersion": t.Version,
		"labels":          labels,
		"annotations":     changes(t.Claim.Annotations(), wanted.Annotations()),
	}}
}

// unclaim removes a claim that no policy backs any more. The binding keeps its last placement, and the copies in the
// members stay.
func (d *Controller) unclaim(ctx context.Context, t *cell.Template) error {
	if !t.Claim.Empty() {
		if err := d.cell.PatchTemplate(ctx, t, claimPatch(t, cell.Claim{})); err != nil {
			return err
		}
	}
	binding := d.cell.Binding(t.Key().Binding())
	if binding == nil || !belongs(binding, t.Key()) {
		return nil
	}
	if !cell.ClaimOf(binding.Labels, binding.Annotations).Empty() {
		binding = binding.DeepCopy()
		setClaim(binding, cell.Claim{})
		if _, err := d.cell.UpdateBinding(ctx, binding); err != nil {
			return err
		}
	}
	// Changes of the template itself are still propagated to where it was placed.
	return d.refresh(ctx, t, binding, binding.DeepCopy())
}

// unservedPoll is how often the binding of a template is checked whose kind is not served.
const unservedPoll = time.Minute

// gone deletes the binding of a template that does not exist any more. It does not wait for the garbage collector.
func (d *Controller) gone(ctx context.Context, key cell.TemplateKey) error {
	d.touched.forget(key)
	d.waiting.forget(key)
	if d.cell.Binding(key.Binding()) == nil {
		return nil
	}
	if !d.cell.Templates.Known(key.GroupVersionKind) {
		return queue.Later{After: unservedPoll} // when the kind is served again, there is no event for templates deleted meanwhile
	}
	// Templates and bindings are watched separately: the binding may be seen first, above all one that has just moved
	// here.
	if exists, err := d.cell.TemplateExists(ctx, key); err != nil || exists {
		return err
	}
	return d.deleteBinding(ctx, key, nil)
}

// deleteBinding deletes the binding of a template that is deleted (nil) or being deleted.
func (d *Controller) deleteBinding(ctx context.Context, key cell.TemplateKey, t *cell.Template) error {
	binding := d.cell.Binding(key.Binding())
	if binding == nil || binding.DeletionTimestamp != nil || !belongs(binding, key) || binding.Labels[names.RebalanceStatusLabel] != "" || awaits(binding) {
		return nil
	}
	if t != nil && t.UID != binding.Spec.Resource.UID {
		return nil
	}
	return d.cell.DeleteBinding(ctx, binding)
}

// belongs reports whether a binding belongs to a template. A kind of the same name in another group has the same
// binding name.
func belongs(binding *workv1alpha2.ResourceBinding, key cell.TemplateKey) bool {
	ref := &binding.Spec.Resource
	apiVersion, kind := key.ToAPIVersionAndKind()
	return ref.Kind == kind && ref.APIVersion == apiVersion && ref.Name == key.Name && ref.Namespace == key.Namespace
}

// activated reports whether a lazy policy takes effect: the template is not older than the policy, or has changed since
// the policy did.
//
// Creation times decide which is older. Policies and templates are watched separately, so the order in which they are
// seen means nothing; what was created in the same second was created together. An edited policy may select the
// template only since the edit: then the template waits, unless it is new.
func (d *Controller) activated(t *cell.Template, policy *policies.Policy) bool {
	done := d.touched.last(t.Key(), t.Digest)
	if done == changedByUser {
		return true
	}
	if d.cell.Binding(t.Key().Binding()) == nil && policy.Created <= t.Created && (policy.Generation <= 1 || done == createdByUser) {
		return true
	}
	return d.changedUnseen(t)
}

// changedUnseen reports whether the user has changed a template while no engine ran. The generation would not do: a claim
// raises that of a Deployment, and some kinds have none.
func (d *Controller) changedUnseen(t *cell.Template) bool {
	binding := d.cell.Binding(t.Key().Binding())
	if binding == nil || !belongs(binding, t.Key()) {
		return false
	}
	recorded := binding.Annotations[names.TemplateDigestAnnotation]
	return recorded != "" && recorded != digestOf(t)
}
