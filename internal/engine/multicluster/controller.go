// Package multicluster makes Services of some clusters reachable in others: those of MultiClusterServices under their own names, and those of
// ServiceExports under the name derived-<name> where a ServiceImport is placed.
//
// The EndpointSlices of the clusters that offer a Service become Works of the clusters that use it. They are written from what the collector has in
// memory. While that is not known about a cluster, because the engine has just started or the cluster is unreachable, its endpoints stay as they are.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/exposure"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Controller writes the Works of Services that clusters share, by the Service.
type Controller struct {
	cell     *cell.Cell
	slices   *endpointslices.Collector
	member   func(cluster string) (*fleet.Member, error)
	recorder *events.Recorder
	queue    *queue.Queue[cell.Key]
	left     left
	// asks limits how many clusters are asked at once for what they have left.
	asks *semaphore.Weighted
}

// New returns a controller that watches a cell, and members through the connections of execution.
func New(c *cell.Cell, members *execution.Controller, recorder *events.Recorder) *Controller {
	m := &Controller{cell: c, member: members.Member, recorder: recorder, queue: queue.New[cell.Key]("multicluster"), asks: semaphore.NewWeighted(askedAtOnce)}
	m.slices = endpointslices.New(c.Name, members.Follow, m.slicesChanged)
	m.subscribe()
	return m
}

// Run reconciles until the context ends.
func (m *Controller) Run(ctx context.Context, workers int) { m.queue.Run(ctx, workers, m.Reconcile) }

// subscribe watches what exposes Services, where it is placed, clusters, and Works that somebody deletes.
func (m *Controller) subscribe() {
	m.cell.Templates.Subscribe(func(key cell.TemplateKey, old, now *cell.Template) {
		switch key.GroupVersionKind {
		case exposure.MultiClusterServiceKind, exposure.ServiceImportKind:
			m.left.ownerChanged(key, old, now)
		}
		switch key.GroupVersionKind {
		case exposure.MultiClusterServiceKind, exposure.ServiceExportKind, exposure.ServiceImportKind:
			m.queue.AddNow(key.Key)
		case cell.ServiceKind:
			m.slicesChanged(key.Key)
		}
	})
	m.cell.SubscribeBindings(func(_ cell.Key, old, now *workv1alpha2.ResourceBinding) {
		binding := now
		if binding == nil {
			binding = old
		}
		ref := &binding.Spec.Resource
		switch ref.Kind {
		case exposure.ServiceExportKind.Kind, exposure.ServiceImportKind.Kind, cell.ServiceKind.Kind:
			m.slicesChanged(cell.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	})
	m.cell.Works.Subscribe(func(_ cell.Key, old, now *cell.Work) {
		work := now
		if work == nil {
			work = old
		}
		if service, shared := work.Service(); shared && (old == nil || now == nil || old.Digest != now.Digest) {
			m.queue.Add(service)
		}
	})
	m.cell.Clusters.Subscribe(func(key cell.Key, old, now *clusterv1alpha1.Cluster) {
		if now == nil {
			m.left.clusterGone(key.Name)
		}
		if old == nil || now == nil || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || servesSlices(old) != servesSlices(now) {
			m.enqueueAll()
		}
	})
}

// slicesChanged enqueues a Service if clusters share it.
func (m *Controller) slicesChanged(service cell.Key) {
	if exposure.Find(m.cell, exposure.MultiClusterServiceKind, service) != nil || exposure.Find(m.cell, exposure.ServiceImportKind, service) != nil {
		m.queue.Add(service)
	}
}

func (m *Controller) enqueueAll() {
	for _, t := range slices.Concat(m.cell.Templates.OfKind(exposure.MultiClusterServiceKind, ""), m.cell.Templates.OfKind(exposure.ServiceImportKind, "")) {
		m.queue.Add(t.Key().Key)
	}
}

// How often a Service is checked while a kind that could expose it is not listed, and while its endpoints in a cluster are not. The first list in the
// cluster enqueues it earlier, but nothing does if the cluster becomes unreachable.
const (
	unlistedPoll = 10 * time.Second
	waitPoll     = 2 * time.Second
)

// Reconcile creates, updates and deletes the Works of a Service that clusters share, and reports how it is.
func (m *Controller) Reconcile(ctx context.Context, service cell.Key) error {
	// 1. Read who shares the Service. What moves to another cell is left alone.
	if !exposure.Known(m.cell) {
		return queue.Later{After: unlistedPoll} // a kind that is not listed may still have it
	}
	if m.frozen(service) {
		return nil
	}
	cross, err := exposure.CrossClusterOf(m.cell, service)
	if err != nil {
		return err
	}
	importing, err := exposure.ImportOf(m.cell, service)
	if err != nil {
		return err
	}

	if cross != nil && cross.Template.Labels[names.MultiClusterServicePermanentIDLabel] == "" {
		label := map[string]any{names.MultiClusterServicePermanentIDLabel: cross.ID}
		return m.cell.PatchTemplate(ctx, cross.Template, map[string]any{"metadata": map[string]any{"labels": label, "resourceVersion": cross.Template.Version}})
	}

	// 2. Write the Works of both, then delete those that neither needs.
	needed := map[cell.Key]bool{}
	unknown := map[string]bool{}
	shares := map[types.UID]*share{}
	var dispatched, derived outcome
	if cross != nil {
		of := crossCluster(cross, service, m.placedService(service))
		shares[of.owner], dispatched = of, m.apply(ctx, of, needed, unknown)
	}
	if importing != nil {
		of, err := imported(importing, service)
		if err != nil {
			return err
		}
		shares[of.owner], derived = of, m.apply(ctx, of, needed, unknown)
	}
	reclaimErr := m.reclaim(ctx, service, shares)
	removed, err := m.remove(ctx, service, needed, unknown)
	err = errors.Join(reclaimErr, err)
	dispatched.written, derived.written = dispatched.written+removed, derived.written+removed

	// 3. Report.
	if cross != nil {
		err = errors.Join(err, m.report(ctx, cross, service, &dispatched))
	}
	if importing != nil {
		m.reportImport(importing, &derived)
	}
	if err := errors.Join(dispatched.err, derived.err, err); err != nil {
		return err
	}
	if len(dispatched.waits)+len(derived.waits) > 0 {
		return queue.Later{After: waitPoll}
	}
	return nil
}

// kinds are those that expose a Service, and it itself.
var kinds = append(exposure.Kinds(), cell.ServiceKind)

// frozen reports whether a Service, or what exposes it, moves to another cell.
func (m *Controller) frozen(service cell.Key) bool {
	return slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool {
		t := m.cell.Templates.Get(cell.TemplateKey{GroupVersionKind: kind, Key: service})
		return t != nil && t.Frozen
	})
}

// placedService returns the clusters that a Service is placed in.
func (m *Controller) placedService(service cell.Key) []string {
	binding := m.cell.Binding(cell.TemplateKey{GroupVersionKind: cell.ServiceKind, Key: service}.Binding())
	if binding == nil || m.cell.TemplateOf(binding) == nil {
		return nil
	}
	return exposure.ClustersOf(binding)
}

// outcome is what came of writing the Works of a share.
type outcome struct {
	written int
	// waits are the clusters whose endpoints are not known yet, and problems why those of some cannot be.
	waits    []string
	problems []string
	err      error
}

// apply writes the Works of a share. It adds them to those that are needed, and clusters whose endpoints are not known to unknown.
func (m *Controller) apply(ctx context.Context, s *share, needed map[cell.Key]bool, unknown map[string]bool) outcome {
	var result outcome
	s.providers, s.consumers = m.existing(s.providers), m.existing(s.consumers)
	wanted, waits, err := s.manifests(m.slices.Of)
	if err != nil {
		result.err = err
	}
	for _, cluster := range waits {
		unknown[cluster] = true
		if problem := m.problem(cluster); problem != nil {
			result.problems = append(result.problems, fmt.Sprintf("the EndpointSlices of cluster %s cannot be read: %v", cluster, problem))
		} else {
			result.waits = append(result.waits, cluster)
		}
	}
	written, err := m.writeAll(ctx, s, wanted, needed)
	result.written, result.err = written, errors.Join(result.err, err)
	return result
}

// existing returns the clusters that exist and are not being deleted.
func (m *Controller) existing(clusters []string) []string {
	return slices.DeleteFunc(slices.Clone(clusters), func(name string) bool {
		cluster := m.cell.Clusters.Get(cell.Key{Name: name})
		return cluster == nil || cluster.DeletionTimestamp != nil
	})
}

// problem returns why a member cannot be read.
func (m *Controller) problem(cluster string) error {
	member, err := m.member(cluster)
	if err != nil {
		return err
	}
	return member.Broken()
}

// remove deletes the Works of a Service that are not needed, and returns how many. Those with endpoints of a cluster about which nothing is known
// stay, unless their own cluster has gone.
func (m *Controller) remove(ctx context.Context, service cell.Key, needed map[cell.Key]bool, unknown map[string]bool) (int, error) {
	removed := 0
	var errs []error
	for _, work := range m.cell.WorksOfService(service) {
		if needed[work.Key] || work.Deleting || work.Frozen || unknown[work.Provider()] && len(m.existing([]string{work.Cluster})) > 0 {
			continue
		}
		removed++
		errs = append(errs, m.cell.DeleteWork(ctx, work))
	}
	return removed, errors.Join(errs...)
}

// reportImport records what came of the Service of a ServiceImport.
func (m *Controller) reportImport(i *exposure.Imported, result *outcome) {
	about := events.OfTemplate(i.Template)
	switch {
	case result.err == nil && len(result.problems) == 0:
		m.recorder.Also(about, "derived", names.EventSyncDerivedServiceSucceed, "the Service is in the clusters of the ServiceImport", result.written > 0)
	case result.err != nil && isTransient(result.err):
	default:
		m.recorder.Failed(about, "derived", names.EventSyncDerivedServiceFailed, result.message())
	}
}

// message returns what went wrong.
func (o *outcome) message() string {
	problems := slices.Clone(o.problems)
	if o.err != nil {
		problems = append(problems, o.err.Error())
	}
	return strings.Join(problems, "; ")
}

// isTransient reports whether users need not see an error: it resolves by itself, or the cluster is reported as unreachable.
func isTransient(err error) bool { return queue.Transient(err) || fleet.Unreachable(err) }
