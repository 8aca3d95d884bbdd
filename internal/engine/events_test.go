package engine_test

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// B9, I1: a failing script is reported where its result is missing, each operation with the reason that users know. The
// rest works as far as possible, and continues when the script is repaired.
func TestScriptsThatFail(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const failing = "error('not today')"
	custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	custom.Spec.Customizations.ReplicaResource = &configv1alpha1.ReplicaResourceRequirement{LuaScript: "function GetReplicas(obj) " + failing + " end"}
	create(t, custom)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), custom) })
	create(t, policy(ns, "p", nil, inMembers("member1"), withDependencies, func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}}
	}))
	rules := func(rules configv1alpha1.CustomizationRules) {
		t.Helper()
		edit(t, cell, custom, func(c *configv1alpha1.ResourceInterpreterCustomization) { c.Spec.Customizations = rules })
	}
	np := func() *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "np"}}
	}
	work := names.WorkName("NetworkPolicy", ns, "np")

	create(t, np())
	event(t, cell, ns, "np", names.EventGetReplicasFailed)
	rules(configv1alpha1.CustomizationRules{ComponentResource: &configv1alpha1.ComponentResourceRequirement{LuaScript: "function GetComponents(obj) " + failing + " end"}})
	event(t, cell, ns, "np", names.EventGetComponentsFailed)
	event(t, cell, ns, "np", names.EventGetReplicasSucceed)
	missing(t, "a binding of a template that cannot be interpreted", cell, bindingRef(ns, "np-networkpolicy"))

	rules(configv1alpha1.CustomizationRules{
		StatusReflection:         &configv1alpha1.StatusReflection{LuaScript: "function ReflectStatus(obj) " + failing + " end"},
		HealthInterpretation:     &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(obj) " + failing + " end"},
		StatusAggregation:        &configv1alpha1.StatusAggregation{LuaScript: "function AggregateStatus(obj, items) " + failing + " end"},
		DependencyInterpretation: &configv1alpha1.DependencyInterpretation{LuaScript: "function GetDependencies(obj) " + failing + " end"},
	})
	until(t, "it is in the member nevertheless", members["member1"], np(), anything[*networkingv1.NetworkPolicy])
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventReflectStatusFailed)
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventInterpretHealthFailed)
	event(t, cell, ns, "np", names.EventGetComponentsSucceed)
	event(t, cell, ns, "np", names.EventAggregateStatusFailed)
	event(t, cell, ns, "np-networkpolicy", names.EventGetDependenciesFailed)
	until(t, "its health is not known", cell, bindingRef(ns, "np-networkpolicy"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Health == workv1alpha2.ResourceUnknown
	})

	rules(configv1alpha1.CustomizationRules{
		StatusReflection:         &configv1alpha1.StatusReflection{LuaScript: "function ReflectStatus(obj) return {seen = true} end"},
		HealthInterpretation:     &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(obj) return true end"},
		StatusAggregation:        &configv1alpha1.StatusAggregation{LuaScript: "function AggregateStatus(obj, items) return obj end"},
		DependencyInterpretation: &configv1alpha1.DependencyInterpretation{LuaScript: "function GetDependencies(obj) return {} end"},
	})
	event(t, cell, ns, "np", names.EventAggregateStatusSucceed)
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventReflectStatusSucceed)
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventInterpretHealthSucceed)
	event(t, cell, ns, "np", names.EventGetDependenciesSucceed)
	event(t, cell, ns, "np-networkpolicy", names.EventGetDependenciesSucceed)
	until(t, "it is healthy", cell, bindingRef(ns, "np-networkpolicy"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Health == workv1alpha2.ResourceHealthy
	})
	if of := event(t, cell, ns, "np", names.EventGetReplicasFailed); of.Type != corev1.EventTypeWarning {
		t.Errorf("a failure has type %s", of.Type)
	}
}

// ruled is the message of an admission policy of the cell's administrator. What it prevents is reported on the binding,
// and done once the policy is removed.
const ruled = "this is not the time for changes"

func told(t *testing.T, ns, name, reason string) {
	t.Helper()
	if of := event(t, cell, ns, name, reason); of.Type != corev1.EventTypeWarning || !strings.Contains(of.Message, ruled) {
		t.Errorf("%s has type %s: %s", reason, of.Type, of.Message)
	}
}

// B1, B9: Works that cannot be deleted, because their cluster is no longer chosen or their template is deleted.
func TestWorksThatStay(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	refuse := func(work *workv1alpha1.Work) (relent func()) {
		return testenv.Refuse(t, cellConfig, testenv.Refusal{
			Operation: admissionregistrationv1.Delete, Group: workv1alpha1.GroupName, Resource: "works", Name: work.Name, Words: ruled,
			Probe: func(ctx context.Context) error { return cell.Delete(ctx, work, ctrlclient.DryRunAll) },
		})
	}
	p := policy(ns, "p", []string{"ConfigMap"}, inMembers("member1"))
	create(t, p, configMap(ns, "moved", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "moved", "k", "1")
	relent := refuse(workRef("member1", "ConfigMap", ns, "moved"))
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	told(t, ns, "moved-configmap", names.EventCleanupWorkFailed)
	relent()
	untilGone(t, "it is removed", members["member1"], configMapRef(ns, "moved"))
	delivered(t, "member2", ns, "moved", "k", "1")
	event(t, cell, ns, "moved-configmap", names.EventSyncWorkSucceed)

	create(t, configMap(ns, "deleted", map[string]string{"k": "1"}))
	delivered(t, "member2", ns, "deleted", "k", "1")
	relent = refuse(workRef("member2", "ConfigMap", ns, "deleted"))
	if err := cell.Delete(t.Context(), configMapRef(ns, "deleted")); err != nil {
		t.Fatal(err)
	}
	told(t, ns, "deleted-configmap", names.EventCleanupWorkFailed)
	relent()
	untilGone(t, "its copy is gone", members["member2"], configMapRef(ns, "deleted"))
	untilGone(t, "its binding is gone", cell, bindingRef(ns, "deleted-configmap"))
}

// P12, B9: a dependency whose binding cannot be created.
func TestDependencyThatCannotFollow(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	attached := bindingRef(ns, ns+"-configmap")
	attached.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: ns, Name: ns}
	relent := testenv.Refuse(t, cellConfig, testenv.Refusal{
		Operation: admissionregistrationv1.Create, Group: workv1alpha2.GroupName, Resource: "resourcebindings", Name: attached.Name, Words: ruled,
		Probe: func(ctx context.Context) error { return cell.Create(ctx, attached.DeepCopy(), ctrlclient.DryRunAll) },
	})
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1"), withDependencies), configMap(ns, ns, map[string]string{"k": "1"}))
	create(t, mounting(deployment(ns, "web", 1), ns))
	told(t, ns, "web-deployment", names.EventSyncScheduleResultToDependenciesFailed)
	relent()
	delivered(t, "member1", ns, ns, "k", "1")
	event(t, cell, ns, "web-deployment", names.EventSyncScheduleResultToDependenciesSucceed)
}

// F1, F3, B9: workloads that cannot be evicted, for a taint or because they are unhealthy.
func TestEvictionsThatFail(t *testing.T) {
	t.Parallel()
	t.Run("taint", func(t *testing.T) {
		t.Parallel()
		ns, cluster := leftCluster(t)
		relent := refuseEviction(t, ns)
		edit(t, cell, cluster, func(c *clusterv1alpha1.Cluster) {
			c.Spec.Taints = append(c.Spec.Taints, corev1.Taint{Key: "down", Effect: corev1.TaintEffectNoExecute})
		})
		told(t, ns, ns+"-configmap", names.EventEvictWorkloadFromClusterFailed)
		relent()
		delivered(t, "member1", ns, ns, "k", "1")
		event(t, cell, ns, ns+"-configmap", names.EventEvictWorkloadFromClusterSucceed)
	})
	t.Run("health", func(t *testing.T) {
		t.Parallel()
		ns, cluster := leftCluster(t, withDependencies, func(spec *policyv1alpha1.PropagationSpec) {
			spec.Failover = &policyv1alpha1.FailoverBehavior{Application: &policyv1alpha1.ApplicationFailoverBehavior{
				DecisionConditions: policyv1alpha1.DecisionConditions{TolerationSeconds: ptr.To[int32](1)},
			}}
		})
		relent := refuseEviction(t, ns)
		work := until(t, "it has a Work", cell, workRef(cluster.Name, "ConfigMap", ns, ns), anything[*workv1alpha1.Work])
		work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{
			Identifier: workv1alpha1.ResourceIdentifier{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: ns, Name: ns},
			Health:     workv1alpha1.ResourceUnhealthy,
		}}
		if err := cell.Status().Update(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		told(t, ns, ns+"-configmap", names.EventEvictWorkloadFromClusterFailed)
		relent()
		delivered(t, "member1", ns, ns, "k", "1")
		event(t, cell, ns, ns+"-configmap", names.EventEvictWorkloadFromClusterSucceed)
	})
}

// leftCluster creates a cluster with a ConfigMap that is named like its namespace and can be evicted to member1. A
// taint keeps the workloads of other tests away.
func leftCluster(t *testing.T, change ...func(*policyv1alpha1.PropagationSpec)) (ns string, cluster *clusterv1alpha1.Cluster) {
	t.Helper()
	ns = namespace(t)
	cluster = &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: clusterv1alpha1.ClusterSpec{
		SyncMode: clusterv1alpha1.Pull, Taints: []corev1.Taint{{Key: "reserved", Effect: corev1.TaintEffectNoSchedule}},
	}}
	create(t, cluster)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), cluster) })
	p := policy(ns, "p", []string{"ConfigMap"}, change...)
	p.Spec.Placement.ClusterTolerations = []corev1.Toleration{{Key: "reserved", Operator: corev1.TolerationOpExists}}
	for _, name := range []string{cluster.Name, "member1"} {
		p.Spec.Placement.ClusterAffinities = append(p.Spec.Placement.ClusterAffinities, policyv1alpha1.ClusterAffinityTerm{
			AffinityName: name, ClusterAffinity: policyv1alpha1.ClusterAffinity{ClusterNames: []string{name}},
		})
	}
	create(t, p, configMap(ns, ns, map[string]string{"k": "1"}))
	until(t, "it is placed", cell, bindingRef(ns, ns+"-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.Clusters) == 1 && b.Spec.Clusters[0].Name == cluster.Name
	})
	return ns, cluster
}

// refuseEviction prevents the eviction of the ConfigMap of leftCluster.
func refuseEviction(t *testing.T, ns string) (relent func()) {
	t.Helper()
	binding := bindingRef(ns, ns+"-configmap")
	return testenv.Refuse(t, cellConfig, testenv.Refusal{
		Operation: admissionregistrationv1.Update, Group: workv1alpha2.GroupName, Resource: "resourcebindings", Name: binding.Name,
		Unless: "!has(object.spec.gracefulEvictionTasks) || size(object.spec.gracefulEvictionTasks) == 0", Words: ruled,
		Probe: func(ctx context.Context) error {
			if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(binding), binding); err != nil {
				return err
			}
			binding.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{FromCluster: ns, Reason: "Test", Producer: "Test"}}
			return cell.Update(ctx, binding, ctrlclient.DryRunAll)
		},
	})
}
