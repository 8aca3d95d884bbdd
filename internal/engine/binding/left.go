package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout"
)

// A binding that comes to this cell, by a move or from a backup, comes without its Works. Those of the clusters that it is placed in are made again. But a cluster that was
// evicted, or is no longer chosen, may still have its copy, and nothing would ever remove that. The binding tells where there may be one: its status and its eviction tasks name
// the cluster. So such a cluster is asked once. If the copy is there, it gets a Work again, and is removed by that as it would have been in the former cell.

// leftPoll is how often a cluster that does not answer is asked again, if nothing tells that it is back.
const leftPoll = time.Minute

// left is what is known about clusters that bindings have left. It is kept in memory: who does not know asks again.
type left struct {
	mu sync.Mutex
	of map[cell.Key]*leftClusters
}

type leftClusters struct {
	// stay names the time that the binding spends in this cell: if it comes again, what was known does not count.
	stay string
	// gone has the clusters that are known to have no copy, and silent those that did not answer.
	gone, silent map[string]bool
}

func stayOf(binding *workv1alpha2.ResourceBinding) string {
	return string(binding.UID) + " " + binding.Annotations[names.MovedFromAnnotation]
}

// note remembers whether a cluster has no copy any more, or did not answer. It reports whether that is news.
func (l *left) note(binding *workv1alpha2.ResourceBinding, cluster string, gone bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	known := l.of[key]
	if known == nil || known.stay != stayOf(binding) {
		if l.of == nil {
			l.of = map[cell.Key]*leftClusters{}
		}
		known = &leftClusters{stay: stayOf(binding), gone: map[string]bool{}, silent: map[string]bool{}}
		l.of[key] = known
	}
	delete(known.silent, cluster)
	if gone {
		news, known.gone[cluster] = !known.gone[cluster], true
		return news
	}
	known.silent[cluster] = true
	return false
}

// isGone reports whether a cluster is known to have no copy.
func (l *left) isGone(binding *workv1alpha2.ResourceBinding, cluster string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.of[cell.Key{Namespace: binding.Namespace, Name: binding.Name}]
	return known != nil && known.stay == stayOf(binding) && known.gone[cluster]
}

// returned forgets what is known about a cluster that gets a Work.
func (l *left) returned(binding cell.Key, cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.of[binding]; known != nil {
		delete(known.gone, cluster)
		delete(known.silent, cluster)
	}
}

// trim forgets clusters that the binding does not name any more: nobody asks for them.
func (l *left) trim(binding *workv1alpha2.ResourceBinding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	known := l.of[key]
	if known == nil {
		return
	}
	named := namedBy(binding)
	for _, clusters := range []map[string]bool{known.gone, known.silent} {
		maps.DeleteFunc(clusters, func(name string, _ bool) bool { return !named[name] })
	}
	if len(known.gone)+len(known.silent) == 0 {
		delete(l.of, key)
	}
}

// forget forgets a binding.
func (l *left) forget(binding cell.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, binding)
}

// asked returns the bindings of which a cluster was asked, and did not answer.
func (l *left) asked(cluster string) []cell.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []cell.Key
	for key, known := range l.of {
		if known.silent[cluster] {
			all = append(all, key)
		}
	}
	return all
}

// workChanged notices that the Work of a binding was created, or was removed together with the copy. One that is frozen is what a move has left behind: its removal says
// nothing about the copy.
func (b *Controller) workChanged(old, now *cell.Work) {
	switch {
	case now != nil && old == nil:
		b.left.returned(now.Binding, now.Cluster)
	case now == nil && !old.Frozen:
		if binding := b.cell.Binding(old.Binding); binding != nil {
			b.left.note(binding, old.Cluster, true)
		}
	}
}

// Answers is called with a cluster when it may answer although it did not before.
func (b *Controller) Answers(cluster string) {
	for _, key := range b.left.asked(cluster) {
		b.queue.Add(key)
	}
}

// MayHaveCopy reports whether a cluster without a Work may still have the copy of a binding that has left it.
func (b *Controller) MayHaveCopy(binding *workv1alpha2.ResourceBinding, cluster string) bool {
	return b.canBeAsked(cluster) && !b.left.isGone(binding, cluster)
}

// canBeAsked reports whether a cluster exists and is in push mode.
func (b *Controller) canBeAsked(name string) bool {
	cluster := b.cell.Clusters.Get(cell.Key{Name: name})
	return cluster != nil && cluster.Spec.SyncMode != clusterv1alpha1.Pull
}

// leaves reports whether a cluster leaves the federation.
func (b *Controller) leaves(name string) bool {
	cluster := b.cell.Clusters.Get(cell.Key{Name: name})
	return cluster == nil || cluster.DeletionTimestamp != nil
}

// leftAt returns the clusters without a Work that may still have the copy of a binding, by its status and its eviction tasks.
func (b *Controller) leftAt(binding *workv1alpha2.ResourceBinding, works []*cell.Work, leaves func(cluster string) bool) []string {
	named := namedBy(binding)
	maps.DeleteFunc(named, func(name string, _ bool) bool {
		return !leaves(name) || workIn(works, name) != nil || !b.MayHaveCopy(binding, name)
	})
	return slices.Sorted(maps.Keys(named))
}

// namedBy returns the clusters that the status and the eviction tasks of a binding name.
func namedBy(binding *workv1alpha2.ResourceBinding) map[string]bool {
	named := map[string]bool{}
	for i := range binding.Status.AggregatedStatus {
		named[binding.Status.AggregatedStatus[i].ClusterName] = true
	}
	for i := range binding.Spec.GracefulEvictionTasks {
		named[binding.Spec.GracefulEvictionTasks[i].FromCluster] = true
	}
	return named
}

// reclaim makes Works again for copies in some clusters. It reports whether there are any, and which clusters did not answer. The creation of a Work enqueues the binding.
func (r *rolling) reclaim(ctx context.Context, clusters []string) (reclaimed bool, silent []string, err error) {
	works, errs := make([]*workv1alpha1.Work, len(clusters)), make([]error, len(clusters))
	var group sync.WaitGroup
	for i, name := range clusters {
		group.Go(func() {
			live, err := r.b.read(ctx, name, r.t.Kind.GroupVersionKind, cell.Key{Namespace: r.t.Namespace, Name: r.t.Name})
			switch {
			case err != nil:
				klog.FromContext(ctx).V(2).Info("cannot read what a cluster has that was left", "binding", klog.KObj(r.binding), "cluster", name, "err", err)
				errs[i] = err
			case live != nil && r.owns(live):
				works[i], errs[i] = r.workOfLeft(name, live)
			}
		})
	}
	group.Wait()
	var failures []error
	for i, name := range clusters {
		switch {
		case works[i] != nil:
			klog.FromContext(ctx).Info("a cluster that was left in another cell still has its copy", "binding", klog.KObj(r.binding), "cluster", name)
			if err := r.b.create(ctx, works[i]); err != nil && !apierrors.IsAlreadyExists(err) {
				failures = append(failures, err)
			}
			reclaimed = true
		case errs[i] != nil && r.b.leaves(name):
			// It may never answer again.
		case errs[i] != nil:
			silent = append(silent, name)
			r.b.left.note(r.binding, name, false)
		case r.b.left.note(r.binding, name, true):
			r.b.problems.changed(cell.Key{Namespace: r.binding.Namespace, Name: r.binding.Name}) // the status need not name it any more
		}
	}
	return reclaimed, silent, errors.Join(failures...)
}

// workOfLeft returns a Work for an object in a member that was left. It says what the object is, and is not dispatched: nothing is to change there before the object is
// removed, and if somebody removes it first, it must not be created again. By the ID of its former Work the object is known to belong to it.
func (r *rolling) workOfLeft(cluster string, live *unstructured.Unstructured) (*workv1alpha1.Work, error) {
	t := *r.t
	t.Generation = generationIn(live)
	manifest, err := r.b.interpreter.Prune(live)
	if err != nil {
		return nil, fmt.Errorf("preparing the removal of %s from cluster %s: %w", t.Key(), cluster, err)
	}
	work := newWork(r.binding, &t, cluster)
	work.Labels[names.WorkPermanentIDLabel] = live.GetLabels()[names.WorkPermanentIDLabel]
	stamped := r.b.stamp(work, r.binding, &t, withoutMarks(manifest))
	if err := setManifest(work, r.binding, &t, cluster, stamped); err != nil {
		return nil, err
	}
	work.Spec.SuspendDispatching = ptr.To(true)
	return work, nil
}

// withoutMarks returns a manifest without what the federation has added, except the command that it carries and what that has replaced.
func withoutMarks(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	manifest = manifest.DeepCopy()
	mark := func(key, _ string) bool {
		return names.IsMark(key) && key != names.RolloutCommandAnnotation && key != names.RolloutReplacedAnnotation
	}
	labels, annotations := manifest.GetLabels(), manifest.GetAnnotations()
	maps.DeleteFunc(labels, mark)
	maps.DeleteFunc(annotations, mark)
	manifest.SetLabels(labels)
	manifest.SetAnnotations(annotations)
	return manifest
}

// reclaimLeft makes Works again for copies in clusters that are not chosen any more. It returns nil if there is nothing to wait for. What a rollout leaves step by step
// is restored with its other clusters.
func (r *rolling) reclaimLeft(ctx context.Context, targets []workv1alpha2.TargetCluster, works []*cell.Work, stepwise bool) (*planned, error) {
	clusters := r.b.leftAt(r.binding, works, func(name string) bool {
		return !isTarget(targets, name) && (!stepwise || r.givenUp(name))
	})
	if len(clusters) == 0 {
		return nil, nil
	}
	reclaimed, silent, err := r.reclaim(ctx, clusters)
	if err != nil {
		return nil, err
	}
	if reclaimed {
		return r.first(nil, works), nil
	}
	r.silent = silent
	return nil, nil
}

// blocks reports whether a cluster that is evicted directly, and did not answer, may still have its copy. Until it is known to be gone, no new cluster gets one.
func (r *rolling) blocks() bool {
	return slices.ContainsFunc(r.binding.Spec.GracefulEvictionTasks, func(task workv1alpha2.GracefulEvictionTask) bool {
		return task.PurgeMode == policyv1alpha1.PurgeModeDirectly && slices.Contains(r.silent, task.FromCluster)
	})
}

// reclaimAll makes Works again for all copies of a binding that is deleted, so that they are removed. It reports whether there may be any.
func (b *Controller) reclaimAll(ctx context.Context, binding *workv1alpha2.ResourceBinding) (some bool, err error) {
	clusters := b.leftAt(binding, nil, func(string) bool { return true })
	if len(clusters) == 0 {
		return false, nil
	}
	ledger, err := rollout.DecodeLedger(binding.Annotations[names.RolloutAnnotation])
	if err != nil {
		return false, err
	}
	t, err := b.templateOrRemains(binding)
	if t == nil || err != nil {
		return false, err
	}
	r := &rolling{b: b, binding: binding, t: t, ledger: ledger}
	reclaimed, silent, err := r.reclaim(ctx, clusters)
	return reclaimed || len(silent) > 0, err
}

// templateOrRemains returns the template of a binding; if it is gone, what the binding says about it. It is nil if the binding never had one.
func (b *Controller) templateOrRemains(binding *workv1alpha2.ResourceBinding) (*cell.Template, error) {
	if t := b.cell.TemplateOf(binding); t != nil {
		return t, nil
	}
	ref := &binding.Spec.Resource
	if ref.Namespace != binding.Namespace || ref.UID == "" {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("reading the kind of %s: %w", ref.Name, err)
	}
	return &cell.Template{Kind: &cell.Kind{GroupVersionKind: gv.WithKind(ref.Kind)}, Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, nil
}
