package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func testDefaults(t *testing.T, s *server) {
	for _, test := range []struct{ kind, apiVersion, sent, got string }{
		{
			kind: "PropagationPolicy", apiVersion: "policy.karmada.io/v1alpha1",
			sent: `{resourceSelectors: [{apiVersion: v1, kind: Secret}], placement: {spreadConstraints: [{}], replicaScheduling: {}}, propagateDeps: true, failover: {application: {decisionConditions: {}}, cluster: {}}}`,
			got: `{resourceSelectors: [{apiVersion: v1, kind: Secret}], placement: {spreadConstraints: [{minGroups: 1}], replicaScheduling: {replicaSchedulingType: Divided}}, propagateDeps: true,
			  failover: {application: {decisionConditions: {tolerationSeconds: 300}, purgeMode: Gracefully}, cluster: {purgeMode: Gracefully}},
			  priority: 0, preemption: Never, schedulerName: default-scheduler, conflictResolution: Abort}`,
		},
		{
			kind: "ResourceBinding", apiVersion: "work.karmada.io/v1alpha2",
			sent: `{resource: {apiVersion: v1, kind: Secret, name: a}, schedulePriority: {}}`,
			got:  `{resource: {apiVersion: v1, kind: Secret, name: a}, schedulePriority: {priority: 0}, conflictResolution: Abort}`,
		},
		{
			kind: "CronFederatedHPA", apiVersion: "autoscaling.karmada.io/v1alpha1",
			sent: `{scaleTargetRef: {kind: Deployment, name: a}, rules: [{name: r, schedule: "0 * * * *", targetReplicas: 1}]}`,
			got:  `{scaleTargetRef: {kind: Deployment, name: a}, rules: [{name: r, schedule: "0 * * * *", targetReplicas: 1, suspend: false, successfulHistoryLimit: 3, failedHistoryLimit: 3}]}`,
		},
		{
			kind: "FederatedHPA", apiVersion: "autoscaling.karmada.io/v1alpha1",
			sent: `{scaleTargetRef: {kind: Deployment, name: a}, maxReplicas: 3}`,
			got:  `{scaleTargetRef: {kind: Deployment, name: a}, minReplicas: 1, maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}`,
		},
		{
			kind: "CellTopology", apiVersion: "cellplane.io/v1alpha1",
			sent: `{cells: [{name: a}]}`,
			got:  `{cells: [{name: a, weight: 1, state: Normal}], migration: {window: 64, gracePeriod: 12h}}`,
		},
		{
			kind: "ProtectionPolicy", apiVersion: "cellplane.io/v1alpha1",
			sent: `{resourceSelectors: [{apiGroups: [""], kinds: [Namespace]}], deletion: {}}`,
			got:  `{resourceSelectors: [{apiGroups: [""], kinds: [Namespace]}], deletion: {enabled: true}, action: Deny}`,
		},
		{
			kind: "ClusterProfile", apiVersion: "cellplane.io/v1alpha1",
			sent: `{price: {shares: [{option: Spot, percent: 20}]}}`,
			got:  `{price: {shares: [{option: Spot, percent: 20, pricePercent: 100}]}}`,
		},
		{
			kind: "SchedulingProfile", apiVersion: "cellplane.io/v1alpha1",
			sent: `{sites: {drain: {sites: [a], pace: {}}}}`,
			got:  `{sites: {groupBy: Region, order: AsPlaced, drain: {sites: [a], pace: {stepPercent: 10, interval: 30s, maxUnavailablePercent: 10}}}}`,
		},
	} {
		t.Run(test.kind, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": tree(t, test.sent)}}
			object.SetAPIVersion(test.apiVersion)
			object.SetKind(test.kind)
			object.SetName("default")
			client, _, object := s.place(t, object)
			got, err := client.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(t, test.got), got.Object["spec"]); diff != "" {
				t.Errorf("defaults (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("Cluster", func(t *testing.T) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"syncMode": "Pull"}}}
		object.SetAPIVersion("cluster.karmada.io/v1alpha1")
		object.SetKind("Cluster")
		object.SetName("bare")
		client, _, object := s.place(t, object)
		got, err := client.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		models, _, _ := unstructured.NestedSlice(got.Object, "spec", "resourceModels")
		if len(models) != 9 {
			t.Errorf("a cluster without resourceModels gets %d of them, want 9", len(models))
		}
	})
}

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	value := map[string]any{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", "")), &value); err != nil {
		t.Fatal(err)
	}
	return jsonNumbers(value).(map[string]any)
}
