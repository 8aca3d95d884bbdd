// Package detector finds the policy of every template and writes down in a binding what the two say together.
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
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Interpreter is what the detector asks about templates.
type Interpreter interface {
	Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
}

// Options switch features.
type Options struct {
	// Preemption lets policies take templates from others.
	Preemption bool
	// PermanentIDs leaves policies alone until they have one.
	PermanentIDs bool
}

// Controller keeps the bindings of templates.
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
	// bind is told which binding to look at when its template changed but it did not.
	bind func(cell.Key)
}

// New returns a controller that watches a cell. Bind is called with bindings whose template changed.
func New(c *cell.Cell, interpreter Interpreter, s *scheduler.Scheduler, recorder *events.Recorder, options Options, bind func(cell.Key)) *Controller {
	d := &Controller{
		cell: c, index: policies.NewIndex(), interpreter: interpreter, scheduler: s, recorder: recorder, options: options,
		queue: queue.New[cell.TemplateKey]("detector"), waiting: newWaiting(), touched: newTouched(), bind: bind,
	}
	d.subscribe()
	return d
}

// Run works until the context ends.
func (d *Controller) Run(ctx context.Context, workers int) { d.queue.Run(ctx, workers, d.Reconcile) }

// Reconcile brings the binding of a template up to date.
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

	// 1. Which policy?
	start := time.Now()
	policy, preempted := d.choose(template)
	matchDuration.Observe(time.Since(start).Seconds())
	if policy == nil {
		d.touched.forget(key)
		return d.unclaim(ctx, template)
	}

	// 2. Does the policy ask to wait?
	if d.waits(template, policy) {
		return nil
	}

	// 3. Claim the template.
	claimed, err := d.claim(ctx, template, policy)
	if err != nil {
		return d.failed(template, err)
	}
	if preempted != nil {
		preemptions.Inc()
		d.recorder.Succeeded(events.OfTemplate(template), "preemption", names.EventPreemptPolicySucceed,
			fmt.Sprintf("%s took over from %s", policy, preempted), claimed)
	}
	template = d.cell.Templates.Get(key) // claiming it has changed it
	if template == nil || template.Frozen {
		return nil
	}

	// 4. Write the binding.
	if policy.Lazy() && !d.awake(template, policy) {
		if binding := d.cell.Binding(key.Binding()); binding != nil && belongs(binding, key) {
			return d.refresh(ctx, template, binding) // what the template itself says does not wait
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

// failed tells the user why a policy could not be applied.
func (d *Controller) failed(template *cell.Template, err error) error {
	if !isPassing(err) {
		d.recorder.Failed(events.OfTemplate(template), "policy", names.EventApplyPolicyFailed, err.Error())
	}
	return err
}

func (d *Controller) choose(t *cell.Template) (chosen, preempted *policies.Policy) {
	return d.index.Choose(subjectOf(t), policies.Options{
		ClaimedBy: t.Claim.PolicyID, ClusterClaimedBy: t.Claim.ClusterPolicyID, Preemption: d.options.Preemption,
	})
}

func subjectOf(t *cell.Template) *policies.Subject {
	return &policies.Subject{GroupVersionKind: t.Kind.GroupVersionKind, Namespace: t.Namespace, Name: t.Name, Labels: t.Labels}
}

// waits tells whether something must exist first that does not; its coming brings the template back. A missing priority
// class fails the policy, which says so better than silence would.
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
		return false // it came while we looked
	}
	d.recorder.Failed(events.OfTemplate(t), "policy", names.EventApplyPolicyFailed,
		fmt.Sprintf("%s waits for the override policy %q; create it, or take it out of dependentOverrides", policy, missing))
	return true
}

// missingOverride returns an override policy that must exist first and does not.
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

// claim marks the template with its policy and reports whether that was news.
func (d *Controller) claim(ctx context.Context, t *cell.Template, policy *policies.Policy) (bool, error) {
	wanted := claimOf(policy)
	if t.Claim == wanted {
		return false, nil
	}
	return true, d.cell.PatchTemplate(ctx, t, claimPatch(t, wanted))
}

func claimOf(policy *policies.Policy) cell.Claim {
	if policy.Namespace == "" {
		return cell.Claim{ClusterPolicyID: policy.ID, ClusterPolicyName: policy.Name}
	}
	return cell.Claim{PolicyID: policy.ID, PolicyNamespace: policy.Namespace, PolicyName: policy.Name}
}

// claimPatch changes the claim of a template, unless the template has been changed since.
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
	return map[string]any{"metadata": map[string]any{
		"resourceVersion": t.Version,
		"labels":          changes(t.Claim.Labels(), wanted.Labels()),
		"annotations":     changes(t.Claim.Annotations(), wanted.Annotations()),
	}}
}

// unclaim takes a claim off that no policy stands behind any more. The binding keeps its last placement, and what is
// in the members stays.
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
	// Changes of the template itself still travel to where it was placed.
	return d.refresh(ctx, t, binding)
}

// unseenPause is how often is looked again at the binding of a template whose kind cannot be seen.
const unseenPause = time.Minute

// gone removes the binding of a template that does not exist any more. It does not wait for a garbage collector.
func (d *Controller) gone(ctx context.Context, key cell.TemplateKey) error {
	d.touched.forget(key)
	d.waiting.forget(key)
	if d.cell.Binding(key.Binding()) == nil {
		return nil
	}
	if !d.cell.Templates.Known(key.GroupVersionKind) {
		return queue.Later{After: unseenPause} // the kind may come back, and says nothing of templates that do not
	}
	// Templates and bindings are watched apart, so that a binding may be known first, above all one that has just moved here.
	if exists, err := d.cell.TemplateExists(ctx, key); err != nil || exists {
		return err
	}
	return d.deleteBinding(ctx, key, nil)
}

// deleteBinding deletes the binding of a template that is gone or going; nil means gone.
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

// belongs tells whether a binding is that of a template; a kind of the same name in another group shares its name.
func belongs(binding *workv1alpha2.ResourceBinding, key cell.TemplateKey) bool {
	ref := &binding.Spec.Resource
	apiVersion, kind := key.ToAPIVersionAndKind()
	return ref.Kind == kind && ref.APIVersion == apiVersion && ref.Name == key.Name && ref.Namespace == key.Namespace
}

// awake tells whether a lazy policy takes effect: the template is not older than the policy, or has changed since the
// policy last did.
//
// Which came first is told by their creation times: policies and templates are watched apart, so that the order in which
// they are seen says nothing, and what was made within the same second was made together. A policy that was edited may
// have come to select a template since, which then waits, unless the template is new to us.
func (d *Controller) awake(t *cell.Template, policy *policies.Policy) bool {
	done := d.touched.last(t.Key(), t.Digest)
	if done == changedByUser {
		return true
	}
	if d.cell.Binding(t.Key().Binding()) == nil && policy.Created <= t.Created && (policy.Generation <= 1 || done == madeByUser) {
		return true
	}
	return d.changedUnseen(t)
}

// changedUnseen tells whether a template has changed while no engine was looking: its Works are made from an older
// generation. Of kinds that do not count generations it cannot be told; they wait for their next change.
func (d *Controller) changedUnseen(t *cell.Template) bool {
	for _, work := range d.cell.WorksOf(t.Key().Binding()) {
		for i := range work.Objects {
			if made := work.Objects[i].TemplateGeneration; made > 0 && made < t.Generation {
				return true
			}
		}
	}
	return false
}
