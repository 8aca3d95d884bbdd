package thirdparty

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

func kindOf(t testing.TB, obj *unstructured.Unstructured) kinds.Kind {
	t.Helper()
	kind, ok := Table[obj.GroupVersionKind()]
	if !ok {
		t.Fatalf("%s is not in the table", obj.GroupVersionKind())
	}
	return kind
}

// TestOperations pins the kinds and the operations that each supports.
func TestOperations(t *testing.T) {
	letters := []struct {
		letter string
		op     configv1alpha1.InterpreterOperation
	}{
		{"R", configv1alpha1.InterpreterOperationInterpretReplica}, {"C", configv1alpha1.InterpreterOperationInterpretComponent},
		{"v", configv1alpha1.InterpreterOperationReviseReplica}, {"t", configv1alpha1.InterpreterOperationRetain},
		{"A", configv1alpha1.InterpreterOperationAggregateStatus}, {"S", configv1alpha1.InterpreterOperationInterpretStatus},
		{"H", configv1alpha1.InterpreterOperationInterpretHealth}, {"D", configv1alpha1.InterpreterOperationInterpretDependency},
	}
	want := map[string]string{
		"argoproj.io/v1alpha1 Workflow": "RvtHD", "flink.apache.org/v1beta1 FlinkDeployment": "RCASHD",
		"kustomize.toolkit.fluxcd.io/v1 Kustomization": "tASHD", "helm.toolkit.fluxcd.io/v2beta1 HelmRelease": "tASHD",
		"helm.toolkit.fluxcd.io/v2 HelmRelease": "tASHD", "source.toolkit.fluxcd.io/v1 GitRepository": "tASHD",
		"source.toolkit.fluxcd.io/v1beta2 OCIRepository": "tASHD", "source.toolkit.fluxcd.io/v1beta2 HelmRepository": "tASHD",
		"source.toolkit.fluxcd.io/v1beta2 Bucket": "tASHD", "source.toolkit.fluxcd.io/v1beta2 HelmChart": "tASHD",
		"kyverno.io/v1 Policy": "ASH", "kyverno.io/v1 ClusterPolicy": "ASH", "batch.volcano.sh/v1alpha1 Job": "CASHD",
		"apps.kruise.io/v1beta1 StatefulSet": "RvtASHD", "apps.kruise.io/v1alpha1 UnitedDeployment": "RvtASHD",
		"apps.kruise.io/v1alpha1 SidecarSet": "ASHD", "apps.kruise.io/v1alpha1 BroadcastJob": "RvtASHD",
		"apps.kruise.io/v1alpha1 AdvancedCronJob": "AD", "apps.kruise.io/v1alpha1 DaemonSet": "ASHD",
		"apps.kruise.io/v1alpha1 CloneSet": "RvtASHD", "ray.io/v1 RayCluster": "RCASHD", "ray.io/v1 RayJob": "CAHD",
		"ray.io/v1 RayService": "CAHD", "sparkoperator.k8s.io/v1beta2 SparkApplication": "CASHD",
		"kubeflow.org/v1 Notebook": "RASHD", "kubeflow.org/v1 PyTorchJob": "CASHD", "kubeflow.org/v1 TFJob": "CASHD",
		"kubeflow.org/v2beta1 MPIJob": "CASHD",
	}
	byKind := map[string]string{}
	for gvk, kind := range Table {
		got := ""
		for _, l := range letters {
			if kind.Supports(l.op) {
				got += l.letter
			}
		}
		byKind[gvk.GroupVersion().String()+" "+gvk.Kind] = got
	}
	for name, operations := range want {
		if byKind[name] != operations {
			t.Errorf("%s supports %q, want %q", name, byKind[name], operations)
		}
	}
}

func TestReplicasAndComponents(t *testing.T) {
	const pod = `{nodeSelector: {disk: ssd}, containers: [{resources: {requests: {cpu: "1", memory: 1Gi}}}]}`
	const small = `{containers: [{resources: {requests: {cpu: 250m}}}]}`
	const ray = `{headGroupSpec: {template: {spec: ` + pod + `}}, workerGroupSpecs: [{groupName: gpu, replicas: 3, template: {spec: ` + small + `}}, {template: {spec: {}}}]}`
	cases := map[string]struct{ document, want string }{
		"clone set":                {`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {replicas: 4, template: {spec: ` + pod + `}}}`, "4 cpu=1 memory=1Gi disk"},
		"clone set, unset":         {`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {template: {spec: ` + small + `}}}`, "1 cpu=250m"},
		"advanced stateful set":    {`{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, spec: {replicas: 4, template: {spec: ` + small + `}}}`, "4 cpu=250m"},
		"united deployment":        {`{apiVersion: apps.kruise.io/v1alpha1, kind: UnitedDeployment, spec: {replicas: 4, template: {cloneSetTemplate: {spec: {template: {spec: ` + pod + `}}}}}}`, "4 cpu=1 memory=1Gi disk"},
		"broadcast job":            {`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob, spec: {parallelism: 4, template: {spec: ` + small + `}}}`, "4 cpu=250m"},
		"broadcast job by share":   {`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob, spec: {parallelism: 50%, template: {spec: ` + small + `}}}`, "1 cpu=250m"},
		"workflow":                 {`{apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {parallelism: 4, nodeSelector: {disk: ssd}}}`, "4 disk"},
		"workflow without claims":  {`{apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {}}`, "1"},
		"notebook":                 {`{apiVersion: kubeflow.org/v1, kind: Notebook, spec: {template: {spec: ` + pod + `}}}`, "1 cpu=1 memory=1Gi disk"},
		"flink":                    {`{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, spec: {jobManager: {resource: {cpu: 0.5, memory: 2048m}}, taskManager: {replicas: 3, resource: {cpu: 2, memory: 1g}}, podTemplate: {spec: {nodeSelector: {disk: ssd}}}}}`, "4 cpu=2 memory=1Gi disk; jobmanager 1 cpu=500m memory=2048m disk; taskmanager 3 cpu=2 memory=1Gi disk"},
		"flink by parallelism":     {`{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, spec: {jobManager: {replicas: 2}, job: {parallelism: 7}, flinkConfiguration: {taskmanager.numberOfTaskSlots: "2"}}}`, "6; jobmanager 2; taskmanager 4"},
		"flink without slots":      {`{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, spec: {job: {parallelism: 7}, flinkConfiguration: {taskmanager.numberOfTaskSlots: "0"}}}`, "2; jobmanager 1; taskmanager 1"},
		"ray cluster":              {`{apiVersion: ray.io/v1, kind: RayCluster, spec: ` + ray + `}`, "4 cpu=1 memory=1Gi disk; ray-head 1 cpu=1 memory=1Gi disk; gpu 3 cpu=250m; worker-2 0"},
		"ray job":                  {`{apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: ` + ray + `}}`, "; ray-head 1 cpu=1 memory=1Gi disk; gpu 3 cpu=250m; worker-2 0"},
		"ray service":              {`{apiVersion: ray.io/v1, kind: RayService, spec: {rayClusterConfig: ` + ray + `}}`, "; ray-head 1 cpu=1 memory=1Gi disk; gpu 3 cpu=250m; worker-2 0"},
		"volcano":                  {`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: a, replicas: 5, minAvailable: 2, template: {spec: ` + small + `}}, {name: b, replicas: 5}, {name: c}]}}`, "; a 2 cpu=250m; b 5; c 1"},
		"pytorch":                  {`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Worker: {replicas: 3, template: {spec: ` + small + `}}, Master: {template: {spec: ` + pod + `}}}}}`, "; master 1 cpu=1 memory=1Gi disk; worker 3 cpu=250m"},
		"tensorflow":               {`{apiVersion: kubeflow.org/v1, kind: TFJob, spec: {tfReplicaSpecs: {Evaluator: {}, Worker: {replicas: 3}, PS: {replicas: 2}}}}`, "; ps 2; worker 3; evaluator 1"},
		"mpi":                      {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Worker: {}, Launcher: {}}}}`, "; launcher 1; worker 0"},
		"spark":                    {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {type: Scala, driver: {cores: 1, memory: 512m}, executor: {cores: 2, instances: 3, memory: 8g, gpu: {name: nvidia.com/gpu, quantity: 1}, nodeSelector: {disk: ssd}}}}`, "; driver 1 cpu=1 memory=896Mi; executor 3 cpu=2 memory=9012Mi nvidia.com/gpu=1 disk"},
		"spark in python":          {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {type: Python, driver: {coreRequest: 100m, cores: 1, memory: 10Gi}, executor: {memoryOverhead: 1g}, dynamicAllocation: {enabled: true, initialExecutors: 2, minExecutors: 5}}}`, "; driver 1 cpu=100m memory=14Gi; executor 5 memory=2Gi"},
		"spark with its own share": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {memoryOverheadFactor: "0.5", driver: {memory: 2g}}}`, "; driver 1 memory=3Gi; executor 1 memory=1536Mi"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := fixture.Object(t, tc.document)
			unchanged := fixture.Frozen(t, obj)
			kind := kindOf(t, obj)
			got := ""
			if kind.Replicas != nil {
				n, requirements, err := kind.Replicas(obj)
				if err != nil {
					t.Fatal(err)
				}
				got = describe(n, podOf(requirements))
			}
			if kind.Components != nil {
				list, err := kind.Components(obj)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range list {
					got += "; " + c.Name + " " + describe(c.Replicas, c.ReplicaRequirements)
				}
			}
			unchanged()
			if got != tc.want {
				t.Fatalf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func podOf(r *workv1alpha2.ReplicaRequirements) *workv1alpha2.ComponentReplicaRequirements {
	if r == nil {
		return nil
	}
	return &workv1alpha2.ComponentReplicaRequirements{NodeClaim: r.NodeClaim, ResourceRequest: r.ResourceRequest}
}

func describe(n int32, r *workv1alpha2.ComponentReplicaRequirements) string {
	out := []string{strconv.Itoa(int(n))}
	if r == nil {
		return out[0]
	}
	for _, name := range []string{"cpu", "memory", "nvidia.com/gpu"} {
		for key, quantity := range r.ResourceRequest {
			if string(key) == name {
				out = append(out, name+"="+quantity.String())
			}
		}
	}
	if r.NodeClaim != nil && r.NodeClaim.NodeSelector["disk"] == "ssd" {
		out = append(out, "disk")
	}
	return strings.Join(out, " ")
}

func TestReviseAndRetain(t *testing.T) {
	for _, tc := range []struct{ document, want string }{
		{`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {replicas: 1, minReadySeconds: 3}}`, `{replicas: 7, minReadySeconds: 3}`},
		{`{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, spec: {}}`, `{replicas: 7}`},
		{`{apiVersion: apps.kruise.io/v1alpha1, kind: UnitedDeployment, spec: {}}`, `{replicas: 7}`},
		{`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob, spec: {parallelism: 50%}}`, `{parallelism: 7}`},
		{`{apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {}}`, `{parallelism: 7}`},
	} {
		obj := fixture.Object(t, tc.document)
		unchanged := fixture.Frozen(t, obj)
		got, err := kindOf(t, obj).ReviseReplica(obj, 7)
		if err != nil {
			t.Fatal(err)
		}
		unchanged()
		fixture.Equal(t, got.Object["spec"], fixture.Value(t, tc.want))
	}
	retain := []struct{ desired, observed, want string }{
		{`{apiVersion: argoproj.io/v1alpha1, kind: Workflow}`, `{spec: {suspend: true}, status: {phase: Running}}`, `{apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {suspend: true}, status: {phase: Running}}`},
		{`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob}`, `{spec: {template: {metadata: {labels: {a: b}}}}}`, `{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob, spec: {template: {metadata: {labels: {a: b}}}}}`},
		{`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {labels: {resourcetemplate.karmada.io/retain-replicas: "true"}}}`, `{spec: {replicas: 4}}`, `{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {labels: {resourcetemplate.karmada.io/retain-replicas: "true"}}, spec: {replicas: 4}}`},
	}
	for _, flux := range []string{"kustomize.toolkit.fluxcd.io/v1 Kustomization", "helm.toolkit.fluxcd.io/v2 HelmRelease", "source.toolkit.fluxcd.io/v1 GitRepository",
		"source.toolkit.fluxcd.io/v1beta2 OCIRepository", "source.toolkit.fluxcd.io/v1 HelmRepository", "source.toolkit.fluxcd.io/v1 Bucket", "source.toolkit.fluxcd.io/v1 HelmChart"} {
		version, kind, _ := strings.Cut(flux, " ")
		of := "apiVersion: " + version + ", kind: " + kind
		retain = append(retain, struct{ desired, observed, want string }{"{" + of + "}", `{spec: {suspend: true, interval: 1m}}`, "{" + of + ", spec: {suspend: true}}"})
	}
	for _, tc := range retain {
		desired, observed := fixture.Object(t, tc.desired), fixture.Object(t, tc.observed)
		unchanged := fixture.Frozen(t, desired, observed)
		got, err := kindOf(t, desired).Retain(desired, observed)
		if err != nil {
			t.Fatal(err)
		}
		unchanged()
		fixture.Equal(t, any(got.Object), fixture.Value(t, tc.want))
		same, err := kindOf(t, desired).Retain(desired, fixture.Object(t, `{}`))
		if err != nil || same != desired {
			t.Errorf("retaining nothing returned a new object, %v", err)
		}
	}
}
