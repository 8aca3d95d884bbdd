package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/schedule"
)

// planned is what is to be done with the Works of a binding.
type planned struct {
	// wanted are the Works to create or update. Others stay as they are.
	wanted []*workv1alpha1.Work
	// stays are clusters that keep their Works although they are not chosen: they still have pods.
	stays map[string]bool
	// after is when to look again; zero means when something changes.
	after time.Duration
	// blocked is set if no new cluster may get a Work yet.
	blocked bool
}

// memberPoll is how often a rollout checks whether a member that did not answer is back.
const memberPoll = 5 * time.Second

// plan decides which Works are written. A workload whose replicas are divided is changed step by step, so that the bounds of its template hold for all clusters
// together: see docs/design/rollout.md. Everything else is written at once.
func (b *Controller) plan(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered) (*planned, error) {
	text := binding.Annotations[names.RolloutAnnotation]
	ledger, err := rollout.DecodeLedger(text)
	if err != nil {
		return nil, err
	}
	b.awaiting.Add(cell.Key{Namespace: binding.Namespace, Name: binding.Name}) // before anything is observed: what changes from now on counts
	r := &rolling{b: b, binding: binding, t: t, ledger: ledger, stored: text != ""}
	known, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	plans := b.federated && known && r.applies(targets, works, copies)
	if p, err := r.reclaimLeft(ctx, targets, works, plans); p != nil || err != nil {
		return p, err
	}
	if known || b.rollouts.Choose(policies.SubjectOf(t)) != nil {
		restored, err := r.restore(ctx, targets, works, copies, plans)
		if len(restored) > 0 || r.held || err != nil {
			return r.first(restored, works), err
		}
	}
	p, err := r.choose(ctx, targets, works, copies, plans)
	if err == nil && len(r.silent) > 0 {
		p.blocked, p.after = r.blocks(), sooner(p.after, leftPoll)
	}
	return p, err
}

// choose decides between a plan and writing all Works at once.
func (r *rolling) choose(ctx context.Context, targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered, plans bool) (*planned, error) {
	if !plans || r.untouched(works) || r.unmarked(works) {
		return r.b.atOnce(ctx, r.binding, r.t, works, copies, r.unread)
	}
	r.giveUp(targets)
	r.addMembers(targets, works, copies)
	if !r.stored && !r.changes() {
		return r.b.atOnce(ctx, r.binding, r.t, works, copies, r.unread)
	}
	r.complete(ctx)
	return r.plan(ctx)
}

// first returns a plan that writes Works before anything else happens. Their creation enqueues the binding.
func (r *rolling) first(restored []*workv1alpha1.Work, works []*cell.Work) *planned {
	p := &planned{wanted: restored, stays: map[string]bool{}}
	if r.held || len(r.silent) > 0 {
		p.after, p.blocked = memberPoll, r.blocks()
	}
	for _, work := range works {
		p.stays[work.Cluster] = true
	}
	return p
}

// heldPlan returns the plan of a binding whose Works must stay as they are, also in clusters that are being left step by step.
func (b *Controller) heldPlan(binding *workv1alpha2.ResourceBinding) (*planned, error) {
	ledger, err := rollout.DecodeLedger(binding.Annotations[names.RolloutAnnotation])
	if err != nil {
		return nil, err
	}
	p := &planned{stays: map[string]bool{}}
	for name := range ledger {
		p.stays[name] = true
	}
	return p, nil
}

// atOnce plans to write all Works, except those of clusters whose stage has not begun. Copies keep their numbers: the members refuse lower ones.
func (b *Controller) atOnce(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, works []*cell.Work, copies []rendered, unread []string) (*planned, error) {
	copies, kept, after, err := b.stage(ctx, binding, t, works, copies, unread)
	if err != nil {
		return nil, err
	}
	p := &planned{wanted: kept, after: after}
	for i := range copies {
		copies[i].manifest = b.numbered(binding, works, &copies[i])
		work, err := b.workOf(binding, t, &copies[i])
		if err != nil {
			return nil, err
		}
		p.wanted = append(p.wanted, work)
	}
	return p, nil
}

// seqIn returns the number of the command that a cluster was last given.
func (b *Controller) seqIn(works []*cell.Work, cluster string) int64 {
	i := slices.IndexFunc(works, func(w *cell.Work) bool { return w.Cluster == cluster })
	if i < 0 || copyIn(works[i]) == nil {
		return 1
	}
	seq, report := copyIn(works[i]).Seq, b.report(works[i])
	if observed := report.Objects[0]; observed != nil && observed.Rollout != nil {
		seq = max(seq, observed.Rollout.Seq)
	}
	return seq
}

// copyIn returns what a Work tells its cluster, nil if it has no workload that the planner knows.
func copyIn(work *cell.Work) *rollout.Copy {
	if work == nil || len(work.Objects) != 1 {
		return nil
	}
	return work.Objects[0].Copy
}

// notes are what a binding records of its rollout. Empty ones are removed.
type notes struct {
	ledger rollout.Ledger
	// waits is what clusters wait for, and stages what is remembered of the stages.
	waits, stages string
}

// write stores the notes, unless the binding has changed since it was read.
func (n *notes) write(ctx context.Context, b *Controller, binding *workv1alpha2.ResourceBinding) error {
	binding = binding.DeepCopy()
	ledger := ""
	if len(n.ledger) > 0 {
		var err error
		if ledger, err = n.ledger.Encode(); err != nil {
			return err
		}
	}
	for key, text := range map[string]string{names.RolloutAnnotation: ledger, names.RolloutWaitsAnnotation: n.waits, names.RolloutStagesAnnotation: n.stages} {
		if delete(binding.Annotations, key); text != "" {
			metav1.SetMetaDataAnnotation(&binding.ObjectMeta, key, text)
		}
	}
	_, err := b.cell.UpdateBinding(ctx, binding)
	return err
}

// rolling is the rollout of one binding, during one reconciliation.
type rolling struct {
	b       *Controller
	binding *workv1alpha2.ResourceBinding
	t       *cell.Template
	kind    rollout.Kind
	says    *configv1alpha1.WorkloadRollout // of the template; nil for kinds that the planner knows
	ledger  rollout.Ledger
	stored  bool // the binding has a ledger
	dropped bool // an entry was removed from it
	members []*member
	unread  []string // clusters that have the workload, but no Work, and do not answer
	held    bool     // a cluster that is left step by step does not answer, and has no Work
	silent  []string // clusters that were given up in another cell, may still have the workload, and do not answer
}

// applies reports whether the workload is planned for, if its kind is. It is not if all pods are to go: nothing has to stay available then.
func (r *rolling) applies(targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered) bool {
	spec := &r.binding.Spec
	if spec.Placement == nil || !schedule.Divided(spec.Placement) || spec.Replicas <= 0 || len(spec.RequiredBy) > 0 || len(spec.Components) > 0 {
		return false
	}
	total := 0
	for i := range copies {
		manifest, asks := copies[i].manifest, copies[i].asks
		if asks == nil || r.says == nil && !rollout.Rolls(manifest) || manifest.GetLabels()[names.RetainReplicasLabel] == "true" {
			return false
		}
		total += asks.Command.Replicas
	}
	pulled := slices.ContainsFunc(works, func(w *cell.Work) bool { return w.Pulled }) || slices.ContainsFunc(targets, func(target workv1alpha2.TargetCluster) bool {
		cluster := r.b.cell.Clusters.Get(cell.Key{Name: target.Name})
		return cluster != nil && cluster.Spec.SyncMode == clusterv1alpha1.Pull
	})
	return total > 0 && !pulled
}

// untouched reports whether the template has been suspended, or only reported about, from the start: no cluster has been told anything, and its Works may change at once.
func (r *rolling) untouched(works []*cell.Work) bool {
	return (r.t.Suspended || r.t.ReportsOnly(r.binding)) && !r.stored && len(r.unread) == 0 && !slices.ContainsFunc(works, func(w *cell.Work) bool {
		observed := slices.ContainsFunc(r.b.report(w).Objects, func(o *execution.Observed) bool { return o != nil })
		return !w.Suspended || observed || w.Conditions.Find(names.WorkApplied) != nil // the condition outlives a restart of the engine
	})
}

// giveUp removes clusters from the ledger that are left at once: their pods do not count any more, and their Works are deleted without a plan.
func (r *rolling) giveUp(targets []workv1alpha2.TargetCluster) {
	for name := range r.ledger {
		if !isTarget(targets, name) && r.givenUp(name) {
			delete(r.ledger, name)
			r.dropped = true
		}
	}
}

func isTarget(targets []workv1alpha2.TargetCluster, name string) bool {
	return slices.ContainsFunc(targets, func(target workv1alpha2.TargetCluster) bool { return target.Name == name })
}

// givenUp reports whether a cluster that is no longer chosen is left at once: it was evicted, its copy is to be preserved as it is, or it has failed.
func (r *rolling) givenUp(name string) bool {
	evicted := slices.ContainsFunc(r.binding.Spec.GracefulEvictionTasks, func(task workv1alpha2.GracefulEvictionTask) bool { return task.FromCluster == name })
	if evicted || ptr.Deref(preserved(r.binding, r.t, name), false) {
		return true
	}
	cluster := r.b.cell.Clusters.Get(cell.Key{Name: name})
	if cluster == nil || cluster.DeletionTimestamp != nil {
		return true
	}
	ready := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
	return ready != nil && ready.Status != metav1.ConditionTrue
}

// addMembers collects the clusters that have pods or get them, by name.
func (r *rolling) addMembers(targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered) {
	of := map[string]*member{}
	for i := range targets {
		of[targets[i].Name] = &member{name: targets[i].Name, target: true, share: int(targets[i].Replicas)}
	}
	for i := range copies {
		m := of[copies[i].cluster]
		m.copy, m.share, m.revision = &copies[i], copies[i].asks.Command.Replicas, copies[i].asks.Command.Revision
	}
	for _, work := range works {
		m := of[work.Cluster]
		if m == nil {
			if _, has := r.ledger[work.Cluster]; work.Deleting || r.stored && !has || r.givenUp(work.Cluster) {
				continue // it is being left
			}
			m = &member{name: work.Cluster}
			of[work.Cluster] = m
		}
		m.work = work
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		m := of[name]
		m.observe(r.b)
		if m.unread = slices.Contains(r.unread, name); m.unread {
			m.unreachable = true
		}
		if _, has := r.ledger[name]; has || m.work != nil || m.copy != nil {
			r.members = append(r.members, m)
		}
	}
}

// complete adds what is known about the clusters, and leaves out those that have nothing and get nothing.
func (r *rolling) complete(ctx context.Context) {
	r.members = slices.DeleteFunc(r.members, func(m *member) bool {
		m.complete(ctx, r)
		m.newest = m.open && r.hasNewest(ctx, m)
		return m.entry.Seq == 0 && m.copy == nil
	})
}

// hasNewest reports whether a copy that is out of the federation's hands has the pod template that it should have in the end. Its member is asked: people may have
// written any.
func (r *rolling) hasNewest(ctx context.Context, m *member) bool {
	if m.copy == nil || m.unreachable || m.entry.Seq == 0 || m.entry.Command.Revision == m.revision {
		return false
	}
	live, err := r.b.read(ctx, m.name, r.t.Kind.GroupVersionKind, cell.Key{Namespace: r.t.Namespace, Name: r.t.Name})
	if live == nil || err != nil {
		return false
	}
	manifest, err := rollout.WithLiveTemplate(m.copy.manifest, live)
	return err == nil && manifest == m.copy.manifest
}

// changes reports whether pods of a workload without a ledger are to change, in a cluster that is not the only one. Until then there is nothing to plan: every
// cluster has its first command, and Works tell which.
func (r *rolling) changes() bool {
	if len(r.unread) > 0 {
		return true // perhaps
	}
	if len(r.members) < 2 || !slices.ContainsFunc(r.members, func(m *member) bool { return m.work != nil }) {
		return false
	}
	return slices.ContainsFunc(r.members, func(m *member) bool {
		has := copyIn(m.work)
		if has == nil || !m.target {
			return true
		}
		if m.copy == nil {
			return false
		}
		asks := m.copy.asks
		return has.Command.Revision != m.revision || has.Command.Replicas != m.share || has.Command.Paused != asks.Command.Paused ||
			has.Command.Partition != asks.Command.Partition && !m.uniform() // its partition keeps pods of another revision
	})
}

// plan asks the planner, stores what it has decided, and returns the Works by which clusters are told.
func (r *rolling) plan(ctx context.Context) (*planned, error) {
	// 1. Ask the planner.
	in, err := r.input()
	if err != nil {
		return nil, err
	}
	staged, err := r.hold(&in)
	if err != nil {
		return nil, err
	}
	result := rollout.Plan(in)
	commanded, done := false, true
	waiting := map[string]string{}
	for i := range result.Decisions {
		d := &result.Decisions[i]
		r.members[i].decide(d)
		commanded, done = commanded || d.Commanded, done && d.Done
		if d.Commanded {
			commands.Inc()
		}
		if d.Blocked {
			waiting[d.Name] = d.Reason
		}
		klog.FromContext(ctx).V(2).Info("planned a rollout", "binding", klog.KObj(r.binding), "cluster", d.Name, "command", r.members[i].entry.Seq, "reason", d.Reason)
	}

	// 2. Store its commands before any of them leaves.
	key := cell.Key{Namespace: r.binding.Namespace, Name: r.binding.Name}
	p := &planned{stays: map[string]bool{}, after: sooner(r.after(done), staged.after)}
	store := commanded || r.dropped || len(r.unread) > 0 && !r.stored // that a cluster has the workload must not be forgotten before it answers
	if !store && !r.stored && !staged.holds {
		for _, m := range r.members {
			p.stays[m.name] = true
		}
		return p, nil // nothing is stored yet that would tell that this rollout waits
	}
	waits, err := encodeWaits(waiting)
	if err != nil {
		return nil, err
	}
	if store || waits != r.binding.Annotations[names.RolloutWaitsAnnotation] || staged.record != r.binding.Annotations[names.RolloutStagesAnnotation] {
		n := notes{ledger: r.next(), waits: waits, stages: staged.record}
		if err := n.write(ctx, r.b, r.binding); err != nil {
			return nil, err
		}
	}
	r.b.awaiting.Remove(key)
	if err := staged.afterFailure(ctx, r.b, r.t); err != nil {
		return nil, err
	}

	// 3. Write the Works of clusters that have not been told yet.
	for i, m := range r.members {
		p.stays[m.name] = !result.Decisions[i].Release
		work, err := m.tell(ctx, r)
		if err != nil {
			return nil, err
		}
		if work != nil {
			p.wanted = append(p.wanted, work)
		}
	}
	return p, nil
}

// encodeWaits returns what clusters wait for as text for an annotation, empty if none waits.
func encodeWaits(waiting map[string]string) (string, error) {
	if len(waiting) == 0 {
		return "", nil
	}
	text, err := json.Marshal(waiting)
	return string(text), err
}

// input returns what the planner has to know. The bounds are for the replicas that the scheduler has placed: pods that it found no place for need not be
// available before a cluster may be left.
func (r *rolling) input() (rollout.Input, error) {
	in := rollout.Input{Kind: r.kind, Revision: newest}
	total := 0
	for _, m := range r.members {
		total += m.share
		in.Clusters = append(in.Clusters, m.cluster())
	}
	var err error
	in.Bounds, in.Paused, err = r.bounds(total)
	return in, err
}

// next returns the ledger with the decisions of a plan.
func (r *rolling) next() rollout.Ledger {
	next := maps.Clone(r.ledger)
	for _, m := range r.members {
		if m.entry.Seq > 0 {
			next[m.name] = m.entry
		}
	}
	return next
}

// after returns when to plan again without an event: a member may be back, or pods have been unavailable for too long.
func (r *rolling) after(done bool) time.Duration {
	after := time.Duration(0)
	for _, m := range r.members {
		switch {
		case done:
		case m.unreachable, m.live != nil && m.live.Unsure:
			after = sooner(after, memberPoll)
		case !m.failing && !m.shortSince.IsZero():
			after = sooner(after, max(time.Second, time.Until(m.shortSince.Add(m.deadline()))))
		}
	}
	return after
}

// sooner returns the shorter of two times; zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// keep returns the Work of a cluster with its own pod template, by which the cluster is told everything else of a command. A cluster that has not
// begun an update keeps its copy like this: the template has another pod template already.
func (r *rolling) keep(ctx context.Context, m *member) (*workv1alpha1.Work, error) {
	work, manifest, err := r.b.storedManifest(ctx, m.work)
	if err != nil {
		return nil, err
	}
	if told := rollout.Told(manifest); told == nil || told.Command.Revision != m.entry.Command.Revision {
		return nil, fmt.Errorf("reading Work %s: it has changed since", m.work.Key)
	}
	if manifest, err = r.apply(ctx, &m.entry, manifest); err != nil {
		return nil, err
	}
	return work, setManifest(work, r.binding, r.t, m.name, merge.Stamp(manifest, merge.Marks{Cell: r.b.cell.Name}))
}

// Progressed is called when something has changed in a member that a rollout may wait for.
func (b *Controller) Progressed(key cell.Key) {
	binding := b.cell.Binding(key)
	if binding != nil && (binding.Annotations[names.RolloutAnnotation] != "" || b.awaiting.Has(key)) {
		b.queue.Add(key)
	}
}
