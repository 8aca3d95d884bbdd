package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
)

// exampleFederation has a data centre and an elastic cloud.
func exampleFederation() *federation {
	f := &federation{accounts: map[string]*ledger.Account{}, profiles: map[string]*cellplanev1alpha1.SchedulingProfile{}}
	add := func(name, region string, nodes int32, classes ...cellplanev1alpha1.LedgerNodeClass) {
		cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cluster.Spec.Region = region
		f.clusters = append(f.clusters, cluster)
		size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("110")}
		l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: name}, Classes: append([]cellplanev1alpha1.LedgerNodeClass{{
			Name: "n", Allocatable: size, Nodes: []cellplanev1alpha1.LedgerNodes{{Count: nodes, Free: size}},
		}}, classes...)}
		for i := range l.Classes {
			l.Classes[i].Allocatable = size
			l.Classes[i].Nodes[0].Free = size
		}
		f.accounts[name] = ledger.Open(l, nil, time.Now())
	}
	add("member1", "home", 2)
	add("member2", "home", 1)
	add("cloud1", "west", 1, cellplanev1alpha1.LedgerNodeClass{Name: "g", Potential: true, Nodes: []cellplanev1alpha1.LedgerNodes{{Count: 9}}})
	add("old1", "east", 5)
	f.clusters[3].Spec.Taints = []corev1.Taint{{Key: "leaving", Effect: corev1.TaintEffectNoSchedule}}
	profile := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: "cloud1"}}
	profile.Spec.Price = &cellplanev1alpha1.ClusterPrice{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("50m")}}
	profile.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{Name: "g", MaxNodes: 10}}}
	f.snapshot = schedule.Compile(f.clusters, profile)
	f.profiles["own-first"] = &cellplanev1alpha1.SchedulingProfile{Spec: cellplanev1alpha1.SchedulingProfileSpec{
		Sites: &cellplanev1alpha1.SitePreferences{GroupBy: cellplanev1alpha1.SiteByRegion, Burst: &cellplanev1alpha1.Burst{}},
	}}
	return f
}

const exampleWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: nginx, resources: {requests: {cpu: "1"}}}
`

const examplePolicy = `
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web, annotations: {cellplane.io/scheduling-profile: own-first}}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}
`

func askExample(t *testing.T, text string, replicas int32) *question {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	workload, policy, _, err := readWorkload(file)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := ask(t.Context(), workload, policy, "default", replicas)
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

// TestScheduleReport checks the text output.
func TestScheduleReport(t *testing.T) {
	for _, test := range []struct {
		name     string
		replicas int32
		want     string
	}{
		{"a burst", 20, `
Deployment default/web: 20 replicas of 1 cpu each, divided by free capacity
Profile: own-first

Tier 1: sites, in the order they are filled
  ORDER  SITE  CLUSTERS  CAPACITY                     PRICE PER REPLICA  GETS
  1      home  2         12                           -                  12
  2      west  1         40, of which 36 by growing   0.05 EUR/h         8

Tier 2: eligible clusters
  CLUSTER  SCORE  RUNS  GETS  WHY
  member1  0      0     8     
  member2  0      0     4     
  cloud1   0      0     8     

Tier 3: free capacity, node by node
  CLUSTER  NODES                           FITS                        RESERVED
  member1  2                               8                           0
  member2  1                               4                           0
  cloud1   1, and 9 that could be added    40, of which 36 by growing  0

Not eligible
  old1  it had untolerated taint {leaving:NoSchedule}  TaintToleration

Decision: cloud1:8  member1:8  member2:4
  8 replicas burst into the elastic site "west"
Cost:     0.4 EUR per hour, 288 EUR in 30 days
`},
		{"no capacity", 500, `Decision: none. Clusters available replicas 52 are not enough to schedule. 500 more are needed`},
	} {
		t.Run(test.name, func(t *testing.T) {
			report, err := exampleFederation().decide(askExample(t, exampleWorkload+examplePolicy, test.replicas))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := report.print(&out, ""); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(squeeze(out.String()), squeeze(strings.TrimSpace(test.want))) {
				t.Errorf("(-want +got) %s\n%s", cmp.Diff(squeeze(strings.TrimSpace(test.want)), squeeze(out.String())), out.String())
			}
		})
	}
}

// squeeze ignores the widths of columns.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

func TestScheduleReportJSON(t *testing.T) {
	report, err := exampleFederation().decide(askExample(t, exampleWorkload, -1))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.print(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var read decisionReport
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	sum := int32(0)
	for _, target := range read.Clusters {
		sum += target.Replicas
	}
	if sum != 10 || len(read.Attempts) != 1 || len(read.Attempts[0].Clusters) != 4 || read.Nodes["cloud1"].Potential != 9 {
		t.Errorf("%s", out.String())
	}
}

func TestScheduleMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"nothing": "---\n", "two": exampleWorkload + "---" + exampleWorkload, "no yaml": "{"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := readWorkload(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
	asked := askExample(t, exampleWorkload, 1)
	asked.profile = "unknown"
	if _, err := exampleFederation().decide(asked); err == nil || !strings.Contains(err.Error(), "no SchedulingProfile unknown") {
		t.Errorf("a profile that does not exist: %v", err)
	}
}

// TestScheduleExample reads the example of the documentation.
func TestScheduleExample(t *testing.T) {
	workload, policy, profiles, err := readWorkload("../../docs/examples/burst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if workload.GetName() != "render" || policy == nil || profiles[profileName(policy.Annotations, "")] == nil {
		t.Errorf("got %v, %v and %v", workload, policy, profiles)
	}
}

func TestReadyReplicas(t *testing.T) {
	spec := &workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "a", Replicas: 5}, {Name: "b", Replicas: 3}, {Name: "c", Replicas: 2}}}
	status := &workv1alpha2.ResourceBindingStatus{}
	for name, text := range map[string]string{"a": `{"readyReplicas":4}`, "b": `{"readyReplicas":9}`, "c": `{"phase":"Good"}`} {
		item := workv1alpha2.AggregatedStatusItem{ClusterName: name}
		if err := json.Unmarshal([]byte(`{"clusterName":"`+name+`","status":`+text+`}`), &item); err != nil {
			t.Fatal(err)
		}
		status.AggregatedStatus = append(status.AggregatedStatus, item)
	}
	if got := readyReplicas(spec, status); got != 9 {
		t.Errorf("%d are ready, want 4+3+2", got)
	}
}
