package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/slots"
)

// debounce is how long to wait after a change on the hub for others that belong to it.
const debounce = 50 * time.Millisecond

// HubSource watches the CellTopology, the Cells and the Secrets with their credentials on the hub.
type HubSource struct {
	topologies, cells, secrets cache.SharedIndexInformer
	changed                    chan struct{}

	mu       sync.Mutex
	versions []*cellplanev1alpha1.CellTopology // not delivered yet
	last     *cellplanev1alpha1.CellTopology
}

// NewHubSource returns a source that watches the hub.
func NewHubSource(hub *rest.Config) (*HubSource, error) {
	objects, err := RESTClient(hub)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the topology: %w", err)
	}
	s := &HubSource{changed: make(chan struct{}, 1)}
	everything := fields.Everything()
	s.topologies = informer(cache.NewListWatchFromClient(objects, "celltopologies", "", everything), &cellplanev1alpha1.CellTopology{})
	s.cells = informer(cache.NewListWatchFromClient(objects, "cells", "", everything), &cellplanev1alpha1.Cell{})
	s.secrets = informer(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "secrets", names.SystemNamespace, everything), &corev1.Secret{})
	for _, i := range s.all() {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.push(object) },
			UpdateFunc: func(_, object any) { s.push(object) },
			DeleteFunc: func(any) { s.notify() },
		}); err != nil {
			return nil, fmt.Errorf("preparing to watch the topology: %w", err)
		}
	}
	return s, nil
}

// RESTClient returns a client for Cellplane's own kinds.
func RESTClient(hub *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := cellplanev1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(hub)
	config.APIPath = "/apis"
	config.GroupVersion = &cellplanev1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for %s: %w", cellplanev1alpha1.GroupVersion, err)
	}
	return client, nil
}

func informer(source cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(source, example, 0, cache.Indexers{})
}

func (s *HubSource) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{s.topologies, s.cells, s.secrets}
}

func (s *HubSource) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run delivers the topology whenever it changes.
func (s *HubSource) Run(ctx context.Context, deliver func(Topology)) error {
	var synced []cache.InformerSynced
	for _, i := range s.all() {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	var waiting time.Time
	var without int64 // the last epoch that is routed by without owners
	for {
		versions := s.undelivered()
		var again <-chan time.Time
		for i, version := range versions {
			topology, err := s.topologyOf(version)
			if err != nil {
				klog.FromContext(ctx).Error(err, "cannot use the hub's topology; keeping the last one")
				continue
			}
			if topology.Epoch > without && s.lacksOwners(&topology) {
				if waiting.IsZero() {
					waiting = time.Now()
				}
				if left := ownersWait - time.Since(waiting); left > 0 {
					s.putBack(versions[i:])
					again = time.After(left)
					break
				}
				klog.FromContext(ctx).Info("the hub manager has not published the owners of slots; routing without them", "epoch", topology.Epoch)
				without = topology.Epoch
			}
			waiting = time.Time{}
			deliver(topology)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			continue
		case <-s.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(debounce):
		}
	}
}

// undelivered returns the versions of the CellTopology since the last call, oldest first; the last one again if only another object has
// changed. It skips none: positions are carried from one epoch to the next, however short one was.
func (s *HubSource) undelivered() []*cellplanev1alpha1.CellTopology {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := s.versions
	if n := len(versions); n > 0 {
		s.versions, s.last = nil, versions[n-1]
		return versions
	}
	if s.last == nil {
		return nil
	}
	return []*cellplanev1alpha1.CellTopology{s.last}
}

// ownersWait is how long an epoch that is in force waits for the owners of its slots. The hub manager publishes them before, but another
// watch brings them. A hub manager of an earlier release does not publish them at all.
const ownersWait = 5 * time.Second

// lacksOwners reports whether the owners of an epoch in force should arrive soon.
func (s *HubSource) lacksOwners(topology *Topology) bool {
	if !topology.Ready || len(topology.Owners) > 0 {
		return false
	}
	epochs, err := slots.PublishedEpochs(s.published())
	return err == nil && len(epochs) > 0 && epochs[len(epochs)-1] < topology.Epoch
}

// published returns what the hub manager has published about the owners of slots.
func (s *HubSource) published() map[string][]byte {
	object, found, err := s.secrets.GetStore().GetByKey(names.SystemNamespace + "/" + names.SlotOwnersSecret)
	secret, ok := object.(*corev1.Secret)
	if err != nil || !found || !ok {
		return nil
	}
	return secret.Data
}

// ownersOf returns the encoded owners of an epoch; nil if they are not published, or cannot be read.
func (s *HubSource) ownersOf(epoch int64) []byte {
	published := s.published()
	if _, err := slots.PublishedOwners(published, epoch); err != nil {
		klog.Background().Error(err, "cannot read the published owners of slots", "epoch", epoch)
		return nil
	}
	return published[slots.PublishedKey(epoch)]
}

// putBack has versions delivered with the next ones.
func (s *HubSource) putBack(versions []*cellplanev1alpha1.CellTopology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = append(slices.Clone(versions), s.versions...)
}

func (s *HubSource) push(object any) {
	if topology, ok := object.(*cellplanev1alpha1.CellTopology); ok && topology.Name == cellplanev1alpha1.CellTopologyName {
		s.mu.Lock()
		s.versions = append(s.versions, topology)
		s.mu.Unlock()
	}
	s.notify()
}

// topologyOf combines a version of the CellTopology with the present Cells and Secrets.
func (s *HubSource) topologyOf(source *cellplanev1alpha1.CellTopology) (topology Topology, err error) {
	topology = Topology{Epoch: source.Generation, Ready: isReady(source), Owners: s.ownersOf(source.Generation), Leftovers: source.Status.LeftoversSince != nil}
	if change := source.Status.Change; change != nil && change.Epoch == source.Generation {
		topology.MovedSlots = change.MovedSlots
	}
	s.addEpoch(&topology, source)
	for _, c := range source.Spec.Cells {
		cell := cellOf(c)
		if c.State != cellplanev1alpha1.CellStateFailed {
			if cell.Endpoint, err = s.endpoint(c.Name); err != nil {
				return Topology{}, fmt.Errorf("cell %s: %w", c.Name, err)
			}
		}
		topology.Cells = append(topology.Cells, cell)
	}
	return topology, nil
}

// cellOf converts a cell of a CellTopology, without its endpoint.
func cellOf(c cellplanev1alpha1.TopologyCell) Cell {
	return Cell{Name: c.Name, Weight: c.Weight, TargetWeight: ptr.Deref(c.TargetWeight, 0), Seed: c.Seed, State: c.State}
}

// isReady reports whether the hub manager has put the epoch in force. After a failover that includes the promotion of the backups.
func isReady(source *cellplanev1alpha1.CellTopology) bool {
	if source.Status.ObservedGeneration != source.Generation {
		return false
	}
	switch source.Status.Phase {
	case cellplanev1alpha1.TopologyStable, cellplanev1alpha1.TopologyMoving, cellplanev1alpha1.TopologyMoved:
		return true
	default:
		return false
	}
}

// addEpoch adds what is needed to carry positions into the epoch.
func (s *HubSource) addEpoch(topology *Topology, source *cellplanev1alpha1.CellTopology) {
	present := map[string]bool{}
	for _, c := range source.Spec.Cells {
		present[c.Name] = true
	}
	for _, epoch := range source.Status.Epochs {
		if epoch.Epoch != source.Generation {
			continue
		}
		topology.From = map[string]uint64{}
		for name, revision := range epoch.From {
			topology.From[name] = uint64(max(revision, 0))
		}
		topology.Before = map[string]uint64{}
		for name, revision := range epoch.Before {
			topology.Before[name] = uint64(max(revision, 0))
		}
		for _, name := range slices.Sorted(maps.Keys(epoch.Least)) {
			if present[name] {
				continue
			}
			endpoint, _ := s.endpoint(name) // the cell may be gone
			topology.Left = append(topology.Left, LeftCell{Name: name, Least: uint64(max(epoch.Least[name], 0)), Endpoint: endpoint})
		}
	}
}

func (s *HubSource) endpoint(name string) (fleet.Endpoint, error) {
	object, found, err := s.cells.GetStore().GetByKey(name)
	if err != nil {
		return fleet.Endpoint{}, err
	}
	cell, ok := object.(*cellplanev1alpha1.Cell)
	if !found || !ok {
		return fleet.Endpoint{}, errors.New("the Cell does not exist")
	}
	ref := cell.Spec.Credentials.SecretRef
	if ref.Namespace != names.SystemNamespace {
		return fleet.Endpoint{}, fmt.Errorf("its credentials are in namespace %s; gateways read Secrets only in %s", ref.Namespace, names.SystemNamespace)
	}
	object, found, err = s.secrets.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil {
		return fleet.Endpoint{}, err
	}
	secret, ok := object.(*corev1.Secret)
	if !found || !ok {
		return fleet.Endpoint{}, fmt.Errorf("the Secret %s/%s does not exist", ref.Namespace, ref.Name)
	}
	return fleet.CellEndpoint(cell, secret), nil
}
