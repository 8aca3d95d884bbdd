package clusterapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	controlplanev1alpha1 "github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Names of Cluster API.
const (
	group    = "cluster.x-k8s.io"
	kind     = "Cluster"
	resource = "clusters"
	// moveAnnotation is on objects that clusterctl deletes after it has moved them to another management cluster.
	moveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"
)

// machine is what is cached of a Cluster of Cluster API.
type machine struct {
	uid        types.UID
	apiVersion string
	deleting   bool
	moving     bool // to another management cluster
	stays      bool // out of the federation, as its user asks, or because it is a cell
}

func condense(obj *unstructured.Unstructured) *machine {
	paused, _, _ := unstructured.NestedBool(obj.Object, "spec", "paused")
	_, moved := obj.GetAnnotations()[moveAnnotation]
	controlPlane, _, _ := unstructured.NestedString(obj.Object, "spec", "controlPlaneRef", "kind")
	return &machine{
		uid: obj.GetUID(), apiVersion: obj.GetAPIVersion(), deleting: obj.GetDeletionTimestamp() != nil,
		moving: moved || paused && obj.GetDeletionTimestamp() != nil, stays: obj.GetAnnotations()[names.JoinAnnotation] == "false" || controlPlane == controlplanev1alpha1.Kind,
	}
}

// found is the cache of the management cluster. It implements fleet.Sink.
type found struct {
	changed func(types.NamespacedName)
	synced  chan struct{}

	mu       sync.Mutex
	isSynced bool
	machines map[types.NamespacedName]*machine
	moved    map[types.NamespacedName]*machine // moved to another management cluster
	seen     map[types.NamespacedName]struct{} // during a list
}

func newFound(changed func(types.NamespacedName)) *found {
	return &found{changed: changed, synced: make(chan struct{}), machines: map[types.NamespacedName]*machine{}, moved: map[types.NamespacedName]*machine{}}
}

// get returns a cluster, nil if it is gone, and whether the cache has synced.
func (f *found) get(key types.NamespacedName) (*machine, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[key]; m != nil {
		return m, true
	}
	if m := f.moved[key]; m != nil {
		return m, true
	}
	return nil, f.isSynced
}

func (f *found) keys() []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.machines))
}

// Set implements fleet.Sink.
func (f *found) Set(from runtime.Object) {
	obj, ok := from.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key, now := keyOf(obj), condense(obj)
	f.mu.Lock()
	before := f.machines[key]
	f.machines[key] = now
	delete(f.moved, key)
	if f.seen != nil {
		f.seen[key] = struct{}{}
	}
	f.mu.Unlock()
	if before == nil || *before != *now {
		f.changed(key)
	}
}

// Unset implements fleet.Sink.
func (f *found) Unset(from runtime.Object) {
	obj, ok := from.(*unstructured.Unstructured)
	if !ok {
		return
	}
	f.remove(keyOf(obj), condense(obj))
}

// remove removes a cluster from the cache, but keeps that it has moved.
func (f *found) remove(key types.NamespacedName, last *machine) {
	f.mu.Lock()
	delete(f.machines, key)
	if last.moving {
		f.moved[key] = last
	}
	f.mu.Unlock()
	f.changed(key)
}

// Relist implements fleet.Sink.
func (f *found) Relist() (done func(resourceVersion string)) {
	f.mu.Lock()
	f.seen = map[types.NamespacedName]struct{}{}
	f.mu.Unlock()
	return func(string) {
		f.mu.Lock()
		gone := maps.Clone(f.machines)
		maps.DeleteFunc(gone, func(key types.NamespacedName, _ *machine) bool { _, there := f.seen[key]; return there })
		f.seen = nil
		if !f.isSynced {
			f.isSynced = true
			close(f.synced)
		}
		f.mu.Unlock()
		for key, last := range gone {
			f.remove(key, last)
		}
	}
}

func keyOf(obj *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// newSource returns the Clusters of a management cluster, in the version that it prefers.
func newSource(config *rest.Config) (fleet.Source, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fleet.Source{}, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fleet.Source{}, err
	}
	var mu sync.Mutex
	var version string
	clusters := func() dynamic.ResourceInterface {
		mu.Lock()
		defer mu.Unlock()
		return objects.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	}
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.Continue == "" {
				preferred, err := preferredVersion(served)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				version = preferred
				mu.Unlock()
			}
			return clusters().List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watcher, err := clusters().Watch(ctx, options)
			if apierrors.IsNotFound(err) {
				// The version is no longer served: a relist finds another one.
				return nil, apierrors.NewResourceExpired(err.Error())
			}
			return watcher, err
		},
	}, nil
}

func preferredVersion(served discovery.DiscoveryInterface) (string, error) {
	groups, err := served.ServerGroups()
	if err != nil {
		return "", fmt.Errorf("discovering the kinds of the management cluster: %w", err)
	}
	for i := range groups.Groups {
		if groups.Groups[i].Name == group {
			return groups.Groups[i].PreferredVersion.Version, nil
		}
	}
	return "", fmt.Errorf("the management cluster does not serve %s; install Cluster API there", group)
}
