package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cellplane/cellplane/internal/testenv"
)

// TestInstall installs a federation, adds a cell, takes it away, and uninstalls, on a cluster with simulated pods.
func TestInstall(t *testing.T) {
	member := testenv.SharedMembers(t)[0]
	cluster, err := Connect(member.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := member.Namespace(t)
	one := small(t, member, namespace)
	two := one
	two.Values = maps.Clone(one.Values)
	two.Values["cells"] = []any{map[string]any{"name": "cell-a"}, map[string]any{"name": "cell-b"}}
	t.Cleanup(func() {
		if err := cluster.Uninstall(context.WithoutCancel(t.Context()), one, true); err != nil {
			t.Error(err)
		}
	})

	t.Run("waits until all pods are ready and the Job has ended", func(t *testing.T) {
		install(t, cluster, one)
		jobs, err := member.Client(t).BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(jobs.Items) == 0 {
			t.Fatalf("there are no Jobs: %v", err)
		}
		for i := range jobs.Items {
			if jobs.Items[i].Status.Succeeded == 0 {
				t.Errorf("Job %s has not ended", jobs.Items[i].Name)
			}
		}
		pods, err := member.Client(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		if err != nil || len(pods.Items) > 0 {
			t.Errorf("%d pods are not running: %v", len(pods.Items), err)
		}
	})
	t.Run("changes nothing when it is repeated", func(t *testing.T) {
		before := versions(t, cluster, one)
		install(t, cluster, one)
		for name, version := range versions(t, cluster, one) {
			if before[name] != version {
				t.Errorf("%s has changed", name)
			}
		}
	})
	t.Run("adds a cell and removes it", func(t *testing.T) {
		install(t, cluster, two)
		if !has(versions(t, cluster, one), "cell-b") {
			t.Error("there is no cell-b")
		}
		install(t, cluster, one)
		if has(versions(t, cluster, one), "cell-b") {
			t.Error("cell-b has objects")
		}
		claims, err := member.Client(t).CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.ContainsFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return strings.Contains(c.Name, "cell-b") }) {
			t.Errorf("the data of cell-b is gone: %v", err)
		}
	})
	t.Run("tells what is not ready in time", func(t *testing.T) {
		stuck := two
		stuck.Name = "stuck" // there are no volumes left
		t.Cleanup(func() {
			if err := cluster.Uninstall(context.WithoutCancel(t.Context()), stuck, true); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		_, err := cluster.Install(ctx, stuck, func(string) { cancel(errors.New("enough")) })
		if err == nil || !strings.Contains(err.Error(), "it is not ready: StatefulSet stuck-") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("uninstalls, and keeps data unless it is told not to", func(t *testing.T) {
		if err := cluster.Uninstall(t.Context(), one, false); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "nothing is left but data", func(context.Context) (bool, error) {
			left := versions(t, cluster, one)
			return len(left) == 0, fmt.Errorf("left: %v", left)
		})
		claims := member.Client(t).CoreV1().PersistentVolumeClaims(namespace)
		selected := metav1.ListOptions{LabelSelector: labels.Set{instanceLabel: one.Name}.String()}
		if kept, err := claims.List(t.Context(), selected); err != nil || len(kept.Items) == 0 {
			t.Errorf("there are no volumes: %v", err)
		}
		if err := cluster.Uninstall(t.Context(), one, true); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "data is gone", func(ctx context.Context) (bool, error) {
			left, err := claims.List(ctx, selected)
			return err == nil && len(left.Items) == 0, err
		})
	})
}

// install installs a release.
func install(t *testing.T, cluster *Cluster, release Release) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := cluster.Install(ctx, release, func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// small returns a release on one node, and creates volumes for it and one more cell.
func small(t *testing.T, member *testenv.ControlPlane, namespace string) Release {
	t.Helper()
	client := member.Client(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Provisioner: "kubernetes.io/no-provisioner"}
	if _, err := client.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for i := range 4 { // etcds of the hub and of two cells, and the hub manager
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", namespace, i)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName:              class.Name,
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			},
		}
		if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(t.Context()), volume.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	release := Release{Name: "one", Namespace: namespace, Values: values(t, oneNode())}
	for _, path := range [][]string{{"hub", "etcd"}, {"cellDefaults", "etcd"}, {"hubManager"}} {
		if err := unstructured.SetNestedField(release.Values, class.Name, append(path, "storageClassName")...); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

// versions returns the versions of the specifications of all objects of a release.
func versions(t *testing.T, cluster *Cluster, release Release) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, kind := range kinds {
		client, err := cluster.resource(kind, release.Namespace)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: labels.Set{instanceLabel: release.Name}.String()})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			found[kind.Kind+" "+object.GetName()] = identity(&object)
		}
	}
	return found
}

// identity changes with an object's specification.
func identity(object *unstructured.Unstructured) string {
	if object.GetGeneration() == 0 { // it has no status either
		return string(object.GetUID()) + "/" + object.GetResourceVersion()
	}
	return fmt.Sprintf("%s/%d", object.GetUID(), object.GetGeneration())
}

// has reports whether one of the objects is of a cell.
func has(objects map[string]string, cell string) bool {
	for name := range objects {
		if strings.Contains(name, cell) {
			return true
		}
	}
	return false
}
