package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// TestPlan runs the scenarios in testdata/plan. "clusters" sets the clusters, one per line, "profile" sets
// preferences, and "plan" plans for a placement.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		var clusters []*clusterv1alpha1.Cluster
		var profile *cellplanev1alpha1.SchedulingProfileSpec
		var profiles []*cellplanev1alpha1.ClusterProfile
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "clusters":
				clusters, profiles = nil, nil
				for line := range strings.Lines(d.Input) {
					cluster, facts := parseMember(t, line)
					clusters = append(clusters, cluster)
					if facts != nil {
						profiles = append(profiles, facts)
					}
				}
				return ""
			case "profile":
				profile = &cellplanev1alpha1.SchedulingProfileSpec{}
				if err := yaml.UnmarshalStrict([]byte(d.Input), profile); err != nil {
					t.Fatalf("%s: profile: %v", d.Pos, err)
				}
				return ""
			case "plan":
				return runPlan(t, d, Compile(clusters, profiles...), profile)
			default:
				t.Fatalf("unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

func runPlan(t *testing.T, d *datadriven.TestData, snapshot *Snapshot, profile *cellplanev1alpha1.SchedulingProfileSpec) string {
	t.Helper()
	request := Request{Spec: &workv1alpha2.ResourceBindingSpec{
		Resource:  workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment"},
		Placement: &policyv1alpha1.Placement{},
	}, UID: "web", Snapshot: snapshot, Profile: profile, Progress: Progress{Now: time.Unix(1_000_000, 0)}}
	if err := yaml.UnmarshalStrict([]byte(d.Input), request.Spec.Placement); err != nil {
		t.Fatalf("%s: placement: %v", d.Pos, err)
	}
	for _, argument := range d.CmdArgs {
		parseArgument(t, &request, argument)
	}
	result, err := Plan(request, nil)
	if err != nil {
		var failure *Failure
		if !errors.As(err, &failure) {
			t.Fatalf("%s: %T is not a Failure", d.Pos, err)
		}
		consequence := "kept"
		if failure.ClearsResult() {
			consequence = "cleared"
		}
		return fmt.Sprintf("%s%s (%s): %s\n", explained(failure.Attempts), failure.Reason, consequence, failure.Message)
	}
	for _, attempt := range result.Attempts {
		for _, verdict := range attempt.Clusters {
			if (verdict.Reason == "" || verdict.Filter == "Selection") && total(verdict.Scores) != verdict.Score {
				t.Errorf("%s: %s: scores %v do not add up to %d", d.Pos, verdict.Cluster, verdict.Scores, verdict.Score)
			}
		}
	}
	return explained(result.Attempts) + describe(result)
}

func total(scores map[string]int64) int64 {
	sum := int64(0)
	for _, score := range scores {
		sum += score
	}
	return sum
}

func parseArgument(t *testing.T, request *Request, argument datadriven.CmdArg) {
	t.Helper()
	spec := request.Spec
	switch argument.Key {
	case "replicas":
		spec.Replicas = int32(number(t, argument.Vals[0]))
	case "have":
		for _, value := range argument.Vals {
			name, replicas, _ := strings.Cut(value, ":")
			spec.Clusters = append(spec.Clusters, workv1alpha2.TargetCluster{Name: name, Replicas: int32(number(t, replicas))})
		}
	case "evicting":
		for _, name := range argument.Vals {
			spec.GracefulEvictionTasks = append(spec.GracefulEvictionTasks, workv1alpha2.GracefulEvictionTask{FromCluster: name})
		}
	case "cpu", "memory":
		if spec.ReplicaRequirements == nil {
			spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{}}
		}
		spec.ReplicaRequirements.ResourceRequest[corev1.ResourceName(argument.Key)] = resource.MustParse(argument.Vals[0])
	case "component": // name:replicas:cpu
		for _, value := range argument.Vals {
			parts := strings.Split(value, ":")
			spec.Components = append(spec.Components, workv1alpha2.Component{
				Name: parts[0], Replicas: int32(number(t, parts[1])),
				ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(parts[2])}},
			})
		}
	case "affinity":
		request.Affinity = argument.Vals[0]
	case "fresh":
		request.Fresh = true
	case "plugins":
		var err error
		if request.Plugins, err = ParsePlugins(argument.Vals); err != nil {
			t.Fatal(err)
		}
	case "empty":
		request.EmptyWorkloads = true
	case "explain":
		request.Explain = true
	case "together":
		spec.WorkloadAffinityGroups = &workv1alpha2.WorkloadAffinityGroups{AffinityGroup: "app=web"}
		request.AffinityClusters = argument.Vals
	case "apart":
		spec.WorkloadAffinityGroups = &workv1alpha2.WorkloadAffinityGroups{AntiAffinityGroup: "app=web"}
		request.AntiAffinityClusters = argument.Vals
	case "ready":
		request.Progress.Ready = int32(number(t, argument.Vals[0]))
	case "moved": // seconds ago
		request.Progress.MovedAt = request.Progress.Now.Add(-time.Duration(number(t, argument.Vals[0])) * time.Second)
	case "growth": // name:replicas
		grown := map[string]int32{}
		for _, value := range argument.Vals {
			name, replicas, _ := strings.Cut(value, ":")
			grown[name] = int32(number(t, replicas))
		}
		request.Growth = func(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
			return grown[cluster.Name]
		}
	case "estimates": // name:replicas; the estimator does not know other clusters
		known := map[string]int32{}
		for _, value := range argument.Vals {
			name, replicas, _ := strings.Cut(value, ":")
			known[name] = int32(number(t, replicas))
		}
		request.Estimators = append(request.Estimators, func(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
			if replicas, ok := known[cluster.Name]; ok {
				return replicas
			}
			return Unknown
		})
	default:
		t.Fatalf("unknown argument %q", argument.Key)
	}
}

func parseCluster(t *testing.T, line string) *clusterv1alpha1.Cluster {
	t.Helper()
	cluster, _ := parseMember(t, line)
	return cluster
}

// parseMember parses a cluster and its optional profile.
func parseMember(t *testing.T, line string) (*clusterv1alpha1.Cluster, *cellplanev1alpha1.ClusterProfile) {
	t.Helper()
	words := strings.Fields(line)
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}}}
	facts := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if parseFact(t, facts, key, value) {
			continue
		}
		switch key {
		case "nodes":
			cluster.Status.NodeSummary = &clusterv1alpha1.NodeSummary{TotalNum: int32(number(t, value))}
		case "region":
			cluster.Spec.Region = value
		case "provider":
			cluster.Spec.Provider = value
		case "zones":
			cluster.Spec.Zones = strings.Split(value, ",")
		case "zone":
			cluster.Spec.Zone = value
		case "label":
			name, content, _ := strings.Cut(value, ":")
			cluster.Labels[name] = content
		case "taint":
			name, effect, _ := strings.Cut(value, ":")
			name, content, _ := strings.Cut(name, "=")
			cluster.Spec.Taints = append(cluster.Spec.Taints, corev1.Taint{Key: name, Value: content, Effect: corev1.TaintEffect(effect)})
		case "deleting":
			cluster.DeletionTimestamp = &metav1.Time{}
		case "serves": // served kinds, and whether the list is complete
			cluster.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{GroupVersion: "apps/v1", Resources: []clusterv1alpha1.APIResource{{Kind: value}}}}
		case "complete":
			cluster.Status.Conditions = []metav1.Condition{{Type: names.ClusterCompleteAPIEnablements, Status: metav1.ConditionTrue}}
		case "pods", "cpu", "memory": // allocatable, or allocatable-allocated-allocating
			addResource(cluster, corev1.ResourceName(key), strings.Split(value, "-"))
		case "grade": // minimum cpu:nodes; each one is a grade higher than the last
			addGrade(t, cluster, value)
		default:
			t.Fatalf("unknown property %q", word)
		}
	}
	if facts.Spec == (cellplanev1alpha1.ClusterProfileSpec{}) {
		facts = nil
	}
	return cluster, facts
}

// parseFact parses a property of a cluster profile.
func parseFact(t *testing.T, facts *cellplanev1alpha1.ClusterProfile, key, value string) bool {
	t.Helper()
	spec := &facts.Spec
	if spec.Price == nil && (key == "price" || key == "spot") {
		spec.Price = &cellplanev1alpha1.ClusterPrice{}
	}
	if spec.Size == nil && (key == "max" || key == "target") {
		spec.Size = &cellplanev1alpha1.ClusterSize{}
	}
	switch key {
	case "price": // per CPU
		spec.Price.PerHour = map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse(value)}
	case "spot":
		spec.Price.Shares = []cellplanev1alpha1.PurchaseShare{{Option: cellplanev1alpha1.PurchaseSpot, Percent: int32(number(t, value))}}
	case "elastic": // maximum number of nodes
		spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{Name: "general", MaxNodes: int32(number(t, value))}}}
	case "max":
		spec.Size.MaxNodes = ptr.To(int32(number(t, value)))
	case "target":
		spec.Size.TargetNodes = ptr.To(int32(number(t, value)))
	default:
		return false
	}
	return true
}

func addResource(cluster *clusterv1alpha1.Cluster, name corev1.ResourceName, amounts []string) {
	summary := cluster.Status.ResourceSummary
	if summary == nil {
		summary = &clusterv1alpha1.ResourceSummary{Allocatable: corev1.ResourceList{}, Allocated: corev1.ResourceList{}, Allocating: corev1.ResourceList{}}
		cluster.Status.ResourceSummary = summary
	}
	for i, list := range []corev1.ResourceList{summary.Allocatable, summary.Allocated, summary.Allocating} {
		if i < len(amounts) {
			list[name] = resource.MustParse(amounts[i])
		}
	}
}

func addGrade(t *testing.T, cluster *clusterv1alpha1.Cluster, value string) {
	t.Helper()
	least, nodes, _ := strings.Cut(value, ":")
	grade := len(cluster.Spec.ResourceModels)
	cluster.Spec.ResourceModels = append(cluster.Spec.ResourceModels, clusterv1alpha1.ResourceModel{
		Grade: grade, Ranges: []clusterv1alpha1.ResourceModelRange{{Name: corev1.ResourceCPU, Min: resource.MustParse(least)}},
	})
	summary := cluster.Status.ResourceSummary
	summary.AllocatableModelings = append(summary.AllocatableModelings, clusterv1alpha1.AllocatableModeling{Grade: grade, Count: number(t, nodes)})
}

func number(t *testing.T, text string) int {
	t.Helper()
	value, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func describe(result Result) string {
	var parts []string
	if result.Affinity != "" {
		parts = append(parts, "("+result.Affinity+")")
	}
	for _, target := range result.Clusters {
		part := fmt.Sprintf("%s:%d", target.Name, target.Replicas)
		for _, component := range target.Components {
			part += fmt.Sprintf(" %s:%d", component.Name, component.Replicas)
		}
		parts = append(parts, part)
	}
	text := strings.Join(parts, " ") + "\n"
	for _, note := range result.Notes {
		text += "note: " + note + "\n"
	}
	if result.Moved > 0 || result.Again > 0 {
		text += fmt.Sprintf("moved %d, again after %s\n", result.Moved, result.Again)
	}
	if result.Stranded > 0 {
		text += fmt.Sprintf("%d would move if other clusters had capacity\n", result.Stranded)
	}
	return text
}

func explained(attempts []Attempt) string {
	var text strings.Builder
	for _, attempt := range attempts {
		line := "group"
		if attempt.Affinity != "" {
			line += " " + attempt.Affinity
		}
		if attempt.Failure != "" {
			line += ": " + attempt.Failure
		}
		fmt.Fprintln(&text, line)
		for _, verdict := range attempt.Clusters {
			line := fmt.Sprintf("  %s: tier=%d score=%d available=%d selected=%t replicas=%d", verdict.Cluster, verdict.Tier,
				verdict.Score, verdict.Available, verdict.Selected, verdict.Replicas)
			if verdict.Site != "" {
				line += fmt.Sprintf(" site=%s step=%d growth=%d price=%.2f", verdict.Site, verdict.Step, verdict.Growth, verdict.Price)
			}
			if verdict.Reason != "" {
				line += " " + verdict.Filter + ": " + verdict.Reason
			}
			fmt.Fprintln(&text, line)
		}
	}
	return text.String()
}
