package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// TestReplication runs against one federation of two cells. Its parts run in order, each with its own names.
func TestReplication(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{Cells: 2})
	f := &fixture{federation: federation, hub: newPlane(t, federation.Hub), cells: []*plane{newPlane(t, federation.Cells[0]), newPlane(t, federation.Cells[1])}}
	f.start(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"every kind arrives", f.testEveryKind},
		{"credentials go where they are needed", f.testSecrets},
		{"changes and drift", f.testChanges},
		{"status", f.testStatus},
		{"deletion", f.testDeletion},
		{"made again", f.testReplacement},
		{"definitions", f.testDefinitions},
		{"namespaces end when they are empty", f.testNamespaceEnds},
		{"namespaces that vanished unseen", f.testNamespaceVanished},
		{"namespaces that a cell lost", f.testNamespaceLost},
		{"what is not a copy", f.testForeign},
		{"restart", f.testRestart},
		{"a cache that is behind", f.testStaleCache},
		{"a cell that hangs", f.testPausedCell},
		{"a cell that is down", f.testDeadCell},
		{"cells come and go", f.testCellsComeAndGo},
		{"another hub", f.testAnotherHub},
		{"many objects", f.testMany},
	} {
		if !t.Run(part.name, part.run) {
			break // the next part would start from an unknown state
		}
	}
	f.stop()
}

// secretsOnly keeps policies from what other parts of the test write.
const secretsOnly = `matchConstraints: {resourceRules: [{apiGroups: [none.example], apiVersions: ["*"], resources: ["*"], operations: [CREATE]}]}`

func (f *fixture) testEveryKind(t *testing.T) {
	f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: every, labels: {team: a}, annotations: {note: hello}}}`)
	objects := map[string]string{
		"resourcequotas":             `{apiVersion: v1, kind: ResourceQuota, metadata: {name: every, namespace: every}, spec: {hard: {pods: "10"}}}`,
		"priorityclasses":            `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: every}, value: 7, description: important}`,
		"clusters":                   `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: every}, spec: {syncMode: Push, region: north, taints: [{key: a, effect: NoSchedule}]}}`,
		"propagationpolicies":        `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: every, namespace: every, labels: {propagationpolicy.karmada.io/permanent-id: id-1}, finalizers: [karmada.io/propagation-policy-controller]}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}}`,
		"clusterpropagationpolicies": `{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: every, labels: {clusterpropagationpolicy.karmada.io/permanent-id: id-2}}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}}`,
		"overridepolicies":           `{apiVersion: policy.karmada.io/v1alpha1, kind: OverridePolicy, metadata: {name: every, namespace: every}, spec: {overrideRules: []}}`,
		"clusteroverridepolicies":    `{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterOverridePolicy, metadata: {name: every}, spec: {overrideRules: []}}`,
		"federatedresourcequotas":    `{apiVersion: policy.karmada.io/v1alpha1, kind: FederatedResourceQuota, metadata: {name: every, namespace: every}, spec: {overall: {cpu: 5}}}`,
		"clustertaintpolicies":       `{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterTaintPolicy, metadata: {name: every}, spec: {taints: [{key: a, effect: NoSchedule}]}}`,
		"workloadrebalancers":        `{apiVersion: apps.karmada.io/v1alpha1, kind: WorkloadRebalancer, metadata: {name: every}, spec: {workloads: [{apiVersion: apps/v1, kind: Deployment, name: a, namespace: b}]}}`,
		"rolloutpolicies":            `{apiVersion: cellplane.io/v1alpha1, kind: RolloutPolicy, metadata: {name: every, namespace: every}, spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], stages: [{name: all}]}}`,
		"clusterrolloutpolicies":     `{apiVersion: cellplane.io/v1alpha1, kind: ClusterRolloutPolicy, metadata: {name: every}, spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], stages: [{name: all}]}}`,
		"clusterprofiles":            `{apiVersion: cellplane.io/v1alpha1, kind: ClusterProfile, metadata: {name: every}, spec: {price: {currency: EUR}}}`,
		"schedulingprofiles":         `{apiVersion: cellplane.io/v1alpha1, kind: SchedulingProfile, metadata: {name: every}, spec: {clusters: {gatherPending: true}}}`,
		"admissionparameters":        `{apiVersion: cellplane.io/v1alpha1, kind: AdmissionParameter, metadata: {name: every}, data: {most: "5"}}`,
		"resourceinterpretercustomizations": `{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, metadata: {name: every},
			spec: {target: {apiVersion: a/v1, kind: A}, customizations: {retention: {luaScript: "function Retain(a, b) return a end"}}}}`,
		"resourceinterpreterwebhookconfigurations": `{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterWebhookConfiguration, metadata: {name: every},
			webhooks: [{name: a.example.com, clientConfig: {url: "https://a.example.com"}, interpreterContextVersions: [v1alpha1]}]}`,
		"validatingadmissionpolicies":       `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: every}, spec: {validations: [{expression: "false"}], ` + secretsOnly + `}}`,
		"validatingadmissionpolicybindings": `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: every}, spec: {policyName: every, validationActions: [Warn]}}`,
		"mutatingadmissionpolicies": `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: every}, spec: {failurePolicy: Ignore, reinvocationPolicy: Never,
			mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}], matchConditions: [{name: mine, expression: "true"}], ` + secretsOnly + `}}`,
		"mutatingadmissionpolicybindings": `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: every}, spec: {policyName: other}}`,
		"validatingwebhookconfigurations": `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: every},
			webhooks: [{name: a.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: "https://a.example.com"}}]}`,
		"mutatingwebhookconfigurations": `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: every},
			webhooks: [{name: a.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: "https://a.example.com"}}]}`,
	}
	for resource, text := range objects {
		f.hub.create(t, resource, text)
	}
	objects["namespaces"] = ""
	for resource := range objects {
		source := f.hub.get(t, resource, "every")
		for _, cell := range f.cells {
			f.awaitCopy(t, cell, resource, source)
		}
	}
	for _, rule := range Rules() {
		if rule.Resource != secrets && rule.Resource != definitions {
			if _, tested := objects[rule.Resource.Resource]; !tested {
				t.Errorf("%s are copied but not tested", rule.Resource.Resource)
			}
		}
	}
	got := f.cells[0].get(t, "propagationpolicies", "every")
	if len(got.GetFinalizers()) != 0 {
		t.Errorf("the copy has the finalizers %v of its source", got.GetFinalizers())
	}
	f.testUserPolicies(t)
	unlabelled := f.hub.create(t, "propagationpolicies", `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: held-back, namespace: every}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}}`)
	f.awaitCaughtUp(t, "cell-a", "propagationpolicies.policy.karmada.io", unlabelled.GetResourceVersion())
	if f.cells[0].has(t, "propagationpolicies", "every", "held-back") {
		t.Error("a policy was copied before it had an identity")
	}
}

// testUserPolicies checks that the copies of policies do not apply to components, and that those which cannot be enforced are not copied.
func (f *fixture) testUserPolicies(t *testing.T) {
	t.Helper()
	for _, kind := range userpolicy.Kinds() {
		if got := f.cells[0].get(t, kind.Resource.Resource, "every"); !kind.Limited(got.Object) {
			t.Errorf("the copy of a %s is not limited to users: %v", kind.Kind, got.Object)
		}
	}
	withParameters := f.hub.create(t, "validatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: with-parameters},
		spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "false"}], `+secretsOnly+`}}`)
	f.hub.create(t, "validatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: some.cellplane.io}, spec: {validations: [{expression: "false"}], `+secretsOnly+`}}`)
	f.cells[0].create(t, "validatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: cellplane-fenced}, spec: {validations: [{expression: "false"}], `+secretsOnly+`}}`)
	last := f.hub.create(t, "validatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: last}, spec: {validations: [{expression: "false"}], `+secretsOnly+`}}`)
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "validatingadmissionpolicies", last)
	}
	f.awaitCaughtUp(t, "cell-a", "validatingadmissionpolicies.admissionregistration.k8s.io", last.GetResourceVersion())
	for _, name := range []string{withParameters.GetName(), "some.cellplane.io"} {
		if f.cells[0].has(t, "validatingadmissionpolicies", "", name) {
			t.Errorf("%s was copied", name)
		}
	}
	// What somebody changes in a cell is corrected, and what is deleted on the hub disappears.
	f.cells[0].patch(t, "validatingadmissionpolicies", "", "last", `{"spec":{"validations":[{"expression":"true"}]}}`)
	f.awaitCopy(t, f.cells[0], "validatingadmissionpolicies", last)
	f.hub.delete(t, "validatingadmissionpolicies", "", "last")
	for _, cell := range f.cells {
		cell.awaitGone(t, "validatingadmissionpolicies", "", "last")
	}
	for _, obstacle := range f.replicator.Status()["cell-a"].Obstacles {
		if strings.HasPrefix(obstacle.Object, "cellplane-") {
			t.Errorf("the cell's own policy is reported: %+v", obstacle)
		}
	}
}

func (f *fixture) testSecrets(t *testing.T) {
	f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: karmada-cluster}}`)
	secret := func(name, labels string) {
		f.hub.create(t, "secrets", fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: karmada-cluster, labels: %s}, stringData: {token: t}}`, name, labels))
	}
	secret("alone", "{}")
	secret("shared", "{}")
	secret("impersonator", "{}")
	secret("mine", "{cellplane.io/cell: cell-a, cellplane.io/cluster: other}")
	f.hub.create(t, "clusters", `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: secretive}, spec: {syncMode: Push,
		secretRef: {namespace: karmada-cluster, name: shared}, impersonatorSecretRef: {namespace: karmada-cluster, name: impersonator}}}`)
	f.awaitSecrets(t, []string{"mine", "shared"}, []string{"shared"})

	secret("secretive-b", "{cellplane.io/cell: cell-b, cellplane.io/cluster: secretive}") // cell b no longer needs the shared one
	f.awaitSecrets(t, []string{"mine", "shared"}, []string{"secretive-b"})

	f.hub.patch(t, "clusters", "", "secretive", `{"spec":{"secretRef":{"name":"alone"}}}`)
	f.awaitSecrets(t, []string{"alone", "mine"}, []string{"secretive-b"})

	f.hub.delete(t, "secrets", "karmada-cluster", "secretive-b")
	f.awaitSecrets(t, []string{"alone", "mine"}, []string{"alone"})

	f.hub.delete(t, "clusters", "", "secretive")
	f.awaitSecrets(t, []string{"mine"}, nil)
}

func (f *fixture) testChanges(t *testing.T) {
	policy := f.policy(t, "changing")
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "clusterpropagationpolicies", policy)
	}
	policy = f.hub.patch(t, "clusterpropagationpolicies", "", "changing", `{"metadata":{"labels":{"tier":"gold"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"spec":{"priority":5}}`)
	cell := f.cells[0]
	f.awaitCopy(t, cell, "clusterpropagationpolicies", policy)
	if annotations := cell.get(t, "clusterpropagationpolicies", "changing").GetAnnotations(); annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		t.Errorf("the copy has annotations that mean nothing in a cell: %v", annotations)
	}
	for _, drift := range []string{`{"spec":{"priority":9}}`, `{"metadata":{"labels":{"foreign":"yes"}}}`, `{"metadata":{"annotations":{"cellplane.io/source-generation":"99"}}}`} {
		cell.patch(t, "clusterpropagationpolicies", "", "changing", drift)
		f.awaitCopy(t, cell, "clusterpropagationpolicies", policy)
	}
	before := cell.get(t, "clusterpropagationpolicies", "changing")
	cell.delete(t, "clusterpropagationpolicies", "", "changing")
	testenv.Eventually(t, "the lost copy is recreated", func(ctx context.Context) (bool, error) {
		again, err := cell.resource("clusterpropagationpolicies", "").Get(ctx, "changing", metav1.GetOptions{})
		return err == nil && again.GetUID() != before.GetUID(), err
	})
}

func (f *fixture) testStatus(t *testing.T) {
	f.hub.create(t, "clusters", `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: reporting}, spec: {syncMode: Push}}`)
	var generations []int64
	for _, version := range []string{"v1.35.0", "v1.36.0"} {
		source := f.hub.setStatus(t, "clusters", "reporting", fmt.Sprintf(`{kubernetesVersion: %s, nodeSummary: {totalNum: 3, readyNum: 2}, resourceSummary: {allocatable: {cpu: "10"}},
			conditions: [{type: Ready, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, version))
		for _, cell := range f.cells {
			f.awaitCopy(t, cell, "clusters", source)
		}
		generations = append(generations, f.cells[0].get(t, "clusters", "reporting").GetGeneration())
	}
	if generations[0] != generations[1] {
		t.Errorf("a change of status has changed the copy's generation: %v", generations)
	}
	f.cells[1].setStatus(t, "clusters", "reporting", `{kubernetesVersion: forged}`)
	f.awaitCopy(t, f.cells[1], "clusters", f.hub.get(t, "clusters", "reporting"))
}

func (f *fixture) testDeletion(t *testing.T) {
	policy := f.policy(t, "held", "karmada.io/cluster-propagation-policy-controller")
	cluster := f.hub.create(t, "clusters", `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: draining, finalizers: [karmada.io/cluster-controller]}, spec: {syncMode: Push}}`)
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "clusterpropagationpolicies", policy)
		f.awaitCopy(t, cell, "clusters", cluster)
	}
	gvr := resourceOf("clusterpropagationpolicies")
	if f.replicator.Released(gvr, "", "held", policy.GetUID()) {
		t.Error("a policy is released while the cells have it")
	}
	f.hub.delete(t, "clusterpropagationpolicies", "", "held")
	f.hub.delete(t, "clusters", "", "draining")
	for _, cell := range f.cells {
		cell.awaitGone(t, "clusterpropagationpolicies", "", "held")
		testenv.Eventually(t, "the copy of the cluster is annotated as deleted at its source", func(ctx context.Context) (bool, error) {
			object, err := cell.resource("clusters", "").Get(ctx, "draining", metav1.GetOptions{})
			return err == nil && object.GetAnnotations()[SourceDeletedAnnotation] != "" && object.GetDeletionTimestamp() == nil, err
		})
	}
	testenv.Eventually(t, "the policy is released", func(context.Context) (bool, error) {
		return f.replicator.Released(gvr, "", "held", policy.GetUID()), nil
	})
	f.hub.patch(t, "clusters", "", "draining", `{"metadata":{"finalizers":null}}`)
	for _, cell := range f.cells {
		cell.awaitGone(t, "clusters", "", "draining")
	}
}

// testReplacement recreates an object under its old name: its copies are recreated too.
func (f *fixture) testReplacement(t *testing.T) {
	former := f.policy(t, "replaced")
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "clusterpropagationpolicies", former)
	}
	copies := f.cells[0].get(t, "clusterpropagationpolicies", "replaced")
	f.hub.delete(t, "clusterpropagationpolicies", "", "replaced")
	again := f.policy(t, "replaced")
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "clusterpropagationpolicies", again)
	}
	if f.cells[0].get(t, "clusterpropagationpolicies", "replaced").GetUID() == copies.GetUID() {
		t.Error("the copy of the former object became that of the new one")
	}
}

func (f *fixture) testDefinitions(t *testing.T) {
	definition := f.hub.create(t, "customresourcedefinitions", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "customresourcedefinitions", definition)
		testenv.Eventually(t, "the cell serves the kind", func(ctx context.Context) (bool, error) {
			_, err := cell.client.Resource(widgets).Namespace("default").Create(ctx, manifest(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}`), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), err
		})
	}
	f.hub.delete(t, "customresourcedefinitions", "", "widgets.example.com")
	for _, cell := range f.cells {
		cell.awaitGone(t, "customresourcedefinitions", "", "widgets.example.com")
	}
	own := "works.work.karmada.io"
	f.awaitCopy(t, f.cells[0], "customresourcedefinitions", f.hub.get(t, "customresourcedefinitions", own))
}

func (f *fixture) testNamespaceEnds(t *testing.T) {
	namespace := f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: ending}}`)
	quota := f.hub.create(t, "resourcequotas", `{apiVersion: v1, kind: ResourceQuota, metadata: {name: inside, namespace: ending}, spec: {hard: {pods: "1"}}}`)
	for _, cell := range f.cells {
		f.awaitCopy(t, cell, "namespaces", namespace)
		f.awaitCopy(t, cell, "resourcequotas", quota)
	}
	const template = `{apiVersion: v1, kind: ConfigMap, metadata: {name: template, namespace: ending}}`
	f.cells[0].create(t, "configmaps", template)
	for _, cell := range f.cells { // in every namespace, and nobody removes it
		cell.create(t, "configmaps", strings.ReplaceAll(template, "template", "kube-root-ca.crt"))
	}
	// What has moved to the first cell is still here.
	f.cells[1].create(t, "configmaps", strings.ReplaceAll(template, "name: template", "name: template, labels: {cellplane.io/rebalance-status: migrated}"))
	f.hub.delete(t, "namespaces", "", "ending")
	for _, cell := range f.cells {
		testenv.Eventually(t, "the cell refuses new content", func(ctx context.Context) (bool, error) {
			_, err := cell.resource("configmaps", "ending").Create(ctx, manifest(t, strings.ReplaceAll(template, "template", "late")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err), err
		})
	}
	// The namespace controller of the federation empties the hub; one template is overlooked.
	f.hub.delete(t, "resourcequotas", "ending", "inside")
	f.hub.finalizeNamespace(t, "ending")
	f.cells[1].awaitGone(t, "namespaces", "", "ending")
	f.awaitObstacle(t, "cell-a", Wait, "ending", "configmaps template")
	if !f.cells[0].has(t, "configmaps", "ending", "template") {
		t.Fatal("the content of a namespace is lost")
	}
	f.cells[0].delete(t, "configmaps", "ending", "template")
	f.cells[0].awaitGone(t, "namespaces", "", "ending")
}

// testNamespaceVanished deletes namespaces while no replicator runs.
func (f *fixture) testNamespaceVanished(t *testing.T) {
	for _, name := range []string{"vanished-empty", "vanished-full"} {
		f.hub.create(t, "namespaces", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, name))
		f.awaitCopy(t, f.cells[0], "namespaces", f.hub.get(t, "namespaces", name))
	}
	f.cells[0].create(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: precious, namespace: vanished-full}}`)
	f.stop()
	for _, name := range []string{"vanished-empty", "vanished-full"} {
		f.hub.delete(t, "namespaces", "", name)
		f.hub.finalizeNamespace(t, name)
	}
	f.start(t)
	f.cells[0].awaitGone(t, "namespaces", "", "vanished-empty")
	f.awaitObstacle(t, "cell-a", Wait, "vanished-full", "configmaps precious")
	if phase := f.cells[0].get(t, "namespaces", "vanished-full"); phase.GetDeletionTimestamp() != nil {
		t.Error("a namespace with content is terminating")
	}
	// Recreated on the hub, it keeps its content.
	again := f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: vanished-full}}`)
	f.awaitCopy(t, f.cells[0], "namespaces", again)
	if !f.cells[0].has(t, "configmaps", "vanished-full", "precious") {
		t.Error("the content of a namespace is lost")
	}
}

// testNamespaceLost deletes a namespace in a cell only. It is recreated, with its copies, once its content is gone.
func (f *fixture) testNamespaceLost(t *testing.T) {
	namespace := f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: lost}}`)
	quota := f.hub.create(t, "resourcequotas", `{apiVersion: v1, kind: ResourceQuota, metadata: {name: lost, namespace: lost}, spec: {hard: {pods: "1"}}}`)
	cell := f.cells[0]
	f.awaitCopy(t, cell, "resourcequotas", quota)
	cell.create(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: precious, namespace: lost}}`)
	before := cell.get(t, "namespaces", "lost")
	cell.delete(t, "namespaces", "", "lost")
	f.awaitObstacle(t, "cell-a", Wait, "lost", "configmaps precious")
	if !cell.has(t, "configmaps", "lost", "precious") || !cell.has(t, "resourcequotas", "lost", "lost") {
		t.Error("a namespace with content was emptied")
	}
	cell.delete(t, "configmaps", "lost", "precious")
	testenv.Eventually(t, "the namespace is recreated", func(ctx context.Context) (bool, error) {
		again, err := cell.resource("namespaces", "").Get(ctx, "lost", metav1.GetOptions{})
		return err == nil && again.GetUID() != before.GetUID(), err
	})
	f.awaitCopy(t, cell, "namespaces", namespace)
	f.awaitCopy(t, cell, "resourcequotas", quota)
}

func (f *fixture) testForeign(t *testing.T) {
	const theirs = `{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: NAME, labels: {clusterpropagationpolicy.karmada.io/permanent-id: theirs}}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret}]}}`
	before := f.cells[0].create(t, "clusterpropagationpolicies", strings.ReplaceAll(theirs, "NAME", "contested"))
	f.cells[0].create(t, "clusterpropagationpolicies", strings.ReplaceAll(theirs, "NAME", "uncontested"))
	f.policy(t, "contested")
	f.awaitObstacle(t, "cell-a", Conflict, "contested", "not a copy")
	f.awaitObstacle(t, "cell-a", Foreign, "uncontested", "not a copy")
	f.awaitCopy(t, f.cells[1], "clusterpropagationpolicies", f.hub.get(t, "clusterpropagationpolicies", "contested"))
	f.hub.delete(t, "clusterpropagationpolicies", "", "contested")
	f.cells[1].awaitGone(t, "clusterpropagationpolicies", "", "contested")
	after := f.cells[0].get(t, "clusterpropagationpolicies", "contested")
	if before.GetResourceVersion() != after.GetResourceVersion() {
		t.Error("an object that is not a copy was changed")
	}
	if reports := f.reported("contested"); !slices.Equal(reports, []Action{Foreign, Conflict, Foreign}) && !slices.Equal(reports, []Action{Conflict, Foreign}) {
		t.Errorf("reported as %v", reports)
	}
	if reports := f.reported("system-node-critical"); len(reports) > 0 {
		t.Errorf("an object that the API server creates is reported as %v", reports)
	}
	for _, name := range []string{"contested", "uncontested"} {
		f.cells[0].delete(t, "clusterpropagationpolicies", "", name)
	}
}

// testRestart changes the hub while no replicator runs. After its restart the cells have the changes, and nothing else was written.
func (f *fixture) testRestart(t *testing.T) {
	f.policy(t, "stays")
	doomed := f.policy(t, "doomed")
	changed := f.policy(t, "changed")
	for _, policy := range []*unstructured.Unstructured{doomed, changed} {
		f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", policy)
	}
	f.awaitQuiet(t)
	f.stop()
	before := f.cells[0].versions(t)
	f.hub.delete(t, "clusterpropagationpolicies", "", "doomed")
	changed = f.hub.patch(t, "clusterpropagationpolicies", "", "changed", `{"spec":{"priority":1}}`)
	late := f.policy(t, "late")
	f.start(t)
	f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", late)
	f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", changed)
	f.cells[0].awaitGone(t, "clusterpropagationpolicies", "", "doomed")
	f.awaitQuiet(t)
	after := f.cells[0].versions(t)
	for _, expected := range []string{"clusterpropagationpolicies/doomed", "clusterpropagationpolicies/changed", "clusterpropagationpolicies/late"} {
		if before[expected] == after[expected] {
			t.Errorf("%s should have changed", expected)
		}
		delete(before, expected)
		delete(after, expected)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a restart has written to the cell (-before +after):\n%s", diff)
	}
}

// testStaleCache uses an empty cache of the hub: no copy may be deleted because of it.
func (f *fixture) testStaleCache(t *testing.T) {
	policy := f.policy(t, "unknown")
	f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", policy)
	empty, err := newHub(f.hub.client, Rules())
	if err != nil {
		t.Fatal(err)
	}
	cell, err := newCell("cell-a", f.cells[0].config, empty, Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := newSession(cell)
	if err != nil {
		t.Fatal(err)
	}
	defer session.queue.ShutDown()
	key := objectKey{kind: empty.number(resourceOf("clusterpropagationpolicies")), name: "unknown"}
	rule := empty.kinds[key.kind].rule
	have, err := newCopy(rule, f.cells[0].get(t, "clusterpropagationpolicies", "unknown"))
	if err != nil {
		t.Fatal(err)
	}
	state := State{Rule: rule, Name: "unknown", Have: have}
	if action := Decide(state); action != Delete {
		t.Fatalf("with an empty cache the action is %s", action)
	}
	if _, err := session.do(t.Context(), key, state, Delete); !errors.Is(err, errHubIsAhead) {
		t.Errorf("the hub was not asked: %v", err)
	}
	if !f.cells[0].has(t, "clusterpropagationpolicies", "", "unknown") {
		t.Error("a copy was deleted because of a stale cache")
	}
	f.stop()
	f.hub.delete(t, "clusterpropagationpolicies", "", "unknown")
	if _, err := session.do(t.Context(), key, state, Delete); err != nil {
		t.Errorf("the hub no longer has it: %v", err)
	}
	f.cells[0].awaitGone(t, "clusterpropagationpolicies", "", "unknown")
	f.start(t)
}

func (f *fixture) testPausedCell(t *testing.T) {
	server := f.apiServer(t, 0)
	f.policy(t, "outlives-pause")
	f.awaitQuiet(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	f.testCellOut(t, "paused", server.Resume)
}

func (f *fixture) testDeadCell(t *testing.T) {
	server := f.apiServer(t, 0)
	f.policy(t, "outlives-death")
	f.awaitQuiet(t)
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	f.testCellOut(t, "dead", server.Resurrect)
}

// testCellOut tests that the other cell gets copies while cell a is unreachable, and that cell a catches up.
func (f *fixture) testCellOut(t *testing.T, name string, bringBack func() error) {
	made := f.policy(t, name+"-made")
	f.hub.delete(t, "clusterpropagationpolicies", "", map[string]string{"paused": "outlives-pause", "dead": "outlives-death"}[name])
	f.awaitCopy(t, f.cells[1], "clusterpropagationpolicies", made)
	testenv.Eventually(t, "the loss is noticed", func(context.Context) (bool, error) {
		return f.replicator.Status()["cell-a"].Phase == OutOfContact, nil
	})
	if !f.replicator.Released(resourceOf("clusterpropagationpolicies"), "", "any", "any") {
		t.Error("an unreachable cell blocks the release of a policy")
	}
	if err := bringBack(); err != nil {
		t.Fatal(err)
	}
	f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", made)
	f.awaitQuiet(t)
	for _, gone := range []string{"outlives-pause", "outlives-death"} {
		if f.cells[0].has(t, "clusterpropagationpolicies", "", gone) && !f.hub.has(t, "clusterpropagationpolicies", "", gone) {
			t.Errorf("%s was deleted while the cell was unreachable, and still exists", gone)
		}
	}
}

func (f *fixture) testCellsComeAndGo(t *testing.T) {
	f.replicator.RemoveCell("cell-a")
	if _, known := f.replicator.Status()["cell-a"]; known {
		t.Error("a removed cell is still reported")
	}
	policy := f.policy(t, "come-and-go")
	f.awaitCopy(t, f.cells[1], "clusterpropagationpolicies", policy)
	if f.cells[0].has(t, "clusterpropagationpolicies", "", "come-and-go") {
		t.Error("a removed cell still gets copies")
	}
	f.setCell(t, 0)
	f.awaitCopy(t, f.cells[0], "clusterpropagationpolicies", policy)
	f.setCell(t, 0) // as when its credentials change
	f.hub.delete(t, "clusterpropagationpolicies", "", "come-and-go")
	f.cells[0].awaitGone(t, "clusterpropagationpolicies", "", "come-and-go")
}

// testAnotherHub uses the other cell as a new hub.
func (f *fixture) testAnotherHub(t *testing.T) {
	f.awaitQuiet(t)
	before := f.cells[0].versions(t)
	other, err := New(f.cells[1].config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = other.Start(ctx) })
	defer running.Wait()
	defer cancel()
	if err := other.SetCell("cell-a", f.cells[0].config); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cell is refused", func(context.Context) (bool, error) {
		return other.Status()["cell-a"].Phase == Refused, nil
	})
	if reason := other.Status()["cell-a"].Reason; !strings.Contains(reason, "remove the annotation "+SourceUIDAnnotation) {
		t.Errorf("the reason does not say what to do: %s", reason)
	}
	if diff := cmp.Diff(before, f.cells[0].versions(t)); diff != "" {
		t.Errorf("the cell of another hub was written to:\n%s", diff)
	}
}

// testMany copies many objects while a namespace overtakes them.
func (f *fixture) testMany(t *testing.T) {
	const count = 2000
	f.stop()
	var group errgroup.Group
	group.SetLimit(32)
	for i := range count {
		group.Go(func() error {
			_, err := f.hub.resource("clusteroverridepolicies", "").Create(t.Context(), manifest(t, fmt.Sprintf(`{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterOverridePolicy, metadata: {name: many-%d}, spec: {overrideRules: []}}`, i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	f.start(t)
	testenv.Eventually(t, "the first of many has arrived", func(ctx context.Context) (bool, error) {
		list, err := f.cells[0].resource("clusteroverridepolicies", "").List(ctx, metav1.ListOptions{Limit: 2})
		return err == nil && len(list.Items) > 1, err
	})
	namespace := f.hub.create(t, "namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: overtaking}}`)
	f.awaitCopy(t, f.cells[0], "namespaces", namespace)
	overtook := time.Since(began)
	f.awaitQuiet(t)
	t.Logf("%d objects in 2 cells after %s, a namespace among them after %s", count, time.Since(began).Round(time.Millisecond), overtook.Round(time.Millisecond))
	for _, cell := range f.cells {
		list, err := cell.resource("clusteroverridepolicies", "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != count+1 { // and the one of every kind
			t.Errorf("%s has %d objects", cell.name, len(list.Items))
		}
	}
}
