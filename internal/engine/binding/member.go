package binding

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout"
)

// newest stands for the pod template that a cluster should have in the end. Overrides make it differ among clusters, so each has its own name for it in the
// ledger; the planner only has to know whether a cluster has it.
const newest = "*"

// unknown stands for a pod template that nobody knows any more.
const unknown = "?"

// member is one cluster of a rollout.
type member struct {
	name string
	// target is whether the cluster is chosen, and share how many replicas it should have.
	target bool
	share  int
	// copy is what the cluster should get in the end, and revision the name of its pod template there. A cluster that is being left keeps its own.
	copy     *rendered
	revision string
	// work is the Work of the cluster, nil if there is none.
	work *cell.Work
	// entry is the cluster's part of the ledger. Its number goes on from that of the copy that was there before.
	entry  rollout.Entry
	before int64

	live        *rollout.Live // nil if there is none
	agrees      bool          // the object is as the Work wants it
	unreachable bool
	unread      bool // it may have the workload, has no Work, and does not answer
	failed      bool // the member has refused the Work
	open        bool // or rather the copy is out of the federation's hands, and newest is whether it has the pod template that it should have in the end
	newest      bool
	failing     bool
	shortSince  time.Time
}

// complete adds what is known about the cluster.
func (m *member) complete(ctx context.Context, r *rolling) {
	m.look(ctx, r.b)
	entry, has := r.ledger[m.name]
	switch {
	case !has && m.work == nil && !m.unread:
	case !has, m.seq() > entry.Seq:
		m.entry = m.adopt(r.kind)
	case m.work == nil && entry.Command.Replicas == 0:
		m.before = entry.Seq // it was left, and is chosen again
	default:
		m.entry = entry
	}
	if m.copy == nil {
		m.revision = m.entry.Command.Revision
	}
}

// seq returns the highest number that the Work or the object in the member carries.
func (m *member) seq() int64 {
	seq := int64(0)
	if told := copyIn(m.work); told != nil {
		seq = told.Seq
	}
	if m.live != nil {
		seq = max(seq, m.live.Seq)
	}
	return seq
}

// observe reads what the member reports.
func (m *member) observe(b *Controller) {
	if m.work == nil {
		return
	}
	report := b.report(m.work)
	m.unreachable, m.failed, m.open = !report.Trusted, report.Failed(), len(report.Open) > 0 || report.HeldBack()
	if len(report.Objects) != 1 {
		return
	}
	observed := report.Objects[0]
	if observed == nil && m.open {
		observed = report.Shown(0) // it carries the labels of the cell that had the workload before
	}
	if observed == nil {
		return
	}
	m.open = m.open || observed.Entry != nil
	m.live, m.agrees, m.shortSince = observed.Rollout, observed.Agrees(m.work.Objects[0].Fingerprint), observed.ShortSince
	m.failing = m.live != nil && m.live.Short() && (m.live.Stuck || time.Since(m.shortSince) >= m.deadline())
}

// look asks the member for the pods of the workload, if its status does not tell whether it is at rest. If that fails, it counts as not at rest.
func (m *member) look(ctx context.Context, b *Controller) {
	if m.live == nil || !m.live.Unsure || m.unreachable {
		return
	}
	live, err := b.look(ctx, m.work)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("cannot read the pods of a workload", "work", m.work.Key, "cluster", m.name, "err", err)
		return
	}
	m.live = live
}

// uniform reports whether all pods are known to have the revision that the cluster was told.
func (m *member) uniform() bool {
	return m.live != nil && m.agrees && !m.unreachable && m.live.Observation.Current && m.live.Observation.Pods == m.live.Command.Replicas &&
		m.live.Observation.Updated == m.live.Observation.Pods
}

// deadline is how long pods may be unavailable before they count as failing: the template's progressDeadlineSeconds.
func (m *member) deadline() time.Duration {
	const byDefault = 10 * time.Minute
	if m.copy == nil {
		return byDefault
	}
	seconds, found, err := unstructured.NestedInt64(m.copy.manifest.Object, "spec", "progressDeadlineSeconds")
	if err != nil || !found || seconds <= 0 || seconds > 1<<31 {
		return byDefault
	}
	return time.Duration(seconds) * time.Second
}

// adopt returns the entry of a cluster that has a Work, but is not in the ledger, or has a newer command than that: the ledger
// is from a backup.
func (m *member) adopt(kind rollout.Kind) rollout.Entry {
	told := copyIn(m.work)
	if told == nil {
		told = &rollout.Copy{Seq: 1, Command: rollout.Command{Replicas: m.share, Revision: unknown}}
	}
	command := told.Command
	if m.live != nil && m.live.Seq > told.Seq {
		command = m.live.Command // by a Work that is lost
	}
	known := m.agrees || m.live != nil && (m.live.Seq > told.Seq || m.open && max(1, m.live.Seq) == told.Seq)
	if m.live != nil && !m.unreachable && known && m.live.Observation.Current {
		o := m.live.Observation
		o.Seq = max(told.Seq, o.Seq)
		command.Surge, command.Unavailable = m.live.Command.Surge, m.live.Command.Unavailable
		entry := rollout.Adopt(kind, command, o, unknown)
		if o.Pods < command.Replicas {
			entry.Loosened.Available = min(entry.Loosened.Available, o.Available) // they are being created
		}
		return entry
	}
	// What it does is not known: at worst, it is in the middle of an update.
	entry := rollout.Entry{Seq: max(1, m.seq()), Command: command, Revisions: []string{unknown}}
	if command.Revision != unknown {
		entry.Revisions = append(entry.Revisions, command.Revision)
	}
	entry.Loosened = rollout.Envelope{Pods: most(&told.Command), Updated: command.Replicas}
	switch {
	case m.live != nil:
		entry.Loosened.Pods = max(entry.Loosened.Pods, most(&m.live.Command))
	case m.failed && !m.unreachable:
		entry.Loosened.Pods = command.Replicas // it has refused to create it
	}
	return entry
}

// most returns how many pods a command allows during an update.
func most(c *rollout.Command) int { return c.Replicas + min(c.Surge, c.Replicas) }

// cluster returns what the planner has to know about the cluster.
func (m *member) cluster() rollout.Cluster {
	c := rollout.Cluster{
		Name: m.name, Share: m.share, Chosen: m.target, Entry: m.named(m.entry, m.revision, newest), Observed: m.observation(), Unreachable: m.unreachable, Failing: m.failing,
	}
	if m.entry.Seq > 0 {
		told := copyIn(m.work)
		c.Refused = !m.deliverable() || m.failed && !m.unreachable && told != nil && told.Seq == m.entry.Seq
	}
	if m.open {
		c.Taken = &rollout.Taken{Replicas: m.entry.Command.Replicas, Newest: m.newest, Differs: !m.agrees}
		if m.live != nil {
			c.Taken.Replicas = m.live.Command.Replicas
		}
	}
	return c
}

// deliverable reports whether the pod template of the newest command is known. If an engine died between storing a command and writing the Work, and the
// template was changed meanwhile, it is not; then the command never left, and is replaced by another one.
func (m *member) deliverable() bool {
	told := copyIn(m.work)
	return m.copy != nil && m.entry.Command.Revision == m.revision ||
		told != nil && !m.work.Deleting && told.Command.Revision == m.entry.Command.Revision
}

// observation returns the state of the object in the member; nil if it is not known.
func (m *member) observation() *rollout.Observation {
	told := copyIn(m.work)
	switch {
	case m.live == nil && m.unreachable:
		return nil
	case m.live == nil || told == nil:
		return &rollout.Observation{Version: m.entry.Seen} // there is no object
	}
	o := m.live.Observation
	if m.live.Seq == 0 && (told.Seq > 1 || m.agrees || m.open) {
		o.Seq = 1 // without a number, it has the first command
		if told.Seq == 1 {
			o.Revision = told.Command.Revision
		}
	}
	switch o.Revision {
	case m.revision:
		o.Revision = newest
	case told.Command.Revision:
	default:
		o.Revision = "" // its pod template is not known any more
	}
	return &o
}

// named returns an entry with another name for a revision.
func (m *member) named(entry rollout.Entry, from, to string) rollout.Entry {
	if entry.Command.Revision == from {
		entry.Command.Revision = to
	}
	entry.Revisions = slices.Clone(entry.Revisions)
	for i := range entry.Revisions {
		if entry.Revisions[i] == from {
			entry.Revisions[i] = to
		}
	}
	return entry
}

// decide takes the entry from a decision of the planner.
func (m *member) decide(d *rollout.Decision) {
	m.entry = m.named(d.Entry, newest, m.revision)
	if m.entry.Seq > 0 {
		m.entry.Seq += m.before
	}
}

// tell returns the Work that tells the cluster its newest command, nil if there is nothing to tell or no way to.
func (m *member) tell(ctx context.Context, r *rolling) (*workv1alpha1.Work, error) {
	told := copyIn(m.work)
	switch {
	case m.entry.Seq == 0 || m.unread:
		return nil, nil
	case m.copy != nil && m.entry.Command.Revision == m.revision:
		manifest, err := r.apply(ctx, &m.entry, m.copy.manifest)
		if err != nil {
			return nil, err
		}
		return r.b.workOf(r.binding, r.t, &rendered{cluster: m.name, manifest: manifest, trace: m.copy.trace})
	case told == nil || m.work.Deleting || told.Command.Revision != m.entry.Command.Revision:
		return nil, nil
	case told.Seq == m.entry.Seq && m.work.Suspended == ptr.Deref(suspended(r.binding, r.t, m.name), false) && m.work.ReportOnly == r.t.ReportsOnly(r.binding) &&
		m.work.Preserve == ptr.Deref(preserved(r.binding, r.t, m.name), false):
		return nil, nil
	default:
		return r.keep(ctx, m)
	}
}
