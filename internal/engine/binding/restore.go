package binding

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/rollout"
)

// A workload that comes to this cell, by a move or from a backup, comes without its Works. For a workload that is updated step by step they cannot be derived from
// the template alone: a cluster that has not begun has its pod template nowhere else, and the ledger may lack the newest commands. So they are made again from
// what the members have, before anything is planned.

// missing is a cluster that has the workload, as far as is known, and no Work.
type missing struct {
	// wanted is what the cluster should get in the end; for one that is being left, what the others should get.
	wanted rendered
	left   bool
	// work is made from the object in the member; nil if there is none. Differs is whether the cluster has something else than it should get, and unread whether it
	// did not answer.
	work            *workv1alpha1.Work
	differs, unread bool
}

// restore returns the Works that are to be written before anything else. Clusters that do not answer are marked as unread.
func (r *rolling) restore(ctx context.Context, targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered, plans bool) ([]*workv1alpha1.Work, error) {
	all := r.missing(targets, works, copies, plans)
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() { errs[i] = r.restoreOne(ctx, &all[i], plans) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var restored []*workv1alpha1.Work
	differs := r.stored
	for i := range all {
		differs = differs || all[i].differs || all[i].unread
		switch {
		case all[i].unread && all[i].left && plans:
			r.held = true // until it answers, or is found not to be ready and given up: nobody knows how many pods it has
		case all[i].unread:
			r.unread = append(r.unread, all[i].wanted.cluster)
		case all[i].left && all[i].work == nil:
			r.b.left.note(r.binding, all[i].wanted.cluster, true)
		}
		if all[i].work != nil {
			restored = append(restored, all[i].work)
		}
	}
	if !differs {
		return nil, nil // all clusters have what the template says
	}
	return restored, nil
}

// missing returns the clusters that may have the workload, and have no Work. Those in pull mode cannot be asked. One that is left is among them if it is left step by step.
func (r *rolling) missing(targets []workv1alpha2.TargetCluster, works []*cell.Work, copies []rendered, plans bool) []missing {
	if len(copies) == 0 {
		return nil
	}
	var all []missing
	add := func(wanted rendered, left bool) {
		cluster := r.b.cell.Clusters.Get(cell.Key{Name: wanted.cluster})
		if cluster != nil && cluster.Spec.SyncMode != clusterv1alpha1.Pull && !slices.ContainsFunc(works, func(w *cell.Work) bool { return w.Cluster == wanted.cluster }) {
			all = append(all, missing{wanted: wanted, left: left})
		}
	}
	for i := range copies {
		if r.had(copies[i].cluster) {
			add(copies[i], false)
		}
	}
	chosen := func(name string) bool {
		return slices.ContainsFunc(copies, func(c rendered) bool { return c.cluster == name })
	}
	var leaves []string
	if plans {
		leaves = r.b.leftAt(r.binding, works, func(name string) bool { return !isTarget(targets, name) })
	}
	for name := range r.ledger {
		if !chosen(name) && r.ledger[name].Command.Replicas > 0 && !slices.Contains(leaves, name) {
			leaves = append(leaves, name)
		}
	}
	slices.Sort(leaves)
	for _, name := range leaves {
		if !r.givenUp(name) {
			left := copies[0]
			left.cluster, left.trace = name, nil
			add(left, !isTarget(targets, name))
		}
	}
	return all
}

// had reports whether a cluster may have the workload: the ledger or the status says so.
func (r *rolling) had(cluster string) bool {
	return r.ledger[cluster].Command.Replicas > 0 || slices.ContainsFunc(r.binding.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool {
		return item.ClusterName == cluster
	})
}

// restoreOne makes the Work of a cluster from its object there.
func (r *rolling) restoreOne(ctx context.Context, m *missing, plans bool) error {
	wanted := &m.wanted
	live, err := r.b.read(ctx, wanted.cluster, r.t.Kind.GroupVersionKind, cell.Key{Namespace: r.t.Namespace, Name: r.t.Name})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("cannot read what a cluster has", "binding", klog.KObj(r.binding), "cluster", wanted.cluster, "err", err)
		m.unread = true
		return nil
	}
	if live == nil || live.GetDeletionTimestamp() != nil || !r.owns(live) {
		return nil
	}
	m.differs = m.left
	told, err := r.toldBy(ctx, live)
	if err != nil {
		return err
	}
	manifest := wanted.manifest
	if told != nil && wanted.asks != nil && !m.left && r.hasBegun(wanted) && isOpen(live) {
		told = &rollout.Copy{Seq: told.Seq, Command: wanted.asks.Command} // what people have made of it is not what the federation wants
	} else if manifest, err = rollout.WithLiveTemplate(manifest, live); err != nil {
		return err
	}
	t := *r.t
	if kept := manifest != wanted.manifest; kept {
		m.differs, t.Generation = true, generationIn(live)
	}
	if told != nil {
		m.differs = m.differs || told.Seq > 0 || wanted.asks != nil && told.Command.Replicas != wanted.asks.Command.Replicas
		if manifest, err = r.commanded(ctx, wanted.cluster, told, manifest, plans); err != nil {
			return err
		}
	}
	m.work, err = r.b.workOf(r.binding, &t, &rendered{cluster: wanted.cluster, manifest: manifest, trace: wanted.trace})
	return err
}

// hasBegun reports whether a cluster was told already to have the pod template that it should have in the end. Then that need not be read from the cluster.
func (r *rolling) hasBegun(wanted *rendered) bool {
	if entry, stored := r.ledger[wanted.cluster]; stored {
		return entry.Command.Revision == wanted.asks.Command.Revision
	}
	return r.binding.Annotations[names.RolloutStagesAnnotation] == ""
}

// isOpen reports whether an object in a member is out of the federation's hands.
func isOpen(live *unstructured.Unstructured) bool {
	_, open := entry.Of(live.GetAnnotations())
	return open
}

// owns reports whether an object in a member is the copy of this template.
func (r *rolling) owns(live *unstructured.Unstructured) bool {
	label := names.ResourceBindingPermanentIDLabel
	if r.binding.Namespace == "" {
		label = names.ClusterResourceBindingPermanentIDLabel
	}
	return live.GetLabels()[names.ManagedLabel] == names.ManagedValue && live.GetLabels()[label] == bindingID(r.binding) &&
		live.GetAnnotations()[names.TemplateUIDAnnotation] == string(r.t.UID)
}

// toldBy returns what an object in a member was told; nil if rollouts of its kind are not planned.
func (r *rolling) toldBy(ctx context.Context, live *unstructured.Unstructured) (*rollout.Copy, error) {
	if known := rollout.LiveOf(live); known != nil {
		return &known.Copy, nil
	}
	if r.says == nil {
		return nil, nil
	}
	says, err := r.b.interpreter.Rollout(ctx, live)
	if says == nil || err != nil {
		return nil, err
	}
	interpreted, err := rollout.InterpretedLive(live, says)
	if err != nil {
		return nil, err
	}
	return &interpreted.Copy, nil
}

// commanded returns the manifest with the newest command that the cluster is known to have. A workload that is not planned keeps only its number, and one that never
// was has none.
func (r *rolling) commanded(ctx context.Context, cluster string, told *rollout.Copy, manifest *unstructured.Unstructured, plans bool) (*unstructured.Unstructured, error) {
	entry, stored := r.ledger[cluster]
	has := entry.Restored(told, rollout.RevisionOf(manifest))
	switch {
	case plans && (stored || told.Seq > 0):
		return r.apply(ctx, &has, manifest)
	case plans:
		return r.b.interpreter.ReviseReplica(ctx, manifest, int32(told.Command.Replicas)) //nolint:gosec // an API has them as int32
	case r.says == nil:
		return rollout.Number(manifest, has.Seq, rollout.RevisionOf(manifest)), nil
	default:
		return has.Mark(manifest), nil
	}
}

// generationIn returns the generation of the template that an object in a member was made from; 0 if it does not tell.
func generationIn(live *unstructured.Unstructured) int64 {
	generation, err := strconv.ParseInt(live.GetAnnotations()[names.TemplateGenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}
