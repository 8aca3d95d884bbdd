package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/simulate"
)

// members simulate the clusters: placed replicas run at once and are added to the model behind the ledger.
type members struct {
	observer *ledger.Observer

	mu     sync.Mutex
	models map[string]*simulate.Model
	// placed is where bindings are, and works is the number of Works of each cluster.
	placed map[string]map[string]bool
	works  map[string]map[string]bool
	// changed is closed at the next change.
	changed chan struct{}
}

func newMembers(observer *ledger.Observer) *members {
	return &members{
		observer: observer, models: map[string]*simulate.Model{}, placed: map[string]map[string]bool{}, works: map[string]map[string]bool{},
		changed: make(chan struct{}),
	}
}

// nodesOfMember is the number of nodes per member.
const nodesOfMember = 200

// add creates the nodes and the ledger of a cluster.
func (m *members) add(cluster string) {
	model := m.observer.Open(cluster, "")
	var nodes []*corev1.Node
	for i := range nodesOfMember {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("z", i%3)}}}
		n.Status.Allocatable = size(64)
		nodes = append(nodes, n)
	}
	model.ReplaceNodes(nodes)
	model.ReplacePods(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models[cluster] = model
}

// watch watches the bindings and Works of a cell until the context ends.
func (m *members) watch(ctx context.Context, cell ctrlclient.WithWatch) {
	works := func() ctrlclient.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(workv1alpha1.GroupVersion.WithKind("WorkList"))
		return list
	}
	go fleet.Watch(ctx, source(cell, func() ctrlclient.ObjectList { return &workv1alpha2.ResourceBindingList{} }), sink{m.setBinding, func(runtime.Object) {}}, nil)
	go fleet.Watch(ctx, source(cell, works), sink{m.setWork, m.dropWork}, nil)
}

func source(client ctrlclient.WithWatch, list func() ctrlclient.ObjectList) fleet.Source {
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, client.List(ctx, l, &ctrlclient.ListOptions{Raw: &options})
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, list(), &ctrlclient.ListOptions{Raw: &options})
		},
	}
}

// sink passes objects to functions. Lists happen once, before the measurement.
type sink struct{ set, unset func(runtime.Object) }

// Set implements fleet.Sink.
func (s sink) Set(obj runtime.Object) { s.set(obj) }

// Unset implements fleet.Sink.
func (s sink) Unset(obj runtime.Object) { s.unset(obj) }

// Relist implements fleet.Sink.
func (s sink) Relist() func(string) { return func(string) {} }

// setBinding adds the pods of a binding where it is placed.
func (m *members) setBinding(obj runtime.Object) {
	binding := obj.(*workv1alpha2.ResourceBinding)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string]bool{}
	for _, target := range binding.Spec.Clusters {
		now[target.Name] = true
		if m.placed[binding.Name][target.Name] {
			continue
		}
		for i := range target.Replicas {
			m.models[target.Name].SetPod(podOf(binding, target.Name, int(i)))
		}
	}
	m.placed[binding.Name] = now
	m.tell()
}

// podOf returns a scheduled pod of a binding.
func podOf(binding *workv1alpha2.ResourceBinding, cluster string, i int) *corev1.Pod {
	const hash = "5f7d9c"
	name := binding.Spec.Resource.Name + "-" + hash
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: binding.Namespace, Name: fmt.Sprint(name, "-", i), UID: types.UID(fmt.Sprint(binding.UID, cluster, i)), Labels: map[string]string{"pod-template-hash": hash},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, Controller: ptr.To(true)}},
	}}
	pod.Spec.NodeName = fmt.Sprint("node-", xxhash.Sum64String(string(pod.UID))%nodesOfMember)
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: request()}}}
	return pod
}

// request is the request of a replica.
func request() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
}

func (m *members) setWork(obj runtime.Object) {
	work := obj.(*metav1.PartialObjectMetadata)
	m.mu.Lock()
	defer m.mu.Unlock()
	cluster, _ := names.ClusterFromExecutionNamespace(work.Namespace)
	if m.works[cluster] == nil {
		m.works[cluster] = map[string]bool{}
	}
	m.works[cluster][work.Name] = true
	m.tell()
}

func (m *members) dropWork(obj runtime.Object) {
	work := obj.(*metav1.PartialObjectMetadata)
	m.mu.Lock()
	defer m.mu.Unlock()
	cluster, _ := names.ClusterFromExecutionNamespace(work.Namespace)
	delete(m.works[cluster], work.Name)
	m.tell()
}

func (m *members) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// progress counts bindings and Works by cluster.
type progress struct{ bindings, works int }

// count counts the bindings with a prefix and the Works in the wanted clusters.
func (m *members) count(prefix string, wanted func(cluster string) bool) (progress, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var p progress
	for name, clusters := range m.placed {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for cluster := range clusters {
			if wanted(cluster) {
				p.bindings++
				break
			}
		}
	}
	for cluster, works := range m.works {
		if !wanted(cluster) {
			continue
		}
		for name := range works {
			if strings.HasPrefix(name, prefix) {
				p.works++
			}
		}
	}
	return p, m.changed
}

// untilPlaced waits until the given number of bindings is in the wanted clusters and returns the duration.
func (m *members) untilPlaced(ctx context.Context, began time.Time, prefix string, n int, wanted func(cluster string) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		p, changed := m.count(prefix, wanted)
		if p.bindings >= n {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d bindings of %d are placed: %w", p.bindings, n, ctx.Err())
		case <-changed:
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// until waits until the given number of bindings and Works is in the wanted clusters and returns both durations.
func (m *members) until(ctx context.Context, began time.Time, prefix string, n int, wanted func(cluster string) bool) (bindings, works time.Duration, err error) {
	for {
		p, changed := m.count(prefix, wanted)
		if bindings == 0 && p.bindings >= n {
			bindings = time.Since(began)
		}
		if p.works >= n && bindings > 0 {
			return bindings, time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("%d bindings and %d Works of %d are placed: %w", p.bindings, p.works, n, ctx.Err())
		case <-changed:
		}
		// Counting after each change would cost more than what is measured.
		pause(ctx, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
