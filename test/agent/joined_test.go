package agent

import (
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// agentJoins gives the member in push mode an agent as users do: with credentials of its own, and as a workload of the federation. The nodes are simulated,
// so the test runs the agent, with the rights of its pod.
func (w *world) agentJoins() {
	joined := w.run("join", pushed, "--member-kubeconfig", w.kubeconfig(pushed), "--agent")
	if !strings.Contains(joined, "karmada-system/karmada-kubeconfig") {
		w.Errorf("join printed %q", joined)
	}
	w.run("kubectl", "apply", "-f", "../../docs/examples/metrics-agent.yaml")
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "cellplane-agent", Name: "agent"}}
	until(w, "the agent is in the member", w.other, agent, func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
	w.untilGone("it is not in the other one, which has not joined with it", w.member, agent)

	if err := w.supervisor.Signal(w.Context(), pushed+"/agent", "halt"); err != nil {
		w.Fatal(err)
	}
	metrics := &metricsv1alpha1.WorkloadMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.WorkloadMetricsName("Deployment", workloads[0], pushed)}}
	w.untilGone("nobody reports", w.gateway, metrics)
	kill := w.startAgent(w.serviceAccount(pushed, agent.Namespace, agent.Name), "--metrics-only", "--workload-metrics-interval", "500ms")
	until(w, "the agent reports", w.gateway, metrics, func(m *metricsv1alpha1.WorkloadMetrics) bool { return m.Pods.Total == 1 })
	kill()
}

// serviceAccount writes a kubeconfig with the token of a service account of a member, and returns its path.
func (w *world) serviceAccount(member, namespace, name string) string {
	w.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig(member))
	if err != nil {
		w.Fatal(err)
	}
	token := strings.TrimSpace(w.run("kubectl", "--context", member, "create", "token", name, "-n", namespace))
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(w.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		w.Fatal(err)
	}
	return file
}
