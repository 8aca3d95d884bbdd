package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/position"
)

// fromWatch changes an object and returns it from a watch event.
func fromWatch(t *testing.T, client kubernetes.Interface, namespace, name string) *appsv1.Deployment {
	t.Helper()
	deployments := client.AppsV1().Deployments(namespace)
	list, err := deployments.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := deployments.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	if _, err := deployments.Patch(t.Context(), name, types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations","value":{"at":%q}}]`, list.ResourceVersion), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	event := next(t, stream)
	object, ok := event.Object.(*appsv1.Deployment)
	if !ok || event.Type != watch.Modified || object.Name != name {
		t.Fatalf("got %v", event)
	}
	if kind, err := position.Classify(object.ResourceVersion); err != nil || kind != position.Object {
		t.Fatalf("the watched version is %q: %v", object.ResourceVersion, err)
	}
	return object
}

// testVersionsIn writes with versions from a watch in every place that allows one. A current version must be accepted, and an old one
// refused.
func testVersionsIn(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "versions-in")
	for _, encoding := range encodings {
		client := w.clientWith(t, encoding)
		deployments := client.AppsV1().Deployments(namespace)
		put := func(object *appsv1.Deployment) error {
			object.Labels = map[string]string{"put": "yes"}
			_, err := deployments.Update(t.Context(), object, metav1.UpdateOptions{})
			return err
		}
		patch := func(kind types.PatchType, format string) func(*appsv1.Deployment) error {
			return func(object *appsv1.Deployment) error {
				_, err := deployments.Patch(t.Context(), object.Name, kind, fmt.Appendf(nil, format, object.ResourceVersion), metav1.PatchOptions{FieldManager: manager(kind)})
				return err
			}
		}
		for name, write := range map[string]func(*appsv1.Deployment) error{
			"put": put,
			"put status": func(object *appsv1.Deployment) error {
				object.Status.Replicas++
				_, err := deployments.UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
				return err
			},
			"merge patch":     patch(types.MergePatchType, `{"metadata":{"resourceVersion":"%s","labels":{"x":"merge"}}}`),
			"strategic patch": patch(types.StrategicMergePatchType, `{"metadata":{"resourceVersion":"%s","labels":{"x":"strategic"}}}`),
			"apply patch":     patch(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"resourceVersion":"%s","labels":{"y":"apply"}}}`),
			"scale": func(object *appsv1.Deployment) error {
				scale, err := deployments.GetScale(t.Context(), object.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				scale.ResourceVersion, scale.Spec.Replicas = object.ResourceVersion, scale.Spec.Replicas+1
				_, err = deployments.UpdateScale(t.Context(), object.Name, scale, metav1.UpdateOptions{})
				return err
			},
			"delete": func(object *appsv1.Deployment) error {
				return deployments.Delete(t.Context(), object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &object.ResourceVersion}, DryRun: []string{metav1.DryRunAll}})
			},
		} {
			t.Run(name+" in "+encoding[12:], func(t *testing.T) {
				created := newDeployment(t, client, namespace)
				old := fromWatch(t, client, namespace, created)
				object := fromWatch(t, client, namespace, created)
				if err := write(old.DeepCopy()); !apierrors.IsConflict(err) {
					t.Errorf("with an old version: %v, want a conflict", err)
				}
				if err := write(object.DeepCopy()); err != nil {
					t.Errorf("with the current version: %v", err)
				}
			})
		}
		t.Run("json patch in "+encoding[12:], func(t *testing.T) {
			created := newDeployment(t, client, namespace)
			old := fromWatch(t, client, namespace, created)
			object := fromWatch(t, client, namespace, created)
			format := `[{"op":"test","path":"/metadata/resourceVersion","value":"%s"},{"op":"add","path":"/metadata/labels","value":{"z":"json"}}]`
			if err := patch(types.JSONPatchType, format)(old); err == nil {
				t.Error("a test for an old version passed")
			}
			if err := patch(types.JSONPatchType, format)(object); err != nil {
				t.Errorf("with the current version: %v", err)
			}
		})
	}
	t.Run("yaml", func(t *testing.T) {
		created := newDeployment(t, w.client, namespace)
		object := fromWatch(t, w.client, namespace, created)
		object.APIVersion, object.Kind = "apps/v1", "Deployment"
		body, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		response := w.do(t, http.MethodPut, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+created, nil, http.Header{"Content-Type": {"application/yaml"}}, strings.NewReader(string(body)))
		readOK(t, response)
	})
	t.Run("eviction", func(t *testing.T) {
		pods := w.client.CoreV1().Pods(namespace)
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Stop()
		if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evicted"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		evict := func(version string) error {
			return w.client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: "evicted", Namespace: namespace},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To(version)}},
			})
		}
		old := next(t, stream).Object.(*corev1.Pod).ResourceVersion
		if _, err := pods.Patch(t.Context(), "evicted", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		current := next(t, stream).Object.(*corev1.Pod).ResourceVersion
		if err := evict(old); !apierrors.IsConflict(err) {
			t.Errorf("with an old version: %v, want a conflict", err)
		}
		if err := evict(current); err != nil {
			t.Errorf("with the current version: %v", err)
		}
	})
}

func manager(kind types.PatchType) string {
	if kind == types.ApplyPatchType {
		return "test"
	}
	return ""
}

// newDeployment creates a Deployment with a generated name.
func newDeployment(t *testing.T, client kubernetes.Interface, namespace string) string {
	t.Helper()
	labels := map[string]string{"app": "x"}
	created, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "d-"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](10), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}
