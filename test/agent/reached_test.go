package agent

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
)

// memberIsReached checks that commands reach pods of the member in pull mode, through the tunnels of its agent.
func (w *world) memberIsReached(workload string) {
	w.Helper()
	until(w, workload+" has been rolled out in the member", w.member, deployment(workload), func(d *appsv1.Deployment) bool {
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.Replicas == *d.Spec.Replicas && s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas
	})
	there := &corev1.PodList{}
	if err := w.member.List(w.Context(), there, client.InNamespace(namespace), client.MatchingLabels{"app": workload}); err != nil {
		w.Fatal(err)
	}
	name := ""
	for _, pod := range there.Items {
		if pod.DeletionTimestamp == nil {
			name = pod.Name
		}
	}
	until(w, "the gateway shows a pod of the member", w.gateway, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, func(pod *corev1.Pod) bool {
		return pod.Annotations[names.ClusterAnnotation] == pulled && pod.Annotations[names.StaleSinceAnnotation] == ""
	})
	w.run("kubectl", "logs", "-n", namespace, name, "--tail", "1")
	if said := w.run("kubectl", "exec", "-n", namespace, name, "--", "echo", "hello"); strings.TrimSpace(said) != "hello" {
		w.Errorf("the command in the pod printed %q", said)
	}
	for _, surface := range []string{"", "/federation"} {
		path := surface + "/apis/cluster.karmada.io/v1alpha1/clusters/" + pulled + "/proxy/api/v1/namespaces/" + namespace + "/pods/" + name
		if said := w.run("kubectl", "get", "--raw", path); !strings.Contains(said, name) {
			w.Errorf("%s returned %s", path, said)
		}
	}
}
