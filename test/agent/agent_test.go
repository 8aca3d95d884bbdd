package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

const namespace = "demo"

// workloads live in both cells.
var workloads = []string{"web-0", "web-1", "web-2", "web-3", "web-4"}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}},
			},
		},
	}
}

func cluster(name string) *clusterv1alpha1.Cluster {
	return &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestAgent(t *testing.T) {
	w := newWorld(t)
	w.policyRefusesAgents()
	w.clusterIsReported()
	w.workloadsArrive()
	w.memberIsReached(workloads[0])
	w.entryIsHeld()
	w.metricsAreReported()
	w.workloadsAreScaled()
	w.rightsAreNarrow()
	w.reporterIsNarrow()
	w.agentStops()
	uids := w.uids()
	for _, happens := range []func(){w.cellLeaves, w.scalesAfterTheMove, w.cellComes, w.cellFails} {
		happens()
		if now := w.uids(); fmt.Sprint(now) != fmt.Sprint(uids) {
			t.Fatalf("a change of cells replaced objects in the member: %v, before %v", now, uids)
		}
	}
	w.agentJoins()
	w.clusterLeaves()
	w.clusterRegisters()
}

// policyRefusesAgents creates a policy, as a user may, that refuses whatever agents write. They are part of the control plane, so nothing that follows
// may change.
func (w *world) policyRefusesAgents() {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-agents"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "!('" + names.AgentsGroup + "' in request.userInfo.groups)", Message: "agents may not"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-agents"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	for _, object := range []client.Object{policy, binding} {
		if err := w.gateway.Create(w.Context(), object); err != nil {
			w.Fatal(err)
		}
	}
}

// clusterIsReported checks that the agent reports health, capacity and APIs of its cluster.
func (w *world) clusterIsReported() {
	until(w, "the agent reports about its cluster", w.gateway, cluster(pulled), func(c *clusterv1alpha1.Cluster) bool {
		s := &c.Status
		return meta.IsStatusConditionTrue(s.Conditions, names.ClusterReady) && meta.IsStatusConditionTrue(s.Conditions, names.ClusterCompleteAPIEnablements) &&
			s.KubernetesVersion != "" && s.NodeSummary != nil && s.NodeSummary.ReadyNum == 1 && s.ResourceSummary != nil && !s.ResourceSummary.Allocatable.Cpu().IsZero() &&
			slices.ContainsFunc(s.APIEnablements, func(a clusterv1alpha1.APIEnablement) bool { return a.GroupVersion == "apps/v1" })
	})
}

// workloadsArrive checks that objects, their changes and their deletion reach the member, and that their status comes back.
func (w *world) workloadsArrive() {
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"}}
	for _, name := range append(workloads, "gone", "orphan", "held") { // by name: others have policies of their own, which an engine may learn of late
		policy.Spec.ResourceSelectors = append(policy.Spec.ResourceSelectors, policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Name: name})
	}
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{pushed, pulled}}
	w.run("kubectl", "create", "namespace", namespace)
	if err := w.gateway.Create(w.Context(), policy); err != nil {
		w.Fatal(err)
	}
	for _, name := range append(workloads, "gone") {
		if err := w.gateway.Create(w.Context(), deployment(name)); err != nil {
			w.Fatal(err)
		}
	}
	for _, name := range workloads {
		until(w, name+" has the status of both members", w.gateway, deployment(name), func(d *appsv1.Deployment) bool {
			return d.Status.ReadyReplicas == 4 && d.Status.ObservedGeneration == d.Generation
		})
		change(w, deployment(name), image("2"))
	}
	if err := w.gateway.Delete(w.Context(), deployment("gone")); err != nil {
		w.Fatal(err)
	}
	for _, name := range workloads {
		until(w, "the change of "+name+" arrives", w.member, deployment(name), has("2"))
		until(w, "the status of the changed "+name+" comes back", w.gateway, deployment(name), func(d *appsv1.Deployment) bool {
			return d.Status.UpdatedReplicas == 4 && d.Status.ReadyReplicas == 4 && d.Status.ObservedGeneration == d.Generation
		})
	}
	until(w, "the binding is applied everywhere", w.gateway, &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.BindingName("Deployment", workloads[0])}},
		func(b *workv1alpha2.ResourceBinding) bool {
			return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied) && len(b.Status.AggregatedStatus) == 2
		})
	w.untilGone("the deletion arrives", w.member, deployment("gone"))
	w.untilGone("its template is gone", w.gateway, deployment("gone"))
}

// entryIsHeld checks that an agent writes nothing to what people have taken out of the federation's hands, also after it was restarted, and reports it.
func (w *world) entryIsHeld() {
	held := deployment("held")
	if err := w.gateway.Create(w.Context(), held); err != nil {
		w.Fatal(err)
	}
	inMember := func(what string, edit func(*appsv1.Deployment)) {
		testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
			if err := w.member.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil {
				return false, err
			}
			edit(held)
			err := w.member.Update(ctx, held, client.FieldOwner("kubectl-edit"))
			return err == nil, err
		})
	}
	until(w, "it arrives", w.member, held, has("1"))
	inMember("people repair it", func(d *appsv1.Deployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, names.EntryAnnotation, "")
		image("repaired")(d)
	})
	change(w, deployment("held"), image("2"))
	until(w, "the other member has the change", w.other, deployment("held"), has("2"))
	holds := func(what string, ok func(*workv1alpha1.Work) bool) {
		work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(pulled), Name: names.WorkName("Deployment", namespace, "held")}}
		until(w, what, w.gateway, work, func(work *workv1alpha1.Work) bool {
			applied := meta.FindStatusCondition(work.Status.Conditions, names.WorkApplied)
			return applied != nil && applied.Reason == names.ReasonEntryOpen && meta.IsStatusConditionTrue(work.Status.Conditions, names.EntryOpen) && ok(work)
		})
		until(w, "nothing was written to it", w.member, deployment("held"), has("repaired"))
	}
	holds("the agent holds back the change", func(work *workv1alpha1.Work) bool {
		return strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "nginx:2")
	})
	until(w, "the binding tells", w.gateway, &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.BindingName("Deployment", "held")}},
		func(b *workv1alpha2.ResourceBinding) bool {
			told := meta.FindStatusCondition(b.Status.Conditions, names.EntryOpen)
			return told != nil && strings.Contains(told.Message, "Deployment demo/held in cluster "+pulled+" is open")
		})
	w.signalAgent("restart")
	if err := w.gateway.Delete(w.Context(), deployment("held")); err != nil {
		w.Fatal(err)
	}
	holds("a new agent holds back the deletion", func(work *workv1alpha1.Work) bool { return work.DeletionTimestamp != nil })
	inMember("people give it back", func(d *appsv1.Deployment) { delete(d.Annotations, names.EntryAnnotation) })
	w.untilGone("it is deleted", w.member, deployment("held"))
	w.untilGone("its template is gone", w.gateway, deployment("held"))
}

// agentStops checks that a silent agent is noticed, and that a new one catches up: also with what was deleted meanwhile.
func (w *world) agentStops() {
	if err := w.gateway.Create(w.Context(), deployment("orphan")); err != nil {
		w.Fatal(err)
	}
	until(w, "the orphan arrives", w.member, deployment("orphan"), has("1"))
	w.signalAgent("halt")
	if err := w.gateway.Delete(w.Context(), deployment("orphan")); err != nil {
		w.Fatal(err)
	}
	for _, name := range workloads {
		change(w, deployment(name), image("3"))
	}
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(pulled), Name: names.WorkName("Deployment", namespace, "orphan")}}
	until(w, "the Work of the orphan waits for the agent", w.gateway, work, func(work *workv1alpha1.Work) bool { return work.DeletionTimestamp != nil })
	until(w, "the silent agent is noticed", w.gateway, cluster(pulled), func(c *clusterv1alpha1.Cluster) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, names.ClusterReady)
		return ready != nil && ready.Status == metav1.ConditionUnknown
	})
	until(w, "nobody else wrote to the member", w.member, deployment("orphan"), has("1"))
	w.signalAgent("restart")
	w.untilGone("the orphan is removed", w.member, deployment("orphan"))
	for _, name := range workloads {
		until(w, "the change of "+name+" arrives late", w.member, deployment(name), has("3"))
	}
	w.memberIsReached(workloads[1])
	w.clusterIsReported()
}

// uids returns the UIDs of the workloads in the member.
func (w *world) uids() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, name := range workloads {
		uids[name] = until(w, name+" is in the member", w.member, deployment(name), has("3")).UID
	}
	return uids
}

// cellLeaves drains a cell while the agent works.
func (w *world) cellLeaves() {
	w.run("cells", "drain", "cell-b")
	w.follows(1)
}

// cellComes adds the cell again.
func (w *world) cellComes() {
	w.run("cells", "add", "cell-b")
	w.follows(2)
}

// cellFails loses the cell, and fails it over.
func (w *world) cellFails() {
	asked := time.Now().Truncate(time.Second)
	until(w, "the cell is backed up", w.hub, &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: "cell-b"}}, func(c *cellplanev1alpha1.Cell) bool {
		return c.Status.Backup != nil && c.Status.Backup.UpToDateAt != nil && c.Status.Backup.UpToDateAt.After(asked)
	})
	if err := w.supervisor.SignalAll(w.Context(), "cell-b/", "halt"); err != nil {
		w.Fatal(err)
	}
	w.run("cells", "failover", "cell-b")
	w.follows(1)
}

// follows checks that changes of the workloads arrive in the member and their status comes back, and that what is created and deleted does.
func (w *world) follows(replicas int32) {
	w.Helper()
	w.create(deployment("gone"))
	for _, name := range workloads {
		change(w, deployment(name), func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
	}
	for _, name := range workloads {
		until(w, "the change of "+name+" arrives", w.member, deployment(name), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == replicas })
		until(w, "the status of "+name+" comes back", w.gateway, deployment(name), func(d *appsv1.Deployment) bool {
			return d.Status.Replicas == 2*replicas && d.Status.ObservedGeneration == d.Generation
		})
	}
	until(w, "what is created arrives", w.member, deployment("gone"), has("1"))
	if err := w.gateway.Delete(w.Context(), deployment("gone")); err != nil {
		w.Fatal(err)
	}
	w.untilGone("its deletion arrives", w.member, deployment("gone"))
	w.untilGone("its template is gone", w.gateway, deployment("gone"))
}

// clusterLeaves removes the Cluster: its agent removes what was placed there, and loses its rights.
func (w *world) clusterLeaves() {
	w.run("kubectl", "delete", "cluster", pulled, "--timeout", "2m")
	for _, name := range workloads {
		w.untilGone(name+" is removed from the member", w.member, deployment(name))
	}
	w.untilGone("the namespace of its Works is gone", w.hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ExecutionNamespace(pulled)}})
	w.untilGone("its agent has no rights", w.hub, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: names.AgentUser(pulled)}})
}

// clusterRegisters lets the member come back by itself: with a token, and with two agents that use what its registration has left there.
func (w *world) clusterRegisters() {
	w.signalAgent("halt") // the local federation has given it a certificate, which the Cluster of a registration does not list
	kubeconfig := w.kubeconfig(pulled)
	register := strings.Fields(w.run("token", "create", "--print-register-command"))
	w.run(append(register[1:], "--cluster-name", pulled, "--kubeconfig", kubeconfig)...)
	elected := []string{"--leader-elect", "--cluster-status-update-frequency", "500ms", "--cluster-success-threshold", "500ms", "--cluster-lease-duration", "2s"}
	kill := [2]func(){w.startAgent(kubeconfig, elected...), w.startAgent(kubeconfig, elected...)}
	w.clusterIsReported()
	until(w, "the workload arrives again", w.member, deployment(workloads[0]), has("3"))
	kill[0]()
	change(w, deployment(workloads[0]), image("4"))
	until(w, "the change arrives though an agent was killed", w.member, deployment(workloads[0]), has("4"))
	w.memberIsReached(workloads[0])
}

// startAgent runs an agent until it is killed.
func (w *world) startAgent(kubeconfig string, flags ...string) (kill func()) {
	w.Helper()
	cmd := w.command(context.Background(), append([]string{"agent", "--member-kubeconfig", kubeconfig}, flags...)...)
	var output bytes.Buffer
	cmd.Stderr = &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("an agent of the registered cluster:\n%s", &output)
		}
	})
	w.Cleanup(kill)
	return kill
}
