package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/history"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

// watchRolloutPolicies keeps the rollout policies, and enqueues the bindings that a changed one selects.
func (b *Controller) watchRolloutPolicies() {
	b.cell.RolloutPolicies.Subscribe(func(key cell.Key, _, now *cellplanev1alpha1.RolloutPolicy) {
		if now == nil {
			b.rolloutPolicyChanged(b.rollouts.Unset(key.Namespace, key.Name), nil)
			return
		}
		policy := policies.CompileRollout(key.Namespace, key.Name, &now.Spec)
		b.rolloutPolicyChanged(b.rollouts.Set(policy), policy)
	})
	b.cell.ClusterRolloutPolicies.Subscribe(func(key cell.Key, _, now *cellplanev1alpha1.ClusterRolloutPolicy) {
		if now == nil {
			b.rolloutPolicyChanged(b.rollouts.Unset("", key.Name), nil)
			return
		}
		policy := policies.CompileRollout("", key.Name, &now.Spec)
		b.rolloutPolicyChanged(b.rollouts.Set(policy), policy)
	})
}

func (b *Controller) rolloutPolicyChanged(old, now *policies.Rollout) {
	b.enqueueSelected("", func(t *cell.Template) bool {
		subject := policies.SubjectOf(t)
		return old.Selects(subject) || now.Selects(subject)
	})
}

// staged is what the stages of a rollout say.
type staged struct {
	// holds is whether a cluster has to wait, and rollBack whether the workload gets back its former pod template.
	holds, rollBack bool
	update          string
	// record is what is to be remembered, and after when to look again.
	record string
	after  time.Duration
	stages.Result
}

// decide asks the stages of a policy. It sets the stages of the clusters. An approval that cannot be read counts for nothing: people write it.
func (b *Controller) decide(policy *policies.Rollout, binding *workv1alpha2.ResourceBinding, t *cell.Template, clusters []stages.Cluster) (*staged, error) {
	obj, err := t.Object()
	if err != nil {
		return nil, err
	}
	in := stages.Input{Update: rollout.RevisionOf(obj), Clusters: clusters, Now: time.Now()}
	if in.Record, err = stages.DecodeRecord(binding.Annotations[names.RolloutStagesAnnotation]); err != nil {
		return nil, err
	}
	if approval, err := stages.DecodeApproval(binding.Annotations[names.RolloutApprovalAnnotation]); err == nil {
		in.Approval = approval
	}
	members := make([]*clusterv1alpha1.Cluster, len(clusters))
	for i := range clusters {
		if members[i] = b.cell.Clusters.Get(cell.Key{Name: clusters[i].Name}); members[i] == nil {
			members[i] = &clusterv1alpha1.Cluster{}
			members[i].Name = clusters[i].Name
		}
	}
	var numbers []int
	in.Policy, numbers = policy.Stages(members)
	for i := range clusters {
		clusters[i].Stage = numbers[i]
	}
	s := &staged{Result: stages.Decide(in), update: in.Update}
	s.rollBack = s.Failure != "" && policy.Spec.Failure != nil && policy.Spec.Failure.Action == cellplanev1alpha1.RolloutRollBack
	if policy.Invalid != nil {
		for i := range clusters {
			if !clusters[i].Begun {
				s.Holds[i] = policy.Invalid.Error()
			}
		}
	}
	s.after = s.After
	s.holds = s.Failure != "" || slices.ContainsFunc(s.Holds, func(hold string) bool { return hold != "" })
	s.record, err = s.Record.Encode()
	return s, err
}

// afterFailure gives a workload its former pod template, if its policy says so. Call it when the failure has been stored.
func (s *staged) afterFailure(ctx context.Context, b *Controller, t *cell.Template) error {
	if !s.rollBack {
		return nil
	}
	const aspect = "rollback"
	err := history.RollBack(ctx, b.cell, t, s.update)
	if errors.Is(err, history.ErrNoRevision) || errors.Is(err, history.ErrRolledBack) {
		b.recorder.Failed(events.OfTemplate(t), aspect, names.EventRollBackFailed, fmt.Sprintf("%s; it is paused: %v", s.Failure, err))
		return nil
	}
	if err == nil {
		b.recorder.Succeeded(events.OfTemplate(t), aspect, names.EventRollBackSucceed, s.Failure+"; the workload has its former pod template", true)
	}
	return err
}

// hold has clusters wait that may not begin, by the stages of the workload's policy.
func (r *rolling) hold(in *rollout.Input) (*staged, error) {
	policy := r.b.rollouts.Choose(policies.SubjectOf(r.t))
	if policy == nil {
		return &staged{}, nil
	}
	in.KeepAvailable = policy.Spec.UnreachableClusters == cellplanev1alpha1.UnreachableLastObserved
	var clusters []stages.Cluster
	var of []int
	after := time.Duration(0)
	updated := in.Updated()
	for i, m := range r.members {
		c := &in.Clusters[i]
		if !m.target || m.copy == nil {
			continue // it is being left
		}
		begun := c.Entry.Seq == 0 || c.Entry.Command.Revision == in.Revision
		failed, wait := m.tooLong(policy.Spec.Failure)
		after = sooner(after, wait)
		clusters = append(clusters, stages.Cluster{Name: m.name, Begun: begun, Done: updated[i], Failed: begun && (failed || m.failing || c.Refused && !m.open)})
		of = append(of, i)
	}
	s, err := r.b.decide(policy, r.binding, r.t, clusters)
	if err != nil {
		return nil, err
	}
	s.after = sooner(s.after, after)
	for i, hold := range s.Holds {
		in.Clusters[of[i]].Hold = hold
	}
	if s.Failure != "" {
		in.Paused, in.PausedFor = true, s.Failure
	}
	return s, nil
}

// tooLong reports whether pods have been unavailable for longer than a policy allows, and otherwise when they will have been; zero means never.
func (m *member) tooLong(failure *cellplanev1alpha1.RolloutFailure) (bool, time.Duration) {
	if failure == nil || failure.UnavailableFor == nil || m.live == nil || !m.live.Short() || m.shortSince.IsZero() {
		return false, 0
	}
	left := failure.UnavailableFor.Duration - time.Since(m.shortSince)
	return left <= 0, max(0, left)
}

// stage returns which of the copies clusters get now, of a workload that the planner does not divide: every cluster has a complete one. A cluster whose stage
// has not begun keeps what it has, but for the number of replicas; kept are the Works for that. One that has the workload, and neither a Work nor an answer, counts
// as not begun. After is when to look again; zero means when something changes.
func (b *Controller) stage(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, works []*cell.Work, copies []rendered, unread []string) (now []rendered, kept []*workv1alpha1.Work, after time.Duration, err error) {
	n := notes{}
	now = copies
	s := &staged{}
	if policy := b.rollouts.Choose(policies.SubjectOf(t)); policy != nil {
		if s, err = b.stageCopies(policy, binding, t, works, copies, unread); err != nil {
			return nil, nil, 0, err
		}
		n.stages, after, now = s.record, s.after, nil
		waiting := map[string]string{}
		for i, hold := range s.Holds {
			if hold == "" {
				now = append(now, copies[i])
				continue
			}
			waiting[copies[i].cluster] = hold
			work, err := b.rescaled(ctx, binding, t, workIn(works, copies[i].cluster), &copies[i])
			if err != nil {
				return nil, nil, 0, err
			}
			if work != nil {
				kept = append(kept, work)
			}
		}
		if n.waits, err = encodeWaits(waiting); err != nil {
			return nil, nil, 0, err
		}
	}
	if n.waits == "" && n.stages == "" {
		b.awaiting.Remove(cell.Key{Namespace: binding.Namespace, Name: binding.Name})
	}
	if binding.Annotations[names.RolloutAnnotation] != "" || binding.Annotations[names.RolloutWaitsAnnotation] != n.waits || binding.Annotations[names.RolloutStagesAnnotation] != n.stages {
		if err := n.write(ctx, b, binding); err != nil {
			return nil, nil, 0, err
		}
	}
	return now, kept, after, s.afterFailure(ctx, b, t)
}

// workIn returns the Work of a cluster with a single object, nil if there is none.
func workIn(works []*cell.Work, cluster string) *cell.Work {
	at := slices.IndexFunc(works, func(w *cell.Work) bool { return w.Cluster == cluster && len(w.Objects) == 1 })
	if at < 0 {
		return nil
	}
	return works[at]
}

// stageCopies decides which of the copies clusters get now.
func (b *Controller) stageCopies(policy *policies.Rollout, binding *workv1alpha2.ResourceBinding, t *cell.Template, works []*cell.Work, copies []rendered, unread []string) (*staged, error) {
	clusters := make([]stages.Cluster, len(copies))
	after := time.Duration(0)
	if len(unread) > 0 {
		after = memberPoll
	}
	for i := range copies {
		c := &clusters[i]
		c.Name = copies[i].cluster
		work := workIn(works, c.Name)
		if work == nil {
			c.Begun = !slices.Contains(unread, c.Name) // it is created
			continue
		}
		m := member{name: c.Name, copy: &copies[i], work: work}
		m.observe(b)
		report := b.report(work)
		failed, wait := m.tooLong(policy.Spec.Failure)
		after = sooner(after, wait)
		c.Begun = work.Objects[0].PodTemplate == rollout.PodTemplateOf(copies[i].manifest)
		c.Done = c.Begun && report.Settled
		c.Failed = c.Begun && (failed || m.failing || m.failed && !m.open && !m.unreachable)
	}
	s, err := b.decide(policy, binding, t, clusters)
	if err != nil {
		return nil, err
	}
	s.after = sooner(s.after, after)
	for i := range clusters {
		if s.Failure != "" && !clusters[i].Begun && s.Holds[i] == "" {
			s.Holds[i] = s.Failure
		}
	}
	return s, nil
}

// rescaled returns the Work of a cluster with other replicas and everything else as it is, nil if it has as many.
func (b *Controller) rescaled(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, work *cell.Work, wanted *rendered) (*workv1alpha1.Work, error) {
	told := copyIn(work)
	if told == nil || wanted.asks == nil || told.Command.Replicas == wanted.asks.Command.Replicas {
		return nil, nil
	}
	has := *told
	stored, manifest, err := b.storedManifest(ctx, work)
	if err != nil {
		return nil, err
	}
	if manifest, err = b.interpreter.ReviseReplica(ctx, manifest, int32(wanted.asks.Command.Replicas)); err != nil { //nolint:gosec // an API has them as int32
		return nil, err
	}
	if _, known := rollout.KindOf(manifest.GetAPIVersion(), manifest.GetKind()); !known {
		has.Command.Replicas = wanted.asks.Command.Replicas
		manifest = (&rollout.Entry{Seq: has.Seq, Command: has.Command}).Mark(manifest)
	}
	return stored, setManifest(stored, binding, t, wanted.cluster, merge.Stamp(manifest, merge.Marks{Cell: b.cell.Name}))
}

// storedManifest reads the manifest of a Work with a single object. It returns the Work without its spec.
func (b *Controller) storedManifest(ctx context.Context, work *cell.Work) (*workv1alpha1.Work, *unstructured.Unstructured, error) {
	stored, err := b.cell.GetWork(ctx, work.Key)
	if err != nil {
		return nil, nil, err
	}
	if len(stored.Spec.Workload.Manifests) != 1 {
		return nil, nil, fmt.Errorf("reading Work %s: it has changed since", work.Key)
	}
	manifest := &unstructured.Unstructured{}
	if err := manifest.UnmarshalJSON(stored.Spec.Workload.Manifests[0].Raw); err != nil {
		return nil, nil, fmt.Errorf("reading Work %s: %w", work.Key, err)
	}
	if stored.UID != work.UID || rollout.PodTemplateOf(manifest) != work.Objects[0].PodTemplate {
		return nil, nil, fmt.Errorf("reading Work %s: it has changed since", work.Key)
	}
	return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: stored.Namespace, Name: stored.Name, Labels: stored.Labels, Annotations: stored.Annotations}}, manifest, nil
}
