package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Install applies a release, also over an older one, whose objects that are no longer needed it deletes. It waits until everything is ready.
// told is called with what is waited for.
func (c *Cluster) Install(ctx context.Context, release Release, told func(string)) (*Manifests, error) {
	var err error
	if release.KubeVersion, err = c.Version(); err != nil {
		return nil, err
	}
	manifests, err := Render(release)
	if err != nil {
		return nil, err
	}
	if err := c.ensureNamespace(ctx, release.Namespace); err != nil {
		return nil, err
	}
	for _, object := range manifests.Objects {
		if err := c.apply(ctx, object, metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if err := c.prune(ctx, release, manifests.Objects); err != nil {
		return nil, err
	}
	return manifests, c.waitReady(ctx, manifests.Objects, told)
}

// ensureNamespace creates a namespace in which only restricted pods are allowed. An existing one is not changed.
func (c *Cluster) ensureNamespace(ctx context.Context, name string) error {
	namespaces, err := c.resource(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "")
	if err != nil {
		return err
	}
	if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(name)
	namespace.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	return c.apply(ctx, namespace, metav1.PatchOptions{})
}

// kinds are those of all objects of the chart, in the order in which they are deleted. Definitions stay: with them all objects of their kinds would go.
var kinds = []schema.GroupVersionKind{
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Version: "v1", Kind: "Service"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
	{Version: "v1", Kind: "ConfigMap"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
}

// data are the kinds that hold data and keys. They are not objects of the chart.
var data = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
}

const (
	nameLabel      = "app.kubernetes.io/name"
	instanceLabel  = "app.kubernetes.io/instance"
	managedByLabel = "app.kubernetes.io/managed-by"
	// installationLabel is the namespace of the release to which an object without a namespace belongs.
	installationLabel = "cellplane.io/installation"
)

// prune deletes the objects of a release that are not in keep.
func (c *Cluster) prune(ctx context.Context, release Release, keep []*unstructured.Unstructured) error {
	kept := map[string]bool{}
	for _, object := range keep {
		kept[object.GetKind()+"/"+object.GetName()] = true
	}
	selector := labels.Set{nameLabel: "cellplane", instanceLabel: release.Name, managedByLabel: service}
	return c.deleteAll(ctx, kinds, release.Namespace, selector, func(object *unstructured.Unstructured) bool {
		return kept[object.GetKind()+"/"+object.GetName()] || elsewhere(object, release)
	})
}

// elsewhere reports whether an object belongs to a release of the same name in another namespace.
func elsewhere(object *unstructured.Unstructured, release Release) bool {
	return object.GetNamespace() == "" && object.GetLabels()[installationLabel] != release.Namespace
}

// deleteAll deletes the selected objects but those that are kept. Kinds that the cluster does not know have no objects.
func (c *Cluster) deleteAll(ctx context.Context, kinds []schema.GroupVersionKind, namespace string, selector labels.Set, keep func(*unstructured.Unstructured) bool) error {
	for _, kind := range kinds {
		resource, err := c.resource(kind, namespace)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		found, err := resource.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return fmt.Errorf("looking for objects of kind %s: %w", kind.Kind, err)
		}
		for i := range found.Items {
			if object := &found.Items[i]; !keep(object) {
				if err := c.delete(ctx, object); err != nil {
					return fmt.Errorf("deleting %s %s: %w", kind.Kind, object.GetName(), err)
				}
			}
		}
	}
	return nil
}

// Uninstall deletes the objects of a release. Volumes and Secrets, with all data and keys, stay unless purge is set.
func (c *Cluster) Uninstall(ctx context.Context, release Release, purge bool) error {
	if err := c.prune(ctx, release, nil); err != nil {
		return err
	}
	if !purge {
		return nil
	}
	none := func(*unstructured.Unstructured) bool { return false }
	return c.deleteAll(ctx, data, release.Namespace, labels.Set{nameLabel: "cellplane", instanceLabel: release.Name}, none)
}

// waitReady waits until all workloads are ready and the Job has ended.
func (c *Cluster) waitReady(ctx context.Context, objects []*unstructured.Unstructured, told func(string)) error {
	waiting, last := slices.Clone(objects), ""
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		for len(waiting) > 0 {
			reason, err := c.notReady(ctx, waiting[0])
			if err != nil {
				return false, err
			}
			if reason != "" {
				if reason != last {
					told(reason)
				}
				last = reason
				return false, nil
			}
			waiting = waiting[1:]
		}
		return true, nil
	})
	if err != nil && last != "" && ctx.Err() != nil {
		return fmt.Errorf("it is not ready: %s", last)
	}
	return err
}

// notReady returns what an object waits for, nothing if it is ready.
func (c *Cluster) notReady(ctx context.Context, want *unstructured.Unstructured) (string, error) {
	if !slices.Contains([]string{"Deployment", "StatefulSet", "Job"}, want.GetKind()) {
		return "", nil
	}
	resource, err := c.resource(want.GroupVersionKind(), want.GetNamespace())
	if err != nil {
		return "", err
	}
	object, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", fmt.Errorf("reading %s %s: %w", want.GetKind(), want.GetName(), err)
	}
	if err != nil { // the API server may restart meanwhile
		return fmt.Sprintf("%s %s cannot be read: %v", want.GetKind(), want.GetName(), err), nil
	}
	number := func(fields ...string) int64 {
		value, _, _ := unstructured.NestedInt64(object.Object, fields...)
		return value
	}
	if object.GetKind() == "Job" {
		if number("status", "succeeded") > 0 {
			return "", nil
		}
		if failed(object) {
			return "", fmt.Errorf("the Job %s has failed; `kubectl -n %s logs job/%s` says why", object.GetName(), object.GetNamespace(), object.GetName())
		}
		return fmt.Sprintf("Job %s has not ended", object.GetName()), nil
	}
	replicas, ready := number("spec", "replicas"), min(number("status", "readyReplicas"), number("status", "updatedReplicas"))
	if number("status", "observedGeneration") < object.GetGeneration() || ready < replicas {
		return fmt.Sprintf("%s %s has %d of %d replicas ready", object.GetKind(), object.GetName(), ready, replicas), nil
	}
	return "", nil
}

// failed reports whether a Job has failed for good.
func failed(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		c, ok := condition.(map[string]any)
		return ok && c["type"] == "Failed" && c["status"] == "True"
	})
}
