package multicluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
	"github.com/cellplane/cellplane/internal/engine/exposure"
)

// What shares a Service comes to this cell, by a move or from a backup, without its Works. Those that are still needed are made again. But endpoints may have gone meanwhile, or a
// cluster may not use the Service any more, and nothing would ever remove what was sent there. So the clusters are asked once what they have of it. What has no Work gets one again,
// and is removed by that as it would have been in the former cell.

// gather is how long a list waits for others that it can serve, too: slots move in batches.
const gather = 2 * time.Second

// leftPoll is how often a cluster that does not answer is asked again.
const leftPoll = time.Minute

// leftPage is how many objects are read at once.
const leftPage = 500

// askedAtOnce is how many clusters are asked at the same time, and askTime how long one may take.
const (
	askedAtOnce = 8
	askTime     = time.Minute
)

// left is what clusters have of Services without a Work. It is kept in memory: an engine that starts asks each cluster once.
type left struct {
	mu sync.Mutex
	// stays are the owners that this cell has, by Service. One is removed when all clusters have been asked.
	stays    map[cell.Key]map[types.UID]*stay
	clusters map[string]*inventory
}

// stay is the time that an owner spends in this cell.
type stay struct {
	kind  schema.GroupVersionKind
	since time.Time
}

// inventory is what a cluster had when it was last asked, without what has been settled since.
type inventory struct {
	taken  time.Time // when that list began; zero before the first
	asking bool
	found  map[types.UID][]remnant
}

// covers reports whether the list is that of an owner who came at a time.
func (i *inventory) covers(since time.Time) bool { return i.taken.After(since) }

// remnant is an object in a cluster that was made for an owner.
type remnant struct {
	kind     schema.GroupVersionKind
	key      cell.Key
	provider string
	id       string // of its former Work
}

// ownerChanged notices that an owner came to this cell, or left it. One that is gone was deleted by its user, or with everything else in the cell: nobody knows.
func (l *left) ownerChanged(key cell.TemplateKey, old, now *cell.Template) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case now == nil:
		delete(l.stays[key.Key], old.UID)
	case now.Frozen:
		delete(l.stays[key.Key], now.UID)
	case isNew(now):
	case old == nil || old.Frozen || old.UID != now.UID:
		if l.stays[key.Key] == nil {
			if l.stays == nil {
				l.stays, l.clusters = map[cell.Key]map[types.UID]*stay{}, map[string]*inventory{}
			}
			l.stays[key.Key] = map[types.UID]*stay{}
		}
		l.stays[key.Key][now.UID] = &stay{kind: key.GroupVersionKind, since: time.Now()}
	}
	if len(l.stays[key.Key]) == 0 {
		delete(l.stays, key.Key)
	}
}

// isNew reports whether an owner has never had Works in any cell. A MultiClusterService gets its permanent ID before the first one. Nothing tells that of a ServiceImport: what comes from a
// backup has no mark of it, and its creation time.
func isNew(owner *cell.Template) bool {
	return owner.Kind.GroupVersionKind == exposure.MultiClusterServiceKind && owner.Labels[names.MultiClusterServicePermanentIDLabel] == ""
}

// clusterGone forgets what a cluster had.
func (l *left) clusterGone(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clusters, cluster)
}

// has reports whether an owner is still here since a time.
func (l *left) has(service cell.Key, owner types.UID, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.stays[service][owner]
	return known != nil && known.since.Equal(since)
}

// of returns the owners of a Service that not all clusters were asked about.
func (l *left) of(service cell.Key) map[types.UID]stay {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.stays[service]) == 0 {
		return nil
	}
	owners := make(map[types.UID]stay, len(l.stays[service]))
	for uid, stay := range l.stays[service] {
		owners[uid] = *stay
	}
	return owners
}

// done forgets an owner, unless it has come anew.
func (l *left) done(service cell.Key, owner types.UID, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.stays[service][owner]; known == nil || !known.since.Equal(since) {
		return
	}
	delete(l.stays[service], owner)
	if len(l.stays[service]) == 0 {
		delete(l.stays, service)
	}
}

// in returns what a cluster has of an owner, and whether that is known. If it is not, ask is set for the caller who has to ask.
func (l *left) in(cluster string, owner types.UID, since time.Time) (found []remnant, known, ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clusters[cluster]
	if of == nil {
		of = &inventory{}
		l.clusters[cluster] = of
	}
	if of.covers(since) {
		return slices.Clone(of.found[owner]), true, false
	}
	ask, of.asking = !of.asking, true
	return nil, false, ask
}

// settled forgets what nothing remains to be done about. Otherwise it would get a Work again when that is removed, as long as another cluster does not answer.
func (l *left) settled(cluster string, owner types.UID, r remnant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clusters[cluster]
	if of == nil {
		return
	}
	of.found[owner] = slices.DeleteFunc(of.found[owner], func(other remnant) bool { return other == r })
	if len(of.found[owner]) == 0 {
		delete(of.found, owner)
	}
}

// answered stores what a cluster has, and returns the Services that have waited for it. What is known of other owners stays: a part of it may be settled.
func (l *left) answered(cluster string, taken time.Time, found map[types.UID][]remnant, err error) []cell.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clusters[cluster]
	if of == nil {
		return nil // the cluster has gone
	}
	of.asking = false
	now := map[types.UID][]remnant{}
	var waiting []cell.Key
	for service, owners := range l.stays {
		waits := false
		for owner, stay := range owners {
			has := found[owner]
			if of.covers(stay.since) {
				has = of.found[owner]
			} else {
				waits = true
			}
			if len(has) > 0 {
				now[owner] = has
			}
		}
		if waits {
			waiting = append(waiting, service)
		}
	}
	if err == nil {
		of.taken, of.found = taken, now
	}
	return waiting
}

// settle is how long it may take until everything that a Service consists of has come to this cell from a backup.
const settle = 10 * time.Minute

// reclaim makes Works again for what clusters have of a Service without one, and do not need. They are removed like any other. Shares are those of the Service, by owner.
func (m *Controller) reclaim(ctx context.Context, service cell.Key, shares map[types.UID]*share) error {
	var errs []error
	for owner, stay := range m.left.of(service) {
		s := shares[owner]
		if s == nil {
			s = shareOf(stay.kind, owner, service)
		}
		if !m.placed(stay.kind, service) && time.Since(stay.since) < settle {
			m.queue.AddAfter(service, leftPoll)
			continue
		}
		complete := true
		offered := map[string]map[string]bool{}
		for _, cluster := range m.cell.Clusters.All() {
			if cluster.DeletionTimestamp != nil || cluster.Spec.SyncMode == clusterv1alpha1.Pull {
				continue // one in pull mode cannot be asked
			}
			found, known, ask := m.left.in(cluster.Name, owner, stay.since)
			if ask {
				time.AfterFunc(gather, func() { m.ask(cluster.Name) })
			}
			complete = complete && known
			for i := range found {
				done, err := m.reclaimOne(ctx, s, cluster.Name, &found[i], stay.since, offered)
				if done {
					m.left.settled(cluster.Name, owner, found[i])
				}
				complete, errs = complete && done, append(errs, err)
			}
		}
		if complete {
			m.left.done(service, owner, stay.since)
		}
	}
	return errors.Join(errs...)
}

// placed reports whether it is known which clusters offer and use a Service: all that says so has come to this cell, and is scheduled.
func (m *Controller) placed(kind schema.GroupVersionKind, service cell.Key) bool {
	needed := []schema.GroupVersionKind{cell.ServiceKind}
	if kind == exposure.ServiceImportKind {
		needed = []schema.GroupVersionKind{exposure.ServiceExportKind, exposure.ServiceImportKind}
	}
	for _, of := range needed {
		key := cell.TemplateKey{GroupVersionKind: of, Key: service}
		template, binding := m.cell.Templates.Get(key), m.cell.Binding(key.Binding())
		if template == nil || binding == nil || m.cell.TemplateOf(binding) != template || len(exposure.ClustersOf(binding)) == 0 {
			return false
		}
	}
	return true
}

// shareOf returns what is known of the share of an owner that does not share its Service any more.
func shareOf(kind schema.GroupVersionKind, owner types.UID, service cell.Key) *share {
	if kind == exposure.ServiceImportKind {
		return &share{owner: owner, service: service, managedBy: names.ManagedByServiceExport, labels: importLabels(service)}
	}
	return &share{owner: owner, service: service, managedBy: names.ClaimedByMultiClusterService, labels: crossClusterLabels(service)}
}

// reclaimOne makes the Work of an object in a cluster. It is not dispatched, and says only what the object is. It reports whether nothing remains to be done. Since
// is when its owner came, and offered are the names of the EndpointSlices that clusters have.
func (m *Controller) reclaimOne(ctx context.Context, s *share, cluster string, r *remnant, since time.Time, offered map[string]map[string]bool) (done bool, err error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.kind)
	object.SetNamespace(r.key.Namespace)
	object.SetName(r.key.Name)
	wanted := &manifest{cluster: cluster, provider: r.provider, object: object}
	key := workKey(wanted)
	if m.cell.Works.Get(key) != nil || r.id != workID(s, key) {
		return true, nil
	}
	if slices.Contains(s.providers, r.provider) && slices.Contains(s.consumers, cluster) {
		// The engine sees what the cluster offers only when it has marked the Service there as its own. Until then the endpoints stay.
		if offered[r.provider] == nil {
			if offered[r.provider], err = m.offeredBy(ctx, s, r.provider); err != nil {
				klog.FromContext(ctx).V(2).Info("cannot read what a cluster offers", "service", s.service, "cluster", r.provider, "err", err)
				offered[r.provider] = nil
			}
		}
		if offered[r.provider] == nil || offered[r.provider][r.key.Name] {
			m.queue.AddAfter(s.service, offerPoll)
			return false, nil
		}
	}
	if !m.left.has(s.service, s.owner, since) || m.frozen(s.service) {
		return false, nil // it went on to another cell while a cluster was asked
	}
	klog.FromContext(ctx).Info("a cluster has what was sent for a Service in another cell", "service", s.service, "cluster", cluster, "object", r.key)
	err = m.create(ctx, s, key, wanted, true)
	return err == nil, err
}

// offerPoll is how often endpoints are looked at that this cell does not see yet.
const offerPoll = 10 * time.Second

// offeredBy reads the EndpointSlices of a Service in a cluster, and returns the names that those have elsewhere that are sent.
func (m *Controller) offeredBy(ctx context.Context, s *share, cluster string) (map[string]bool, error) {
	member, err := m.member(cluster)
	if err != nil {
		return nil, err
	}
	if err := member.Broken(); err != nil {
		return nil, err
	}
	client, _, err := member.Resource(ctx, endpointslices.Kind, s.service.Namespace)
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.service.Name + "," + discoveryv1.LabelManagedBy + "!=" + names.DispatchedEndpointSlice})
	if err != nil {
		member.Report(err)
		return nil, err
	}
	return s.offered(cluster, list.Items)
}

// offered returns the names that EndpointSlices of a cluster have elsewhere. Those that are not sent, because they have no endpoints, do not count.
func (s *share) offered(provider string, live []unstructured.Unstructured) (map[string]bool, error) {
	offered := map[string]bool{}
	for i := range live {
		from := endpointslices.Condense(&live[i])
		if from == nil {
			continue
		}
		object, err := s.slice(provider, from)
		if err != nil {
			return nil, err
		}
		if object != nil {
			offered[object.GetName()] = true
		}
	}
	return offered, nil
}

// ask lists what a cluster has of all Services.
func (m *Controller) ask(cluster string) {
	_ = m.asks.Acquire(context.Background(), 1) // it fails only when the context ends
	taken := time.Now()
	found, err := m.remnants(cluster)
	m.asks.Release(1)
	for _, service := range m.left.answered(cluster, taken, found, err) {
		if err == nil {
			m.queue.Add(service)
			continue
		}
		m.queue.AddAfter(service, leftPoll)
	}
	if err != nil {
		klog.V(2).InfoS("cannot read what a cluster has of Services", "cluster", cluster, "err", err)
	}
}

// remnants reads what was made for Services in a cluster and has no Work in this cell, by owner.
func (m *Controller) remnants(cluster string) (map[types.UID][]remnant, error) {
	member, err := m.member(cluster)
	if err != nil {
		return nil, err
	}
	if err := member.Broken(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(member.Context(), askTime)
	defer cancel()
	found := map[types.UID][]remnant{}
	for kind, selector := range remnantSelectors {
		client, _, err := member.Resource(ctx, kind, "")
		if err != nil {
			return nil, err
		}
		options := metav1.ListOptions{LabelSelector: selector, Limit: leftPage}
		for {
			list, err := client.List(ctx, options)
			if err != nil {
				member.Report(err)
				return nil, fmt.Errorf("listing %ss in cluster %s: %w", kind.Kind, cluster, err)
			}
			for i := range list.Items {
				object := &list.Items[i]
				annotations := object.GetAnnotations()
				owner := types.UID(annotations[names.TemplateUIDAnnotation])
				key := workKey(&manifest{cluster: cluster, object: object})
				if owner == "" || m.cell.Works.Get(key) != nil {
					continue
				}
				found[owner] = append(found[owner], remnant{
					kind: kind, key: cell.Key{Namespace: object.GetNamespace(), Name: object.GetName()},
					provider: annotations[names.ProvisionClusterAnnotation], id: object.GetLabels()[names.WorkPermanentIDLabel],
				})
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return found, nil
}

// remnantSelectors select what is made for Services: EndpointSlices of other clusters, and Services without a binding.
var remnantSelectors = map[schema.GroupVersionKind]string{
	endpointslices.Kind: names.ManagedLabel + "=" + names.ManagedValue + "," + discoveryv1.LabelManagedBy + "=" + names.DispatchedEndpointSlice,
	cell.ServiceKind:    names.ManagedLabel + "=" + names.ManagedValue + ",!" + names.ResourceBindingPermanentIDLabel,
}
