// Package hubtest runs controllers of the hub in tests against a shared API server: they see only the Clusters of their own
// test.
package hubtest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

const testLabel = "hubtest.cellplane.io/test"

// Hub is the hub as one test sees it.
type Hub struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Name is a unique prefix for the names of the test's objects.
	Name string
}

// Start runs controllers until the test ends.
func Start(t *testing.T, add func(context.Context, manager.Manager) error) *Hub {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(testenv.SharedAPIServer(t).RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	hub := &Hub{Client: direct, Name: "t" + rand.String(8)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}}
	if err := client.IgnoreAlreadyExists(direct.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	run(t, manager.Options{
		Scheme:     scheme,
		Logger:     klog.Background().V(2),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&clusterv1alpha1.Cluster{}: {Label: labels.SelectorFromSet(labels.Set{testLabel: hub.Name})},
			&corev1.Secret{}:           {Namespaces: map[string]cache.Config{names.ClusterNamespace: {}}},
		}},
	}, add)
	return hub
}

func run(t *testing.T, options manager.Options, add func(context.Context, manager.Manager) error) {
	t.Helper()
	mgr, err := manager.New(testenv.SharedAPIServer(t).RESTConfig(), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := add(ctx, mgr); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Cluster creates a Cluster and deletes it when the test ends.
func (h *Hub) Cluster(t *testing.T, suffix string, spec clusterv1alpha1.ClusterSpec) *clusterv1alpha1.Cluster {
	t.Helper()
	if spec.SyncMode == "" {
		spec.SyncMode = clusterv1alpha1.Push
	}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: h.Name + "-" + suffix, Labels: map[string]string{testLabel: h.Name}}, Spec: spec}
	if err := h.Client.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left := cluster.DeepCopy()
		_ = h.Client.Delete(context.Background(), left)
		_ = h.Client.Patch(context.Background(), left, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	return cluster
}

// Eventually waits until a Cluster fulfils a condition, and returns it.
func (h *Hub) Eventually(t *testing.T, what string, cluster *clusterv1alpha1.Cluster, done func(*clusterv1alpha1.Cluster) bool) *clusterv1alpha1.Cluster {
	t.Helper()
	current := &clusterv1alpha1.Cluster{}
	testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(cluster), current)
		return err == nil && done(current), err
	})
	return current
}

// SetCondition writes a condition as another client.
func (h *Hub) SetCondition(t *testing.T, cluster *clusterv1alpha1.Cluster, kind string, status metav1.ConditionStatus) {
	t.Helper()
	testenv.Eventually(t, "condition "+kind+" is written", func(ctx context.Context) (bool, error) {
		current := &clusterv1alpha1.Cluster{}
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(cluster), current); err != nil {
			return false, err
		}
		kept := current.Status.Conditions[:0]
		for _, condition := range current.Status.Conditions {
			if condition.Type != kind {
				kept = append(kept, condition)
			}
		}
		current.Status.Conditions = kept
		current.Status.Conditions = append(current.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()})
		err := h.Client.Status().Update(ctx, current)
		return err == nil, err
	})
}

// EventuallyEvent waits for an event about a Cluster.
func (h *Hub) EventuallyEvent(t *testing.T, cluster *clusterv1alpha1.Cluster, reason string) {
	t.Helper()
	testenv.Eventually(t, "there is an event "+reason, func(ctx context.Context) (bool, error) {
		list := &eventsv1.EventList{}
		if err := h.Client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return false, err
		}
		for i := range list.Items {
			if list.Items[i].Regarding.Name == cluster.Name && list.Items[i].Reason == reason {
				return true, nil
			}
		}
		return false, nil
	})
}
