package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testControllerRuntime runs a controller that creates a ConfigMap for each Deployment and annotates the Deployment.
func testControllerRuntime(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "controller-runtime")
	ctrl.SetLogger(klog.Background())
	manager, err := ctrl.NewManager(w.gateway.Config(t), ctrl.Options{
		Scheme:     scheme.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	objects := manager.GetClient()
	reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		owner := &appsv1.Deployment{}
		if err := objects.Get(ctx, request.NamespacedName, owner); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: "of-" + owner.Name}}
		if _, err := controllerutil.CreateOrUpdate(ctx, objects, child, func() error {
			child.Data = map[string]string{"replicas": fmt.Sprint(*owner.Spec.Replicas)}
			return controllerutil.SetControllerReference(owner, child, objects.Scheme())
		}); err != nil {
			return reconcile.Result{}, err
		}
		if owner.Annotations["done"] == child.Data["replicas"] {
			return reconcile.Result{}, nil
		}
		// The object comes from a watch.
		owner.Annotations = map[string]string{"done": child.Data["replicas"]}
		if err := objects.Update(ctx, owner); apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		} else if err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, nil
	})
	if err := ctrl.NewControllerManagedBy(manager).For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	var names []string
	for range 12 {
		names = append(names, newDeployment(t, w.client, namespace))
	}
	wait := func(replicas string) {
		t.Helper()
		for _, name := range names {
			testenv.Eventually(t, "the controller is done with "+name, func(ctx context.Context) (bool, error) {
				object, err := w.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				return object.Annotations["done"] == replicas, nil
			})
		}
	}
	wait("10")
	for _, name := range names {
		if err := scaleTo(t.Context(), w.client, namespace, name, 4, false); err != nil {
			t.Fatal(err)
		}
	}
	wait("4")
	if err := w.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "of-"+names[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the deleted ConfigMap is recreated", func(ctx context.Context) (bool, error) {
		_, err := w.client.CoreV1().ConfigMaps(namespace).Get(ctx, "of-"+names[0], metav1.GetOptions{})
		return err == nil, err
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
