package rollout_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// TestConditionsOfDeployments has kubectl wait for a Deployment in three clusters as for one in a single cluster.
func TestConditionsOfDeployments(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"cell": cellConfig}, "cell"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	kubectl := kubectltest.Kubectl(kubeconfig)
	kill := startEngine(t)
	w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(1))
	in := func(args ...string) []string { return append(args, "-n", w.ns, "deployment/web", "--timeout=2m") }
	complete := func() {
		t.Helper()
		kubectl.Must(t, in("rollout", "status")...)
		kubectl.Must(t, in("wait", "--for=condition=Available")...)
		kubectl.Must(t, in("wait", `--for=jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=NewReplicaSetAvailable`)...)
	}
	complete()
	before := w.conditions()

	// A version that becomes available nowhere is noticed, although it has not reached all clusters.
	unavailable := func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = ptr.To(int32(minReadySeconds + 1))
		d.Spec.Template.Spec.NodeSelector = map[string]string{"node": "none"}
	}
	w.edit(unavailable)
	if output, err := kubectl.Try(t.Context(), t, "", in("rollout", "status")...); err == nil || !strings.Contains(output, "exceeded its progress deadline") {
		t.Fatalf("kubectl rollout status: %v: %s", err, output)
	}
	kubectl.Must(t, in("wait", "--for=condition=Progressing=false")...)
	w.told("ProgressDeadlineExceeded")
	kubectl.Must(t, in("wait", "--for=condition=Available")...)
	if now := w.conditions(); now[appsv1.DeploymentAvailable] != before[appsv1.DeploymentAvailable] {
		t.Errorf("it stayed available, and its condition changed: %+v, before %+v", now, before)
	}

	// It can be corrected. An engine that starts then writes nothing.
	w.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = nil })
	complete()
	w.told("NewReplicaSetAvailable", "ReplicaSetUpdated")
	w.finished(1, 6)
	kill()
	stored := w.get()
	startEngine(t)
	w.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(7)) })
	w.finished(1, 7)
	if now := w.conditions(); now[appsv1.DeploymentAvailable] != conditionsIn(stored)[appsv1.DeploymentAvailable] || now[appsv1.DeploymentProgressing] != conditionsIn(stored)[appsv1.DeploymentProgressing] {
		t.Errorf("another engine changed conditions of a workload that was only scaled: %+v, before %+v", now, conditionsIn(stored))
	}

	// Less than all replicas but maxUnavailable are not enough.
	w.edit(unavailable)
	w.edit(func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	kubectl.Must(t, in("wait", "--for=condition=Available=false")...)
}

// told waits until an event on the template has one of the reasons.
func (w *workload) told(reasons ...string) {
	w.t.Helper()
	testenv.Eventually(w.t, "an event tells "+strings.Join(reasons, " or "), func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := cell.List(ctx, &list, ctrlclient.InNamespace(w.ns)); err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Deployment" && e.InvolvedObject.Name == "web" && slices.Contains(reasons, e.Reason)
		}), nil
	})
}

func (w *workload) get() *appsv1.Deployment {
	w.t.Helper()
	d := w.ref()
	if err := cell.Get(w.t.Context(), ctrlclient.ObjectKeyFromObject(d), d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *workload) conditions() map[appsv1.DeploymentConditionType]appsv1.DeploymentCondition {
	w.t.Helper()
	return conditionsIn(w.get())
}

func conditionsIn(d *appsv1.Deployment) map[appsv1.DeploymentConditionType]appsv1.DeploymentCondition {
	of := map[appsv1.DeploymentConditionType]appsv1.DeploymentCondition{}
	for _, condition := range d.Status.Conditions {
		if condition.Status != corev1.ConditionUnknown {
			of[condition.Type] = condition
		}
	}
	return of
}
