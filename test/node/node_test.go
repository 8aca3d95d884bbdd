package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

// TestNode expects of the node what the chart needs: restricted pods with volumes of their group, names of pods and Services, logs and commands.
func TestNode(t *testing.T) {
	node := startNode(t)
	const ns = "stateful"
	namespace(t, node.Client, ns)
	labels := map[string]string{"app": "web"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	headless := service.DeepCopy()
	headless.Name, headless.Spec.ClusterIP = "peers", corev1.ClusterIPNone
	for _, s := range []*corev1.Service{service, headless} {
		if _, err := node.Client.CoreV1().Services(ns).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), ServiceName: headless.Name, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: restrictedPod()},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		}}},
	}}
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	if _, err := node.Client.AppsV1().StatefulSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready(t, node.Client, ns, "web-0", "web-1")
	k := kubectl(t, node.Config)

	t.Run("commands run in pods", func(t *testing.T) {
		if got := k.Must(t, "exec", "-n", ns, "web-1", "--", "hostname"); got != "web-1\n" {
			t.Errorf("the host is called %q", got)
		}
	})
	for name, want := range map[string]string{"web": "hello from web-", "web-1.peers." + ns + ".svc": "hello from web-1"} {
		t.Run("pods reach "+name, func(t *testing.T) {
			port := ""
			if name != "web" {
				port = ":8080"
			}
			testenv.Eventually(t, "an answer", func(ctx context.Context) (bool, error) {
				out, err := k.Try(ctx, t, "", "exec", "-n", ns, "web-0", "--", "toolbox", "get", "http://"+name+port+"/from-a-pod")
				if err != nil {
					return false, fmt.Errorf("%w: %s", err, out)
				}
				return strings.HasPrefix(out, want), fmt.Errorf("got %s", out)
			})
		})
	}
	t.Run("logs", func(t *testing.T) {
		if got := k.Must(t, "logs", "-n", ns, "web-1"); !strings.Contains(got, "serving\n") || !strings.Contains(got, "request /from-a-pod\n") {
			t.Errorf("the log is %q", got)
		}
	})
	t.Run("volumes outlive their pods", func(t *testing.T) {
		if out, err := k.Try(t.Context(), t, "kept", "exec", "-i", "-n", ns, "web-0", "--", "toolbox", "write", "/data/file"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		before, err := node.Client.CoreV1().Pods(ns).Get(t.Context(), "web-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Client.CoreV1().Pods(ns).Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "there is another pod", func(ctx context.Context) (bool, error) {
			after, err := node.Client.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
			return err == nil && after.UID != before.UID && isReady(after), err
		})
		if got := k.Must(t, "exec", "-n", ns, "web-0", "--", "cat", "/data/file"); got != "kept" {
			t.Errorf("the file has %q", got)
		}
	})
}

// restrictedPod returns a pod that serves on port 8080 and satisfies the Pod Security Standard "restricted".
func restrictedPod() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "main", Image: realnode.Image, ImagePullPolicy: corev1.PullNever,
			Ports:           []corev1.ContainerPort{{ContainerPort: 8080}},
			ReadinessProbe:  &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080), Path: "/ready"}}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}
