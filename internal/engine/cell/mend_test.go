package cell_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// allowAll removes the schema from a definition: stored objects may be older than the rules of today.
func allowAll(t *testing.T, client dynamic.Interface, definition string) {
	t.Helper()
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch := `[{"op": "replace", "path": "/spec/versions/0/schema", "value": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]`
	if _, err := definitions.Patch(t.Context(), definition, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// To the schema of a kind, durations and quantities are strings. An object with an invalid one is cached without it,
// and does not keep others from being cached.
func TestUnreadableValues(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{})
	config, err := federation.Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(group, version, resource, manifest string) {
		t.Helper()
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
			t.Fatal(err)
		}
		kind := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		var objects dynamic.ResourceInterface = kind
		if obj.GetNamespace() != "" {
			objects = kind.Namespace(obj.GetNamespace())
		}
		testenv.Eventually(t, obj.GetKind()+" "+obj.GetName()+" is stored", func(ctx context.Context) (bool, error) {
			_, err := objects.Create(ctx, obj, metav1.CreateOptions{})
			return err == nil, err // a schema takes effect a little after it is stored
		})
	}
	for _, definition := range []string{
		"clusterprofiles.cellplane.io", "schedulingprofiles.cellplane.io", "clusters.cluster.karmada.io", "federatedresourcequotas.policy.karmada.io",
	} {
		allowAll(t, client, definition)
	}
	quota := func(name, cpu string) {
		create("policy.karmada.io", "v1alpha1", "federatedresourcequotas", `
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedResourceQuota
metadata: {namespace: default, name: `+name+`}
spec: {overall: {cpu: "`+cpu+`", memory: 1Gi}}`)
	}
	create("cellplane.io", "v1alpha1", "clusterprofiles", `
apiVersion: cellplane.io/v1alpha1
kind: ClusterProfile
metadata: {name: elastic}
spec: {elasticity: {scaleUpLatency: soon, nodeGroups: [{name: small, maxNodes: 3, allocatable: {cpu: 2}}]}}`)
	create("cellplane.io", "v1alpha1", "schedulingprofiles", `
apiVersion: cellplane.io/v1alpha1
kind: SchedulingProfile
metadata: {name: drain}
spec: {sites: {groupBy: region, drain: {sites: [old], pace: {interval: hourly, stepPercent: 20}}}}`)
	create("cluster.karmada.io", "v1alpha1", "clusters", `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member1}
spec: {syncMode: Push, apiEndpoint: "https://member1.example", resourceModels: [{grade: 0, ranges: [{name: cpu, min: "0", max: "1e1.5"}]}]}`)
	quota("invalid", "1e1.5")
	quota("sound", "10")

	state, err := cell.New(config, cell.Options{Name: "hub", ClusterScoped: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := state.Start(ctx); err != nil {
		t.Fatalf("the cell does not start: %v", err)
	}
	if elastic := state.ClusterProfiles.Get(cell.Key{Name: "elastic"}); elastic == nil || elastic.Spec.Elasticity.ScaleUpLatency != nil || elastic.Spec.Elasticity.NodeGroups[0].MaxNodes != 3 {
		t.Errorf("the profile of a cluster is %v", elastic)
	}
	if drain := state.Profiles.Get(cell.Key{Name: "drain"}); drain == nil || drain.Spec.Sites.Drain.Pace.StepPercent != 20 {
		t.Errorf("the scheduling profile is %v", drain)
	}
	if member := state.Clusters.Get(cell.Key{Name: "member1"}); member == nil || member.Spec.APIEndpoint != "https://member1.example" || len(member.Spec.ResourceModels) != 1 {
		t.Errorf("the cluster is %v", member)
	}

	// The same holds for watch events.
	quota("late", "1e1.5")
	quota("last", "10")
	testenv.Eventually(t, "the last quota is cached", func(context.Context) (bool, error) {
		return state.Quotas.Get(cell.Key{Namespace: "default", Name: "last"}) != nil, nil
	})
	for _, name := range []string{"invalid", "sound", "late", "last"} {
		known := state.Quotas.Get(cell.Key{Namespace: "default", Name: name})
		if known == nil {
			t.Errorf("quota %s is not cached", name)
			continue
		}
		_, hasCPU := known.Spec.Overall[corev1.ResourceCPU]
		if memory := known.Spec.Overall[corev1.ResourceMemory]; memory.Value() != 1<<30 || hasCPU != (name == "sound" || name == "last") {
			t.Errorf("quota %s is %v", name, known.Spec.Overall)
		}
	}
}
