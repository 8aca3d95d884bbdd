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

// inventory is what a cluster had when it was last asked.
type inventory struct {
	taken  time.Time // when that list began; zero before the first
	asking bool
	found  map[types.UID][]remnant
}

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
	if of.taken.After(since) {
		return of.found[owner], true, false
	}
	ask, of.asking = !of.asking, true
	return nil, false, ask
}

// answered stores what a cluster has, and returns the Services that may have waited for it.
func (l *left) answered(cluster string, taken time.Time, found map[types.UID][]remnant, err error) []cell.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clusters[cluster]
	of.asking = false
	if err == nil {
		of.taken, of.found = taken, map[types.UID][]remnant{}
	}
	services := make([]cell.Key, 0, len(l.stays))
	for service, owners := range l.stays {
		services = append(services, service)
		for owner := range owners {
			if len(found[owner]) > 0 && err == nil {
				of.found[owner] = found[owner]
			}
		}
	}
	return services
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
		if !m.offers(stay.kind, service) && time.Since(stay.since) < settle {
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
				done, err := m.reclaimOne(ctx, s, cluster.Name, &found[i], offered)
				complete, errs = complete && done, append(errs, err)
			}
		}
		if complete {
			m.left.done(service, owner, stay.since)
		}
	}
	return errors.Join(errs...)
}

// offers reports whether what is to be shared has come to this cell: the Service, or its ServiceExport.
func (m *Controller) offers(kind schema.GroupVersionKind, service cell.Key) bool {
	of := cell.ServiceKind
	if kind == exposure.ServiceImportKind {
		of = exposure.ServiceExportKind
	}
	key := cell.TemplateKey{GroupVersionKind: of, Key: service}
	return m.cell.Templates.Get(key) != nil && m.cell.Binding(key.Binding()) != nil
}

// shareOf returns what is known of the share of an owner that does not share its Service any more.
func shareOf(kind schema.GroupVersionKind, owner types.UID, service cell.Key) *share {
	if kind == exposure.ServiceImportKind {
		return &share{owner: owner, service: service, managedBy: names.ManagedByServiceExport, labels: importLabels(service)}
	}
	return &share{owner: owner, service: service, managedBy: names.ClaimedByMultiClusterService, labels: crossClusterLabels(service)}
}

// reclaimOne makes the Work of an object in a cluster. It is not dispatched, and says only what the object is. It reports whether nothing remains to be done. Offered
// are the names of the EndpointSlices that clusters have.
func (m *Controller) reclaimOne(ctx context.Context, s *share, cluster string, r *remnant, offered map[string]map[string]bool) (done bool, err error) {
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
	klog.FromContext(ctx).Info("a cluster has what was sent for a Service in another cell", "service", s.service, "cluster", cluster, "object", r.key)
	err = m.create(ctx, s, key, wanted, true)
	return err == nil, err
}

// offerPoll is how often endpoints are looked at that this cell does not see yet.
const offerPoll = 10 * time.Second

// offeredBy reads the EndpointSlices of a Service in a cluster, and returns the names that they have elsewhere.
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
	offered := map[string]bool{}
	for i := range list.Items {
		offered[s.sliceName(cluster, list.Items[i].GetName())] = true
	}
	return offered, nil
}

// ask lists what a cluster has of all Services.
func (m *Controller) ask(cluster string) {
	taken := time.Now()
	found, err := m.remnants(cluster)
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
	ctx := member.Context()
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
