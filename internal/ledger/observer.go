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

// Observer writes the observed state of clusters into their ledgers and ends reservations whose pods run. The
// federation runs one observer, in the process that watches the members' nodes and pods.
type Observer struct {
	client   rest.Interface
	interval time.Duration

	ledgers  cache[*cellplanev1alpha1.ClusterLedger]
	profiles cache[*cellplanev1alpha1.ClusterProfile]
	cells    cache[*cellplanev1alpha1.Cell]

	mu       sync.Mutex
	models   map[string]*simulate.Model
	owners   map[string]types.UID
	reported map[string]written
}

// written is the state of the last write of a ledger.
type written struct {
	version uint64
	profile *cellplanev1alpha1.ClusterProfile
	at      time.Time
}

// maxRows bounds the number of node rows in a ledger.
const maxRows = 512

// hubHolder is the engine of the hub, which is not a cell.
const hubHolder = "hub"

// NewObserver returns a observer. Ledgers without reservations are written at most once per interval.
func NewObserver(hub *rest.Config, interval time.Duration) (*Observer, error) {
	client, err := ledgerClient(hub)
	if err != nil {
		return nil, fmt.Errorf("connecting to the ledgers on the hub: %w", err)
	}
	return &Observer{client: client, interval: interval, models: map[string]*simulate.Model{}, owners: map[string]types.UID{}, reported: map[string]written{}}, nil
}

// Open returns a new, empty model for a cluster and replaces the old one. The caller feeds it.
func (k *Observer) Open(cluster string, uid types.UID) *simulate.Model {
	m := simulate.NewModel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.models[cluster], k.owners[cluster] = m, uid
	delete(k.reported, cluster)
	return m
}

// Close drops the model of a cluster, unless it was replaced.
func (k *Observer) Close(cluster string, m *simulate.Model) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.models[cluster] == m {
		delete(k.models, cluster)
		delete(k.owners, cluster)
		delete(k.reported, cluster)
	}
}

// pollInterval is how often models are compared with the ledgers.
const pollInterval = 500 * time.Millisecond

// Run updates the ledgers until the context ends.
func (k *Observer) Run(ctx context.Context) error {
	failed := func(err error) {
		klog.FromContext(ctx).V(1).Info("cannot watch ledgers and profiles, retrying", "err", err)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		k.ledgers.watch(ctx, k.client, resourceName, func() runtime.Object { return &cellplanev1alpha1.ClusterLedgerList{} }, failed)
	})
	watching.Go(func() {
		k.profiles.watch(ctx, k.client, "clusterprofiles", func() runtime.Object { return &cellplanev1alpha1.ClusterProfileList{} }, failed)
	})
	watching.Go(func() {
		k.cells.watch(ctx, k.client, "cells", func() runtime.Object { return &cellplanev1alpha1.CellList{} }, failed)
	})
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := k.refreshAll(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "cannot update the ledgers of clusters")
		}
	}
}

// refreshAll updates every ledger that needs it.
func (k *Observer) refreshAll(ctx context.Context, now time.Time) error {
	holders := append(k.cells.names(), hubHolder)
	slices.Sort(holders)
	var errs []error
	for cluster, m := range k.observed() {
		if err := k.refresh(ctx, cluster, m, holders, now); err != nil {
			errs = append(errs, fmt.Errorf("updating the ledger of cluster %s: %w", cluster, err))
		}
	}
	return errors.Join(errs...)
}

// observed returns the models of fully synced clusters.
func (k *Observer) observed() map[string]*simulate.Model {
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

// reservedInterval is the minimum time between writes of a ledger with reservations. Until then, a running pod with
// a reservation counts twice, which is safe. A write per started pod would block the schedulers.
const reservedInterval = 2 * time.Second

// refresh updates one ledger. It writes at most once per interval, or once per reservedInterval while there are
// reservations.
func (k *Observer) refresh(ctx context.Context, cluster string, m *simulate.Model, holders []string, now time.Time) error {
	known, synced := k.ledgers.get(cluster)
	profile, profilesKnown := k.profiles.get(cluster)
	if !synced || !profilesKnown {
		return nil
	}
	pause := k.interval
	if known != nil && len(known.Reservations) > 0 {
		pause = min(pause, reservedInterval)
	}
	if known != nil && !k.rested(cluster, now, pause) {
		return nil
	}
	l := known.DeepCopy()
	if l == nil {
		l = k.newLedger(cluster)
	}
	faults := append(dropInvalid(l), invalidNodes(l)...)
	// Count pods before nodes: a pod that starts in between is then counted twice, never missed.
	seen := &Observation{Classes: l.Classes, Volumes: l.Volumes, StorageClasses: l.StorageClasses, Quotas: quotasOf(m), Holders: holders, Pods: podsOf(m, l)}
	version := m.Version()
	if known == nil || len(faults) > 0 || k.changed(cluster, version, profile) {
		seen.Classes, seen.Volumes, seen.StorageClasses = observe(m, profile), volumesOf(m), storageOf(m)
	}
	for _, fault := range faults {
		klog.FromContext(ctx).Error(nil, "removing invalid entries from a cluster's ledger", "cluster", cluster, "fault", fault)
	}
	if !Refresh(l, seen, now) && len(faults) == 0 {
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
		return nil // the next round uses the new version
	}
	if err != nil {
		return err
	}
	k.note(cluster, version, profile, now)
	return nil
}

// newLedger returns an empty ledger owned by its cluster.
func (k *Observer) newLedger(cluster string) *cellplanev1alpha1.ClusterLedger {
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	k.mu.Lock()
	defer k.mu.Unlock()
	if uid := k.owners[cluster]; uid != "" {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1alpha1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: uid}}
	}
	return l
}

func (k *Observer) rested(cluster string, now time.Time, pause time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Sub(k.reported[cluster].at) >= pause
}

func (k *Observer) changed(cluster string, version uint64, profile *cellplanev1alpha1.ClusterProfile) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.reported[cluster]
	return !known || last.version != version || last.profile != profile
}

func (k *Observer) note(cluster string, version uint64, profile *cellplanev1alpha1.ClusterProfile, wrote time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if wrote.IsZero() {
		wrote = k.reported[cluster].at
	}
	k.reported[cluster] = written{version: version, profile: profile, at: wrote}
}

// podsOf counts the pods of workloads with reservations.
func podsOf(m *simulate.Model, l *cellplanev1alpha1.ClusterLedger) map[cellplanev1alpha1.WorkloadReference]simulate.PodCount {
	workloads := make([]simulate.Workload, len(l.Reservations))
	for i := range l.Reservations {
		w := &l.Reservations[i].Workload
		workloads[i] = simulate.Workload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
	}
	pods := map[cellplanev1alpha1.WorkloadReference]simulate.PodCount{}
	for w, count := range m.CountPods(workloads) {
		pods[cellplanev1alpha1.WorkloadReference{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] = count
	}
	return pods
}

// quotasOf returns what quotas leave to pods.
func quotasOf(m *simulate.Model) []cellplanev1alpha1.LedgerQuota {
	var quotas []cellplanev1alpha1.LedgerQuota
	for _, q := range m.SummarizeQuotas() {
		quotas = append(quotas, cellplanev1alpha1.LedgerQuota{Namespace: q.Namespace, Scopes: q.Scopes, Left: q.Left})
	}
	return quotas
}

// volumesOf returns the volumes that not all nodes can reach.
func volumesOf(m *simulate.Model) []cellplanev1alpha1.LedgerVolumes {
	var volumes []cellplanev1alpha1.LedgerVolumes
	for _, v := range m.SummarizeVolumes() {
		volumes = append(volumes, cellplanev1alpha1.LedgerVolumes{Reach: *v.Reach, AccessMode: v.Mode, Claims: v.Claims})
	}
	return volumes
}

// storageOf returns the storage classes whose volumes not all nodes can reach.
func storageOf(m *simulate.Model) []cellplanev1alpha1.LedgerStorageClass {
	var classes []cellplanev1alpha1.LedgerStorageClass
	for _, c := range m.SummarizeStorage() {
		classes = append(classes, cellplanev1alpha1.LedgerStorageClass{Name: c.Name, Default: c.Default, Reach: *c.Reach})
	}
	return classes
}

// observe returns the existing nodes and those that could be added.
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
