package admission

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestInstalled uses a hub of its own, because the rules affect all users of an API server.
func TestInstalled(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{})
	config, err := federation.Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if err := Install(t.Context(), config, Options{}); err != nil {
		t.Fatal(err)
	}
	hub := hub{client: dynamic.NewForConfigOrDie(config), config: config}
	t.Run("defaults", hub.testDefaults)
	t.Run("refusals", hub.testRefusals)
	t.Run("identity of a policy", hub.testIdentity)
	t.Run("finalizer of a policy", hub.testFinalizer)
	t.Run("cells in use", hub.testCellInUse)
	t.Run("customizations", hub.testCustomizations)
	t.Run("overrides of rights", hub.testOverrideRights)
	t.Run("upgrade", hub.testUpgrade)
}

type hub struct {
	client dynamic.Interface
	config *rest.Config
}

func (h hub) testDefaults(t *testing.T) {
	for _, test := range []struct{ name, kind, spec, want string }{
		{
			name: "namespace of selectors", kind: "PropagationPolicy",
			spec: `resourceSelectors: [{apiVersion: v1, kind: Secret, namespace: default}, {apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Service, namespace: ""}]`,
			want: `resourceSelectors: [{apiVersion: v1, kind: Secret, namespace: default}, {apiVersion: v1, kind: ConfigMap, namespace: default}, {apiVersion: v1, kind: Service, namespace: default}]`,
		},
		{
			name: "namespace of selectors of overrides", kind: "OverridePolicy",
			spec: `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: []}`,
			want: `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: default}], overrideRules: []}`,
		},
		{
			name: "an override for everything stays so", kind: "OverridePolicy",
			spec: `overrideRules: []`,
			want: `overrideRules: []`,
		},
		{
			name: "a cluster policy reaches all namespaces", kind: "ClusterPropagationPolicy",
			spec: `resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]`,
			want: `resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]`,
		},
		{
			name: "spread by cluster", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {spreadConstraints: [{spreadByField: region, minGroups: 0}, {maxGroups: 3}, {spreadByLabel: tier, minGroups: 2}]}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {spreadConstraints: [{spreadByField: region, minGroups: 1}, {spreadByField: cluster, maxGroups: 3, minGroups: 1}, {spreadByLabel: tier, minGroups: 2}]}`,
		},
		{
			name: "divided by weight", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {}}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted}}`,
		},
		{
			name: "duplicated has no preference", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}`,
		},
		{
			name: "aggregated stays", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {replicaDivisionPreference: Aggregated}}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}`,
		},
		{
			name: "grace period", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
propagateDeps: true
failover: {application: {decisionConditions: {}}}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
propagateDeps: true
failover: {application: {decisionConditions: {tolerationSeconds: 300}, purgeMode: Gracefully, gracePeriodSeconds: 600}}`,
		},
		{
			name: "no grace period without grace", kind: "ClusterPropagationPolicy",
			spec: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
propagateDeps: true
failover: {application: {decisionConditions: {tolerationSeconds: 1}, purgeMode: Directly}}`,
			want: `
resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
propagateDeps: true
failover: {application: {decisionConditions: {tolerationSeconds: 1}, purgeMode: Directly}}`,
		},
		{
			name: "imported services bring what they need", kind: "PropagationPolicy",
			spec: `resourceSelectors: [{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, name: web}]`,
			want: `
resourceSelectors: [{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, name: web, namespace: default}]
propagateDeps: true`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			created := h.create(t, object(t, test.kind, test.spec))
			want := parse(t, test.want)
			if strings.HasSuffix(test.kind, "PropagationPolicy") { // schema defaults
				for field, value := range map[string]any{"priority": int64(0), "preemption": "Never", "conflictResolution": "Abort", "schedulerName": "default-scheduler"} {
					want[field] = value
				}
			}
			got, _, _ := unstructured.NestedMap(created.Object, "spec")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("spec differs (-want +got):\n%s", diff)
			}
		})
	}
}

func (h hub) testRefusals(t *testing.T) {
	for _, test := range []struct{ name, kind, spec, want string }{
		{
			name: "another namespace", kind: "PropagationPolicy",
			spec: `resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: ConfigMap, namespace: elsewhere}]`,
			want: "namespace must be default, the namespace of the policy; to reach others, use a ClusterPropagationPolicy",
		},
		{
			name: "another namespace in an override", kind: "OverridePolicy",
			spec: `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: elsewhere}], overrideRules: []}`,
			want: "use a ClusterOverridePolicy",
		},
		{
			name: "shares beyond the whole", kind: "FederatedResourceQuota",
			spec: `
overall: {cpu: 3, memory: 10Gi}
staticAssignments: [{clusterName: a, hard: {cpu: "2", memory: 5Gi}}, {clusterName: b, hard: {cpu: 1500m, memory: 5Gi}}]`,
			want: "together they exceed spec.overall in cpu",
		},
		{
			name: "shares of the whole", kind: "FederatedResourceQuota",
			spec: `
overall: {cpu: 300m, memory: 10Gi, pods: 100}
staticAssignments: [{clusterName: a, hard: {cpu: 100m, memory: 5Gi}}, {clusterName: b, hard: {cpu: 200m, memory: 5Gi}}, {clusterName: c, hard: {pods: "100"}}]`,
		},
		{
			name: "no shares", kind: "FederatedResourceQuota",
			spec: `overall: {cpu: 1}`,
		},
		{
			name: "taints that evict", kind: "ClusterTaintPolicy",
			spec: `taints: [{key: a, effect: NoSchedule}, {key: b, effect: NoExecute}]`,
			want: "--allow-no-execute-taint-policy",
		},
		{
			name: "taints that do not", kind: "ClusterTaintPolicy",
			spec: `taints: [{key: a, effect: NoSchedule}]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := h.tryCreate(t, object(t, test.kind, test.spec))
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// testIdentity checks that users cannot change the permanent ID of a policy.
func (h hub) testIdentity(t *testing.T) {
	const spec = `resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]`
	for kind, label := range map[string]string{
		"PropagationPolicy":        names.PropagationPolicyPermanentIDLabel,
		"ClusterPropagationPolicy": names.ClusterPropagationPolicyPermanentIDLabel,
	} {
		for name, labels := range map[string]map[string]string{
			"no labels":    nil,
			"other labels": {"team": "a"},
			"another ID":   {label: "another"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				policy := object(t, kind, spec)
				policy.SetLabels(map[string]string{label: "the-id"})
				policy = h.create(t, policy)
				policy.SetLabels(labels)
				updated, err := h.resource(policy).Update(t.Context(), policy, metav1.UpdateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]string{label: "the-id"}
				for key, value := range labels {
					if key != label {
						want[key] = value
					}
				}
				if diff := cmp.Diff(want, updated.GetLabels()); diff != "" {
					t.Errorf("labels differ (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// testFinalizer checks that a policy keeps its finalizer until it is deleted.
func (h hub) testFinalizer(t *testing.T) {
	for kind, finalizer := range map[string]string{
		"PropagationPolicy":        names.PropagationPolicyFinalizer,
		"ClusterPropagationPolicy": names.ClusterPropagationPolicyFinalizer,
	} {
		t.Run(kind, func(t *testing.T) {
			policy := object(t, kind, `resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]`)
			policy.SetFinalizers([]string{"example.com/other"})
			policy = h.create(t, policy)
			if diff := cmp.Diff([]string{"example.com/other", finalizer}, policy.GetFinalizers()); diff != "" {
				t.Errorf("after create (-want +got):\n%s", diff)
			}
			policy.SetFinalizers(nil)
			policy, err := h.resource(policy).Update(t.Context(), policy, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{finalizer}, policy.GetFinalizers()); diff != "" {
				t.Errorf("after an update that dropped it (-want +got):\n%s", diff)
			}
			if err := h.resource(policy).Delete(t.Context(), policy.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err = h.resource(policy).Patch(t.Context(), policy.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "the policy is gone", func(ctx context.Context) (bool, error) {
				list, err := h.resource(policy).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + policy.GetName()})
				return err == nil && len(list.Items) == 0, err
			})
		})
	}
}

func (h hub) testCellInUse(t *testing.T) {
	cells := h.client.Resource(cellplanev1alpha1.GroupVersion.WithResource("cells"))
	topologies := h.client.Resource(cellplanev1alpha1.GroupVersion.WithResource("celltopologies"))
	for _, name := range []string{"used", "unused"} {
		_, err := cells.Create(t.Context(), manifest(t, `
apiVersion: cellplane.io/v1alpha1
kind: Cell
metadata: {name: `+name+`}
spec:
  endpoint: {server: "https://127.0.0.1:1", caBundle: Y2E=}
  credentials: {secretRef: {namespace: a, name: b}}
  etcd: {endpoints: ["https://127.0.0.1:2"], secretRef: {namespace: a, name: c}}
`), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := topologies.Create(t.Context(), manifest(t, `
apiVersion: cellplane.io/v1alpha1
kind: CellTopology
metadata: {name: default}
spec: {cells: [{name: used}]}
`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The API server watches parameters.
	testenv.Eventually(t, "the cell in use is protected", func(ctx context.Context) (bool, error) {
		err := cells.Delete(ctx, "used", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "the CellTopology names cell used"), err
	})
	if err := cells.Delete(t.Context(), "unused", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a cell that is not in use: %v", err)
	}
}

// testCustomizations creates several customizations of one kind: each operation may have one script, except for
// dependencies.
func (h hub) testCustomizations(t *testing.T) {
	customizations := h.client.Resource(configv1alpha1.GroupVersion.WithResource("resourceinterpretercustomizations"))
	dryRun := []string{metav1.DryRunAll}
	customization := func(name, kind string, rules ...string) *unstructured.Unstructured {
		object := manifest(t, `
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: `+name+`}
spec: {target: {apiVersion: example.io/v1, kind: `+kind+`}, customizations: {}}
`)
		for _, rule := range rules {
			if err := unstructured.SetNestedField(object.Object, "return", "spec", "customizations", rule, "luaScript"); err != nil {
				t.Fatal(err)
			}
		}
		return object
	}
	all := []string{"retention", "replicaResource", "componentResource", "replicaRevision", "statusReflection", "statusAggregation", "healthInterpretation"}
	first, err := customizations.Create(t.Context(), customization("first", "Thing", append(all, "dependencyInterpretation")...), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range all {
		want := "customization first has a script for " + rule + " of Thing already"
		testenv.Eventually(t, "a second script for "+rule+" is refused", func(ctx context.Context) (bool, error) {
			_, err := customizations.Create(ctx, customization("second", "Thing", rule), metav1.CreateOptions{DryRun: dryRun})
			return err != nil && strings.Contains(err.Error(), want), err
		})
	}
	for _, fine := range []*unstructured.Unstructured{customization("second", "Thing", "dependencyInterpretation"), customization("third", "Other", all...)} {
		if _, err := customizations.Create(t.Context(), fine, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", fine.GetName(), err)
		}
	}
	first.SetLabels(map[string]string{"changed": "true"})
	if err := unstructured.SetNestedField(first.Object, "return nil", "spec", "customizations", "retention", "luaScript"); err != nil {
		t.Fatal(err)
	}
	if _, err := customizations.Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a customization is in its own way: %v", err)
	}
	second, err := customizations.Get(t.Context(), "second", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second.Object["spec"] = customization("second", "Thing", "retention").Object["spec"]
	if _, err := customizations.Update(t.Context(), second, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "customization first has a script for retention") {
		t.Errorf("a script that another one has is added: %v", err)
	}
}

// testOverrideRights checks that who may write ClusterOverridePolicies cannot permit one to change rights, nor change one that is permitted.
func (h hub) testOverrideRights(t *testing.T) {
	roles := h.client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"})
	bindings := h.client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"})
	_, err := roles.Create(t.Context(), manifest(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writes-overrides}
rules:
- {apiGroups: [policy.karmada.io], resources: ["*"], verbs: ["*"]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [get, create, update, bind]}
`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bindings.Create(t.Context(), manifest(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: writes-overrides}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writes-overrides}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(h.config)
	config.Impersonate.UserName = "tenant"
	tenant := dynamic.NewForConfigOrDie(config).Resource(policyv1alpha1.GroupVersion.WithResource("clusteroverridepolicies"))
	policy := func(name, image string, annotations map[string]string) *unstructured.Unstructured {
		object := manifest(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: `+name+`}
spec: {overrideRules: [{overriders: {imageOverrider: [{component: Tag, operator: replace, value: "`+image+`"}]}}]}
`)
		object.SetAnnotations(annotations)
		return object
	}
	permission := map[string]string{names.MayChangeRightsAnnotation: "true"}
	testenv.Eventually(t, "the tenant may write policies", func(ctx context.Context) (bool, error) {
		_, err := tenant.Create(ctx, policy("plain", "1", nil), metav1.CreateOptions{})
		return err == nil, err
	})
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "escalate and bind") {
			t.Errorf("%s: got error %v, want Forbidden", what, err)
		}
	}
	_, err = tenant.Create(t.Context(), policy("mine", "1", permission), metav1.CreateOptions{})
	refused("create with the annotation", err)
	_, err = tenant.Patch(t.Context(), "plain", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+names.MayChangeRightsAnnotation+`":"true"}}}`), metav1.PatchOptions{})
	refused("add the annotation", err)

	admin := h.client.Resource(policyv1alpha1.GroupVersion.WithResource("clusteroverridepolicies"))
	if _, err := admin.Create(t.Context(), policy("permitted", "1", permission), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	changed, err := json.Marshal(policy("permitted", "2", nil).Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	_, err = tenant.Patch(t.Context(), "permitted", types.MergePatchType, []byte(`{"spec":`+string(changed)+`}`), metav1.PatchOptions{})
	refused("change a permitted policy", err)
	if _, err := tenant.Patch(t.Context(), "permitted", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("label a permitted policy: %v", err)
	}
	if _, err := tenant.Patch(t.Context(), "permitted", types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":`+string(changed)+`}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("change a policy and take its permission away: %v", err)
	}
}

// testUpgrade checks that obsolete rules are removed and foreign ones are kept.
func (h hub) testUpgrade(t *testing.T) {
	foreign := manifest(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: foreign}
spec: {policyName: foreign, validationActions: [Deny]}
`)
	former := foreign.DeepCopy()
	former.SetName("former")
	former.SetLabels(map[string]string{PartLabel: "true"})
	bindings := h.client.Resource(resources[validatingBinding])
	for _, binding := range []*unstructured.Unstructured{foreign, former} {
		if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Install(t.Context(), h.config, Options{AllowNoExecuteTaintPolicy: true}); err != nil {
		t.Fatal(err)
	}
	h.create(t, object(t, "ClusterTaintPolicy", `taints: [{key: b, effect: NoExecute}]`))
	if _, err := bindings.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil {
		t.Errorf("a rule of somebody else: %v", err)
	}
	if _, err := bindings.Get(t.Context(), "former", metav1.GetOptions{}); err == nil {
		t.Error("a rule of a former version is still there")
	}
}

func (h hub) create(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := h.tryCreate(t, object)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (h hub) tryCreate(t *testing.T, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return h.resource(object).Create(t.Context(), object, metav1.CreateOptions{})
}

func (h hub) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	resources := map[string]string{
		"PropagationPolicy": "propagationpolicies", "ClusterPropagationPolicy": "clusterpropagationpolicies", "OverridePolicy": "overridepolicies",
		"FederatedResourceQuota": "federatedresourcequotas", "ClusterTaintPolicy": "clustertaintpolicies",
	}
	return h.client.Resource(schema.GroupVersionResource{Group: policyv1alpha1.GroupName, Version: "v1alpha1", Resource: resources[object.GetKind()]}).Namespace(object.GetNamespace())
}

func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": parse(t, spec)}}
	object.SetAPIVersion(policyv1alpha1.GroupVersion.String())
	object.SetKind(kind)
	object.SetGenerateName("test-")
	if !strings.HasPrefix(kind, "Cluster") {
		object.SetNamespace("default")
	}
	return object
}

func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: parse(t, text)}
}

// parse parses YAML into the types of unstructured objects.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var parsed map[string]any
	if err := utiljson.Unmarshal(data, &parsed); err != nil { // with integers, not floats
		t.Fatal(err)
	}
	return parsed
}
