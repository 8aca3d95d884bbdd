package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Keeper writes what is seen of clusters into their ledgers, and ends promises whose pods run. One keeper works for the
// whole federation, beside whoever watches the members' nodes and pods.
type Keeper struct {
	client   rest.Interface
	interval time.Duration

	ledgers  mirror[*cellplanev1alpha1.ClusterLedger]
	profiles mirror[*cellplanev1alpha1.ClusterProfile]
	cells    mirror[*cellplanev1alpha1.Cell]

	mu     sync.Mutex
	models map[string]*simulate.Model
	owners map[string]types.UID
	told   map[string]telling
}

// telling is what a ledger was last settled with, and when it was last written.
type telling struct {
	version uint64
	profile *cellplanev1alpha1.ClusterProfile
	at      time.Time
}

// maxRows bounds how exactly a ledger tells what the nodes of a cluster have left.
const maxRows = 512

// hubHolder is the engine of the hub, which is no cell.
const hubHolder = "hub"

// NewKeeper prepares a keeper. A ledger that nobody waits for is written once in an interval at most.
func NewKeeper(hub *rest.Config, interval time.Duration) (*Keeper, error) {
	client, err := ledgerClient(hub)
	if err != nil {
		return nil, fmt.Errorf("connecting to the ledgers on the hub: %w", err)
	}
	return &Keeper{client: client, interval: interval, models: map[string]*simulate.Model{}, owners: map[string]types.UID{}, told: map[string]telling{}}, nil
}

// Open returns an empty model for a cluster, in place of the one that there was. Whoever watches the cluster feeds it.
func (k *Keeper) Open(cluster string, uid types.UID) *simulate.Model {
	m := simulate.NewModel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.models[cluster], k.owners[cluster] = m, uid
	delete(k.told, cluster)
	return m
}

// Close forgets the model of a cluster, unless another has taken its place.
func (k *Keeper) Close(cluster string, m *simulate.Model) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.models[cluster] == m {
		delete(k.models, cluster)
		delete(k.owners, cluster)
		delete(k.told, cluster)
	}
}

// pollPause is how often models and promises are compared.
const pollPause = 500 * time.Millisecond

// Run keeps the ledgers until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	failed := func(err error) { klog.FromContext(ctx).V(1).Info("cannot follow, trying again", "err", err) }
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		k.ledgers.follow(ctx, k.client, resourceName, func() runtime.Object { return &cellplanev1alpha1.ClusterLedgerList{} }, failed)
	})
	following.Go(func() {
		k.profiles.follow(ctx, k.client, "clusterprofiles", func() runtime.Object { return &cellplanev1alpha1.ClusterProfileList{} }, failed)
	})
	following.Go(func() {
		k.cells.follow(ctx, k.client, "cells", func() runtime.Object { return &cellplanev1alpha1.CellList{} }, failed)
	})
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := k.keep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot keep the ledgers of clusters")
		}
	}
}

// keep settles every ledger that has a reason to change.
func (k *Keeper) keep(ctx context.Context, now time.Time) error {
	holders := append(k.cells.names(), hubHolder)
	slices.Sort(holders)
	var errs []error
	for cluster, m := range k.observed() {
		if err := k.settle(ctx, cluster, m, holders, now); err != nil {
			errs = append(errs, fmt.Errorf("keeping the ledger of cluster %s: %w", cluster, err))
		}
	}
	return errors.Join(errs...)
}

// observed returns the models of clusters of which all has been seen.
func (k *Keeper) observed() map[string]*simulate.Model {
	k.mu.Lock()
	defer k.mu.Unlock()
	models := map[string]*simulate.Model{}
	for cluster, m := range k.models {
		if m.Synced() {
			models[cluster] = m
		}
	}
	return models
}

// promisedPause is how often a ledger with promises is written at most. What is promised and runs already counts twice
// until then, which is safe; writing it for every pod that starts would keep schedulers from writing.
const promisedPause = 2 * time.Second

// settle brings one ledger up to date. It is written at most once in an interval, or a bit more often while promises are
// to end.
func (k *Keeper) settle(ctx context.Context, cluster string, m *simulate.Model, holders []string, now time.Time) error {
	known, synced := k.ledgers.get(cluster)
	profile, profilesKnown := k.profiles.get(cluster)
	if !synced || !profilesKnown {
		return nil
	}
	pause := k.interval
	if known != nil && len(known.Reservations) > 0 {
		pause = min(pause, promisedPause)
	}
	if known != nil && !k.rested(cluster, now, pause) {
		return nil
	}
	l := known.DeepCopy()
	if l == nil {
		l = k.newLedger(cluster)
	}
	faults := append(sift(l), unreadable(l)...)
	// Pods are counted before nodes are looked at: one that comes in between is then counted twice, never forgotten.
	seen := &Observation{Classes: l.Classes, Volumes: l.Volumes, StorageClasses: l.StorageClasses, Holders: holders, Bound: boundOf(m, l)}
	version := m.Version()
	if known == nil || len(faults) > 0 || k.changed(cluster, version, profile) {
		seen.Classes, seen.Volumes, seen.StorageClasses = observe(m, profile), volumesOf(m), storageOf(m)
	}
	for _, fault := range faults {
		klog.FromContext(ctx).Error(nil, "Removing what makes no sense from the ledger of a cluster", "cluster", cluster, "fault", fault)
	}
	if !Settle(l, seen, now) && len(faults) == 0 {
		k.note(cluster, version, profile, time.Time{})
		return nil
	}
	var err error
	if known == nil {
		err = k.client.Post().Resource(resourceName).Body(l).Do(ctx).Error()
	} else {
		_, err = putLedger(ctx, k.client, l)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil // the next round sees what it is now
	}
	if err != nil {
		return err
	}
	k.note(cluster, version, profile, now)
	return nil
}

// newLedger returns an empty ledger that goes when its cluster does.
func (k *Keeper) newLedger(cluster string) *cellplanev1alpha1.ClusterLedger {
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	k.mu.Lock()
	defer k.mu.Unlock()
	if uid := k.owners[cluster]; uid != "" {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1alpha1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: uid}}
	}
	return l
}

func (k *Keeper) rested(cluster string, now time.Time, pause time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Sub(k.told[cluster].at) >= pause
}

func (k *Keeper) changed(cluster string, version uint64, profile *cellplanev1alpha1.ClusterProfile) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.told[cluster]
	return !known || last.version != version || last.profile != profile
}

func (k *Keeper) note(cluster string, version uint64, profile *cellplanev1alpha1.ClusterProfile, wrote time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if wrote.IsZero() {
		wrote = k.told[cluster].at
	}
	k.told[cluster] = telling{version: version, profile: profile, at: wrote}
}

// boundOf counts the running pods of the workloads that something is promised to.
func boundOf(m *simulate.Model, l *cellplanev1alpha1.ClusterLedger) map[cellplanev1alpha1.WorkloadReference]int32 {
	workloads := make([]simulate.Workload, len(l.Reservations))
	for i := range l.Reservations {
		w := &l.Reservations[i].Workload
		workloads[i] = simulate.Workload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
	}
	bound := map[cellplanev1alpha1.WorkloadReference]int32{}
	for w, count := range m.BoundAll(workloads) {
		bound[cellplanev1alpha1.WorkloadReference{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] = count
	}
	return bound
}

// volumesOf describes the volumes that not all nodes can reach.
func volumesOf(m *simulate.Model) []cellplanev1alpha1.LedgerVolumes {
	var volumes []cellplanev1alpha1.LedgerVolumes
	for _, v := range m.SummarizeVolumes() {
		volumes = append(volumes, cellplanev1alpha1.LedgerVolumes{Reach: *v.Reach, AccessMode: v.Mode, Claims: v.Claims})
	}
	return volumes
}

// storageOf describes the storage classes whose volumes not all nodes can reach.
func storageOf(m *simulate.Model) []cellplanev1alpha1.LedgerStorageClass {
	var classes []cellplanev1alpha1.LedgerStorageClass
	for _, c := range m.SummarizeStorage() {
		classes = append(classes, cellplanev1alpha1.LedgerStorageClass{Name: c.Name, Default: c.Default, Reach: *c.Reach})
	}
	return classes
}

// observe describes the nodes that there are, and those that there could be.
func observe(m *simulate.Model, profile *cellplanev1alpha1.ClusterProfile) []cellplanev1alpha1.LedgerNodeClass {
	var classes []cellplanev1alpha1.LedgerNodeClass
	nodes := int32(0)
	for _, s := range m.Summarize(maxRows) {
		c := cellplanev1alpha1.LedgerNodeClass{Name: s.Name, Labels: s.Labels, Taints: s.Taints, Allocatable: s.Allocatable}
		for _, alike := range s.Nodes {
			c.Nodes = append(c.Nodes, cellplanev1alpha1.LedgerNodes{Count: alike.Count, Free: alike.Free})
			nodes += alike.Count
		}
		classes = append(classes, c)
	}
	if profile == nil || profile.Spec.Elasticity == nil {
		return classes
	}
	left := int32(1 << 30)
	if size := profile.Spec.Size; size != nil && size.MaxNodes != nil {
		left = max(0, *size.MaxNodes-nodes)
	}
	for i := range profile.Spec.Elasticity.NodeGroups {
		group := &profile.Spec.Elasticity.NodeGroups[i]
		more := min(left, max(0, group.MaxNodes-m.Count(group.Labels)))
		left -= more
		if more > 0 {
			classes = append(classes, cellplanev1alpha1.LedgerNodeClass{
				Name: "group:" + group.Name, Labels: group.Labels, Taints: group.Taints, Allocatable: group.Allocatable, Potential: true,
				Nodes: []cellplanev1alpha1.LedgerNodes{{Count: more, Free: group.Allocatable}},
			})
		}
	}
	return classes
}
