package thirdparty

import (
	"strings"
	"testing"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

func TestAggregateStatus(t *testing.T) {
	const observed = `generation: 2, observedGeneration: 2, resourceTemplateGeneration: 3`
	cases := map[string]struct {
		template string
		members  []string
		want     string
	}{
		"clone set": {`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {generation: 3}}`,
			[]string{`{` + observed + `, replicas: 1, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 4, updatedReadyReplicas: 5, expectedUpdatedReplicas: 6, updateRevision: u, currentRevision: c, labelSelector: a=b}`, `{` + observed + `, replicas: 1}`},
			`{observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 4, updatedReadyReplicas: 5, updatedAvailableReplicas: 0, expectedUpdatedReplicas: 6, updateRevision: u, currentRevision: c, labelSelector: a=b}`},
		"clone set behind": {`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {generation: 4}, status: {observedGeneration: 3, replicas: 1}}`, []string{`{` + observed + `, replicas: 1}`}, "same"},
		"advanced stateful set": {`{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, metadata: {generation: 3}}`,
			[]string{`{` + observed + `, replicas: 1, readyReplicas: 2, currentReplicas: 3, updatedReplicas: 4, availableReplicas: 5, updatedReadyReplicas: 6, updateRevision: u}`, `{` + observed + `, currentRevision: c}`},
			`{observedGeneration: 3, replicas: 1, readyReplicas: 2, currentReplicas: 3, updatedReplicas: 4, availableReplicas: 5, updatedReadyReplicas: 6, updatedAvailableReplicas: 0, updateRevision: u, currentRevision: c}`},
		"advanced daemon set": {`{apiVersion: apps.kruise.io/v1alpha1, kind: DaemonSet, metadata: {generation: 3}}`,
			[]string{`{` + observed + `, currentNumberScheduled: 1, numberMisscheduled: 2, desiredNumberScheduled: 3, numberReady: 4, updatedNumberScheduled: 5, numberAvailable: 6, numberUnavailable: 7, daemonSetHash: h}`},
			`{observedGeneration: 3, currentNumberScheduled: 1, numberMisscheduled: 2, desiredNumberScheduled: 3, numberReady: 4, updatedNumberScheduled: 5, numberAvailable: 6, numberUnavailable: 7, daemonSetHash: h}`},
		"united deployment": {`{apiVersion: apps.kruise.io/v1alpha1, kind: UnitedDeployment, metadata: {generation: 3}}`,
			[]string{`{` + observed + `, replicas: 1, updatedReplicas: 1, conditions: [{type: A, status: "False", lastTransitionTime: "2025-01-01T00:00:00Z"}]}`, `{` + observed + `, replicas: 2, readyReplicas: 1, conditions: [{type: A, status: "True", lastTransitionTime: "2025-01-02T00:00:00Z"}, {type: B}]}`},
			`{observedGeneration: 3, replicas: 3, readyReplicas: 1, updatedReplicas: 1, conditions: [{type: A, status: "True", lastTransitionTime: "2025-01-02T00:00:00Z"}, {type: B}]}`},
		"sidecar set": {`{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {generation: 3}}`,
			[]string{`{` + observed + `, matchedPods: 3, updatedPods: 2, readyPods: 1}`, `{` + observed + `, matchedPods: 3}`}, `{observedGeneration: 3, matchedPods: 6, updatedPods: 2, readyPods: 1, updatedReadyPods: 0}`},
		"broadcast job": {`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob}`,
			[]string{`{active: 1, succeeded: 2, failed: 0, desired: 3, phase: running, startTime: "2025-01-02T00:00:00Z"}`, `{succeeded: 1, failed: 1, desired: 2, phase: failed, startTime: "2025-01-01T00:00:00Z", conditions: [{type: Failed, status: "True", lastTransitionTime: "2025-01-01T00:05:00Z"}]}`},
			`{active: 1, succeeded: 3, failed: 1, desired: 5, phase: failed, startTime: "2025-01-01T00:00:00Z", conditions: [{type: Failed, status: "True", reason: JobFailed, message: The Job failed in member clusters m2, lastProbeTime: "2025-01-01T00:05:00Z", lastTransitionTime: "2025-01-01T00:05:00Z"}]}`},
		"broadcast job complete": {`{apiVersion: apps.kruise.io/v1alpha1, kind: BroadcastJob}`,
			[]string{`{succeeded: 2, phase: completed, completionTime: "2025-01-02T00:00:00Z", conditions: [{type: Complete, status: "True"}]}`},
			`{succeeded: 2, phase: completed, completionTime: "2025-01-02T00:00:00Z", conditions: [{type: Complete, status: "True", reason: Completed, message: The Job completed in all member clusters}]}`},
		"advanced cron job": {`{apiVersion: apps.kruise.io/v1alpha1, kind: AdvancedCronJob}`,
			[]string{`{active: [{name: a}], type: Job, lastScheduleTime: "2025-01-02T00:00:00Z"}`, `{active: [{name: b}], lastScheduleTime: "2025-01-01T00:00:00Z"}`},
			`{active: [{name: a}, {name: b}], type: Job, lastScheduleTime: "2025-01-02T00:00:00Z"}`},
		"kustomization": {`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {generation: 3}, status: {observedGeneration: 1, lastAppliedRevision: old}}`,
			[]string{`{` + observed + `, lastAppliedRevision: r1, conditions: [{type: Ready, status: "True", reason: ok, message: fine}]}`, `{` + observed + `, lastAttemptedRevision: r2, conditions: [{type: Ready, status: "True", reason: ok, message: good}, {type: Stalled, status: "True", reason: x, message: "no"}]}`},
			`{observedGeneration: 3, lastAppliedRevision: r1, lastAttemptedRevision: r2, conditions: [{type: Ready, status: "True", reason: ok, message: "m1=fine, m2=good"}, {type: Stalled, status: "True", reason: x, message: m2=no}]}`},
		"helm release": {`{apiVersion: helm.toolkit.fluxcd.io/v2beta1, kind: HelmRelease, metadata: {generation: 4}, status: {observedGeneration: 2}}`,
			[]string{`{` + observed + `, helmChart: c, failures: 1, installFailures: 2, lastReleaseRevision: 5}`, `{` + observed + `, failures: 2, upgradeFailures: 1}`},
			`{observedGeneration: 2, helmChart: c, failures: 3, installFailures: 2, upgradeFailures: 1, lastReleaseRevision: 5}`},
		"git repository":  {`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {generation: 3}}`, []string{`{` + observed + `, artifact: {revision: r}, lastHandledReconcileAt: x}`}, `{observedGeneration: 3, artifact: {revision: r}, lastHandledReconcileAt: x}`},
		"oci repository":  {`{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: OCIRepository, metadata: {generation: 3}}`, []string{`{` + observed + `, artifact: {revision: r}, url: u}`}, `{observedGeneration: 3, artifact: {revision: r}, url: u}`},
		"helm repository": {`{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: HelmRepository, metadata: {generation: 3}}`, []string{`{` + observed + `, artifact: {revision: r}, url: u}`}, `{observedGeneration: 3, artifact: {revision: r}, url: u}`},
		"bucket":          {`{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: Bucket, metadata: {generation: 3}}`, []string{`{` + observed + `, artifact: {revision: r}, observedIgnore: i}`}, `{observedGeneration: 3, artifact: {revision: r}, observedIgnore: i}`},
		"helm chart":      {`{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: HelmChart, metadata: {generation: 3}}`, []string{`{` + observed + `, observedChartName: c, observedSourceArtifactRevision: r}`}, `{observedGeneration: 3, observedChartName: c, observedSourceArtifactRevision: r}`},
		"kyverno": {`{apiVersion: kyverno.io/v1, kind: ClusterPolicy}`,
			[]string{`{ready: false, rulecount: {validate: 1, mutate: 2}, autogen: {rules: [x]}, conditions: [{type: Ready, status: "False", reason: r, message: m}]}`, `{ready: true, rulecount: {validate: 3}}`},
			`{ready: false, rulecount: {validate: 4, mutate: 2}, autogen: {rules: [x]}, conditions: [{type: Ready, status: "False", reason: r, message: m1=m}]}`},
		"volcano": {`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job}`,
			[]string{`{state: {phase: Running}, version: 2, minAvailable: 1, running: 1, runningDuration: 1m30s, taskStatusCount: {a: {phase: {Running: 1}}}, controlledResources: {p: x}, conditions: [{status: Running}]}`, `{version: 1, running: 2, pending: 1, runningDuration: 10s, taskStatusCount: {a: {phase: {Running: 2, Pending: 1}}}, controlledResources: {q: "y"}, conditions: [{status: Pending}]}`},
			`{state: {phase: Running}, version: 2, minAvailable: 1, running: 3, pending: 1, runningDuration: 1m30s, taskStatusCount: {a: {phase: {Running: 3, Pending: 1}}}, controlledResources: {p: x, q: "y"}, conditions: [{status: Running}, {status: Pending}]}`},
		"flink":       {`{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, status: {error: old}}`, []string{`{jobStatus: {state: RUNNING}, lifecycleState: STABLE}`, ""}, `{jobStatus: {state: RUNNING}, lifecycleState: STABLE}`},
		"ray cluster": {`{apiVersion: ray.io/v1, kind: RayCluster}`, []string{`{state: ready, desiredWorkerReplicas: 2}`}, `{state: ready, desiredWorkerReplicas: 2}`},
		"ray job":     {`{apiVersion: ray.io/v1, kind: RayJob}`, []string{`{jobStatus: RUNNING, jobId: x}`}, `{jobStatus: RUNNING, jobId: x}`},
		"ray jobs": {`{apiVersion: ray.io/v1, kind: RayJob}`, []string{`{jobStatus: RUNNING, jobDeploymentStatus: Running}`, `{jobStatus: FAILED, jobDeploymentStatus: Failed, reason: r, message: m}`, `{jobStatus: SUCCEEDED, jobDeploymentStatus: Complete, message: n2}`},
			`{jobStatus: FAILED, jobDeploymentStatus: Failed, reason: r, message: m}`},
		"ray service": {`{apiVersion: ray.io/v1, kind: RayService}`,
			[]string{`{numServeEndpoints: 1, serviceStatus: Running, conditions: [{type: Ready, status: "False"}], activeServiceStatus: {applicationStatuses: {a: {status: UNHEALTHY}}}}`, `{numServeEndpoints: 2, serviceStatus: Running, conditions: [{type: Ready, status: "True"}], activeServiceStatus: {rayClusterName: c, applicationStatuses: {a: {status: RUNNING}, b: {status: DEPLOYING}}}}`},
			`{numServeEndpoints: 3, serviceStatus: Running, conditions: [{type: Ready, status: "False"}], activeServiceStatus: {rayClusterName: c, applicationStatuses: {a: {status: UNHEALTHY}, b: {status: DEPLOYING}}}}`},
		"spark": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication}`, []string{`{applicationState: {state: RUNNING}, submissionAttempts: 1, driverInfo: {podName: p}}`}, `{applicationState: {state: RUNNING}, submissionAttempts: 1, driverInfo: {podName: p}}`},
		"sparks": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication}`, []string{`{applicationState: {state: FAILED, errorMessage: e}, submissionAttempts: 1, lastSubmissionAttemptTime: "2025-01-02T00:00:00Z"}`, `{applicationState: {state: RUNNING}, submissionAttempts: 2, executionAttempts: 1, lastSubmissionAttemptTime: "2025-01-01T00:00:00Z"}`},
			`{applicationState: {state: FAILED, errorMessage: e}, submissionAttempts: 3, executionAttempts: 1, lastSubmissionAttemptTime: "2025-01-02T00:00:00Z"}`},
		"notebook":               {`{apiVersion: kubeflow.org/v1, kind: Notebook}`, []string{`{readyReplicas: 1, containerState: {running: {}}, conditions: [{type: a}]}`, `{readyReplicas: 1, conditions: [{type: b}]}`}, `{readyReplicas: 2, containerState: {running: {}}, conditions: [{type: a}, {type: b}]}`},
		"training in one member": {`{apiVersion: kubeflow.org/v1, kind: TFJob, status: {old: 1}}`, []string{`{generation: 4, conditions: [{type: Running, status: "True"}], replicaStatuses: {Worker: {active: 2}}}`}, `{conditions: [{type: Running, status: "True"}], replicaStatuses: {Worker: {active: 2}}}`},
		"training in two": {`{apiVersion: kubeflow.org/v1, kind: PyTorchJob}`,
			[]string{`{startTime: "2025-01-02T00:00:00Z", completionTime: "2025-01-03T00:00:00Z", conditions: [{type: Succeeded, status: "True"}], replicaStatuses: {Worker: {succeeded: 2}}}`, `{startTime: "2025-01-01T00:00:00Z", lastReconcileTime: "2025-01-01T00:00:01Z", conditions: [{type: Running, status: "True"}], replicaStatuses: {Worker: {active: 2, failed: 1}, Master: {active: 1}}}`},
			`{startTime: "2025-01-01T00:00:00Z", lastReconcileTime: "2025-01-01T00:00:01Z", conditions: [{type: Running, status: "True"}], replicaStatuses: {Worker: {active: 2, succeeded: 2, failed: 1}, Master: {active: 1}}}`},
		"training failed": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob}`, []string{`{conditions: [{type: Succeeded, status: "True"}]}`, `{conditions: [{type: Failed, status: "True", lastTransitionTime: "2025-01-01T00:00:00Z"}]}`},
			`{conditions: [{type: Failed, status: "True", reason: MPIJobFailed, message: The MPIJob failed in member clusters m2, lastProbeTime: "2025-01-01T00:00:00Z", lastTransitionTime: "2025-01-01T00:00:00Z"}]}`},
		"training succeeded": {`{apiVersion: kubeflow.org/v1, kind: TFJob}`, []string{`{completionTime: "2025-01-01T00:00:00Z", conditions: [{type: Succeeded, status: "True"}]}`, `{completionTime: "2025-01-02T00:00:00Z", conditions: [{type: Succeeded, status: "True"}]}`},
			`{completionTime: "2025-01-02T00:00:00Z", conditions: [{type: Succeeded, status: "True", reason: Completed, message: The TFJob succeeded in all member clusters}]}`},
		"training unreported": {`{apiVersion: kubeflow.org/v1, kind: TFJob, status: {old: 1}}`, []string{"", ""}, "same"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := fixture.Object(t, tc.template)
			items := fixture.Items(t, tc.members...)
			unchanged := fixture.Frozen(t, template)
			got, err := kindOf(t, template).AggregateStatus(template, items)
			if err != nil {
				t.Fatal(err)
			}
			unchanged()
			if tc.want == "same" {
				if got != template {
					t.Fatalf("got a new object with the status %v", got.Object["status"])
				}
				return
			}
			fixture.Equal(t, got.Object["status"], fixture.Value(t, tc.want))
			if again, err := kindOf(t, template).AggregateStatus(got, items); err != nil || again != got {
				t.Errorf("aggregating again returned a new object, %v", err)
			}
		})
	}
}

func TestReflectStatus(t *testing.T) {
	const meta = `metadata: {generation: 5, annotations: {resourcetemplate.karmada.io/generation: "3"}}`
	const generations = `generation: 5, resourceTemplateGeneration: 3`
	for _, tc := range []struct{ kind, status, want string }{
		{"apps.kruise.io/v1alpha1 CloneSet", `{observedGeneration: 5, replicas: 1, expectedUpdatedReplicas: 2, labelSelector: 'a in ("b")', conditions: []}`, `{` + generations + `, observedGeneration: 5, replicas: 1, expectedUpdatedReplicas: 2, labelSelector: 'a in ("b")'}`},
		{"apps.kruise.io/v1beta1 StatefulSet", `{observedGeneration: 5, currentReplicas: 1, updateRevision: u, other: 1}`, `{` + generations + `, observedGeneration: 5, currentReplicas: 1, updateRevision: u}`},
		{"apps.kruise.io/v1alpha1 DaemonSet", `{observedGeneration: 5, numberReady: 1, daemonSetHash: h, other: 1}`, `{` + generations + `, observedGeneration: 5, numberReady: 1, daemonSetHash: h}`},
		{"apps.kruise.io/v1alpha1 UnitedDeployment", `{observedGeneration: 5, replicas: 1, conditions: [{type: a}], other: 1}`, `{` + generations + `, observedGeneration: 5, replicas: 1, conditions: [{type: a}]}`},
		{"apps.kruise.io/v1alpha1 SidecarSet", `{observedGeneration: 5, matchedPods: 1, other: 1}`, `{` + generations + `, observedGeneration: 5, matchedPods: 1}`},
		{"apps.kruise.io/v1alpha1 BroadcastJob", `{active: 1, phase: running, other: 1}`, `{active: 1, phase: running}`},
		{"kustomize.toolkit.fluxcd.io/v1 Kustomization", `{observedGeneration: 4, lastAppliedRevision: r, inventory: {}}`, `{` + generations + `, observedGeneration: 4, lastAppliedRevision: r}`},
		{"helm.toolkit.fluxcd.io/v2 HelmRelease", `{observedGeneration: 4, helmChart: c, failures: 1, history: []}`, `{` + generations + `, observedGeneration: 4, helmChart: c, failures: 1}`},
		{"source.toolkit.fluxcd.io/v1 GitRepository", `{observedGeneration: 4, artifact: {}, observedInclude: []}`, `{` + generations + `, observedGeneration: 4, artifact: {}}`},
		{"source.toolkit.fluxcd.io/v1beta2 OCIRepository", `{observedGeneration: 4, url: u}`, `{` + generations + `, observedGeneration: 4, url: u}`},
		{"source.toolkit.fluxcd.io/v1beta2 HelmRepository", `{observedGeneration: 4, url: u}`, `{` + generations + `, observedGeneration: 4, url: u}`},
		{"source.toolkit.fluxcd.io/v1beta2 Bucket", `{observedGeneration: 4, url: u}`, `{` + generations + `, observedGeneration: 4, url: u}`},
		{"source.toolkit.fluxcd.io/v1beta2 HelmChart", `{observedGeneration: 4, observedChartName: u}`, `{` + generations + `, observedGeneration: 4, observedChartName: u}`},
		{"kyverno.io/v1 Policy", `{ready: true, rulecount: {validate: 1}, other: 1}`, `{ready: true, rulecount: {validate: 1}}`},
		{"batch.volcano.sh/v1alpha1 Job", `{running: 1, state: {phase: Running}, other: 1}`, `{running: 1, state: {phase: Running}}`},
		{"flink.apache.org/v1beta1 FlinkDeployment", `{jobStatus: {state: RUNNING}, other: 1}`, `{jobStatus: {state: RUNNING}}`},
		{"ray.io/v1 RayCluster", `{state: ready, other: 1}`, `{state: ready}`},
		{"sparkoperator.k8s.io/v1beta2 SparkApplication", `{submissionAttempts: 1, other: 1}`, `{submissionAttempts: 1}`},
		{"kubeflow.org/v1 Notebook", `{readyReplicas: 1, other: 1}`, `{readyReplicas: 1}`},
		{"kubeflow.org/v1 PyTorchJob", `{replicaStatuses: {Worker: {active: 1}}, other: 1}`, `{replicaStatuses: {Worker: {active: 1}}}`},
		{"kubeflow.org/v1 TFJob", `{startTime: t, other: 1}`, `{startTime: t}`},
		{"kubeflow.org/v2beta1 MPIJob", `{lastReconcileTime: t, other: 1}`, `{lastReconcileTime: t}`},
	} {
		version, kind, _ := strings.Cut(tc.kind, " ")
		obj := fixture.Object(t, "{apiVersion: "+version+", kind: "+kind+", "+meta+", status: "+tc.status+"}")
		got, err := kindOf(t, obj).ReflectStatus(obj)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Equal(t, fixture.Status(t, got), fixture.Value(t, tc.want))
		delete(obj.Object, "status")
		if got, err := kindOf(t, obj).ReflectStatus(obj); got != nil || err != nil {
			t.Errorf("%s without a status reflects %v, %v", tc.kind, got, err)
		}
	}
}

func TestHealth(t *testing.T) {
	const ok, bad = workv1alpha2.ResourceHealthy, workv1alpha2.ResourceUnhealthy
	cases := []struct {
		kind, rest string
		want       workv1alpha2.ResourceHealth
	}{
		{"apps.kruise.io/v1alpha1 CloneSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 3, availableReplicas: 3}`, ok},
		{"apps.kruise.io/v1alpha1 CloneSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 1, updatedReplicas: 3, availableReplicas: 3}`, bad},
		{"apps.kruise.io/v1alpha1 CloneSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 1, availableReplicas: 3}`, bad},
		{"apps.kruise.io/v1alpha1 CloneSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 1, expectedUpdatedReplicas: 1, availableReplicas: 3}`, ok},
		{"apps.kruise.io/v1alpha1 CloneSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 3, availableReplicas: 2}`, bad},
		{"apps.kruise.io/v1beta1 StatefulSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 3, availableReplicas: 3}`, ok},
		{"apps.kruise.io/v1beta1 StatefulSet", `metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 3}`, bad},
		{"apps.kruise.io/v1alpha1 DaemonSet", `metadata: {generation: 2}, status: {observedGeneration: 2, updatedNumberScheduled: 2, desiredNumberScheduled: 2, numberAvailable: 2}`, ok},
		{"apps.kruise.io/v1alpha1 DaemonSet", `metadata: {generation: 2}, status: {observedGeneration: 2, updatedNumberScheduled: 1, desiredNumberScheduled: 2, numberAvailable: 2}`, bad},
		{"apps.kruise.io/v1alpha1 UnitedDeployment", `metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2, readyReplicas: 2}`, ok},
		{"apps.kruise.io/v1alpha1 UnitedDeployment", `metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 1}`, bad},
		{"apps.kruise.io/v1alpha1 SidecarSet", `status: {matchedPods: 2, updatedPods: 2}`, ok},
		{"apps.kruise.io/v1alpha1 SidecarSet", `status: {matchedPods: 2, updatedPods: 1}`, bad},
		{"apps.kruise.io/v1alpha1 SidecarSet", `spec: {}`, bad},
		{"apps.kruise.io/v1alpha1 BroadcastJob", `status: {desired: 2, active: 1}`, ok},
		{"apps.kruise.io/v1alpha1 BroadcastJob", `status: {desired: 2, active: 1, failed: 1}`, bad},
		{"apps.kruise.io/v1alpha1 BroadcastJob", `status: {desired: 2}`, bad},
		{"argoproj.io/v1alpha1 Workflow", `status: {phase: Running}`, ok},
		{"argoproj.io/v1alpha1 Workflow", `status: {phase: Failed}`, bad},
		{"argoproj.io/v1alpha1 Workflow", `status: {phase: Error}`, bad},
		{"argoproj.io/v1alpha1 Workflow", `spec: {}`, bad},
		{"kyverno.io/v1 Policy", `status: {ready: true}`, ok},
		{"kyverno.io/v1 Policy", `status: {ready: false}`, bad},
		{"kyverno.io/v1 ClusterPolicy", `status: {conditions: [{type: Ready, status: "True"}]}`, ok},
		{"kyverno.io/v1 ClusterPolicy", `status: {}`, bad},
		{"batch.volcano.sh/v1alpha1 Job", `status: {state: {phase: Running}}`, ok},
		{"batch.volcano.sh/v1alpha1 Job", `status: {state: {phase: Failed}}`, bad},
		{"flink.apache.org/v1beta1 FlinkDeployment", `status: {jobStatus: {state: RUNNING}}`, ok},
		{"flink.apache.org/v1beta1 FlinkDeployment", `status: {jobStatus: {state: CREATED}}`, bad},
		{"flink.apache.org/v1beta1 FlinkDeployment", `status: {jobStatus: {state: CREATED}, jobManagerDeploymentStatus: ERROR}`, ok},
		{"flink.apache.org/v1beta1 FlinkDeployment", `status: {error: "no such image"}`, ok},
		{"flink.apache.org/v1beta1 FlinkDeployment", `spec: {}`, bad},
		{"ray.io/v1 RayCluster", `status: {state: ready}`, ok},
		{"ray.io/v1 RayCluster", `status: {state: failed}`, bad},
		{"ray.io/v1 RayJob", `status: {jobDeploymentStatus: Running}`, ok},
		{"ray.io/v1 RayJob", `status: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}`, ok},
		{"ray.io/v1 RayJob", `status: {jobDeploymentStatus: Complete, jobStatus: FAILED}`, bad},
		{"ray.io/v1 RayService", `status: {conditions: [{type: Ready, status: "True"}, {type: UpgradeInProgress, status: "True"}]}`, ok},
		{"ray.io/v1 RayService", `status: {conditions: [{type: Ready, status: "False"}]}`, bad},
		{"sparkoperator.k8s.io/v1beta2 SparkApplication", `status: {applicationState: {state: RUNNING}}`, ok},
		{"sparkoperator.k8s.io/v1beta2 SparkApplication", `status: {applicationState: {state: FAILED}}`, bad},
		{"sparkoperator.k8s.io/v1beta2 SparkApplication", `status: {}`, bad},
		{"kubeflow.org/v1 Notebook", `status: {containerState: {running: {}}}`, ok},
		{"kubeflow.org/v1 Notebook", `status: {containerState: {waiting: {}}}`, ok},
		{"kubeflow.org/v1 Notebook", `status: {containerState: {terminated: {exitCode: 0}}}`, ok},
		{"kubeflow.org/v1 Notebook", `status: {containerState: {terminated: {exitCode: 1}}}`, bad},
		{"kubeflow.org/v1 Notebook", `status: {containerState: {terminated: {reason: OOMKilled}}}`, bad},
		{"kubeflow.org/v1 Notebook", `status: {}`, bad},
		{"kubeflow.org/v1 PyTorchJob", `status: {conditions: [{type: Running, status: "True"}]}`, ok},
		{"kubeflow.org/v1 TFJob", `status: {conditions: [{type: Failed, status: "True"}]}`, bad},
		{"kubeflow.org/v2beta1 MPIJob", `status: {}`, bad},
	}
	for _, kind := range []string{"kustomize.toolkit.fluxcd.io/v1 Kustomization", "helm.toolkit.fluxcd.io/v2 HelmRelease", "source.toolkit.fluxcd.io/v1 GitRepository",
		"source.toolkit.fluxcd.io/v1beta2 OCIRepository", "source.toolkit.fluxcd.io/v1 HelmRepository", "source.toolkit.fluxcd.io/v1 Bucket", "source.toolkit.fluxcd.io/v1 HelmChart"} {
		for status, want := range map[string]workv1alpha2.ResourceHealth{"True": ok, "False": bad, "Unknown": bad} {
			cases = append(cases, struct {
				kind, rest string
				want       workv1alpha2.ResourceHealth
			}{kind, `status: {conditions: [{type: Ready, status: "` + status + `", reason: Succeeded}]}`, want})
		}
	}
	for _, tc := range cases {
		version, kind, _ := strings.Cut(tc.kind, " ")
		obj := fixture.Object(t, "{apiVersion: "+version+", kind: "+kind+", "+tc.rest+"}")
		if got, err := kindOf(t, obj).Health(obj); got != tc.want || err != nil {
			t.Errorf("%s with %s: got %s, %v, want %s", tc.kind, tc.rest, got, err, tc.want)
		}
	}
}

func TestDependencies(t *testing.T) {
	const pod = `{containers: [{envFrom: [{configMapRef: {name: c}}]}], volumes: [{persistentVolumeClaim: {claimName: data}}]}`
	const all = "ConfigMap/c PersistentVolumeClaim/data"
	const ray = `{headGroupSpec: {template: {spec: ` + pod + `}}, workerGroupSpecs: [{template: {spec: {serviceAccountName: w}}}]}`
	for _, tc := range []struct{ kind, spec, want string }{
		{"apps.kruise.io/v1alpha1 CloneSet", `{template: {spec: ` + pod + `}}`, all},
		{"apps.kruise.io/v1alpha1 CloneSet", `{volumeClaimTemplates: [{metadata: {name: data}}], template: {spec: ` + pod + `}}`, "ConfigMap/c"},
		{"apps.kruise.io/v1beta1 StatefulSet", `{volumeClaimTemplates: [{metadata: {name: data}}], template: {spec: ` + pod + `}}`, "ConfigMap/c"},
		{"apps.kruise.io/v1alpha1 DaemonSet", `{template: {spec: ` + pod + `}}`, all},
		{"apps.kruise.io/v1alpha1 UnitedDeployment", `{template: {deploymentTemplate: {spec: {template: {spec: ` + pod + `}}}}}`, all},
		{"apps.kruise.io/v1alpha1 SidecarSet", `{namespace: ns, containers: [{envFrom: [{configMapRef: {name: c}}]}]}`, "ConfigMap/c"},
		{"apps.kruise.io/v1alpha1 SidecarSet", pod, ""},
		{"apps.kruise.io/v1alpha1 BroadcastJob", `{template: {spec: ` + pod + `}}`, all},
		{"apps.kruise.io/v1alpha1 AdvancedCronJob", `{template: {jobTemplate: {spec: {template: {spec: ` + pod + `}}}}}`, all},
		{"apps.kruise.io/v1alpha1 AdvancedCronJob", `{template: {broadcastJobTemplate: {spec: {template: {spec: ` + pod + `}}}}}`, all},
		{"argoproj.io/v1alpha1 Workflow", `{serviceAccountName: s, executor: {serviceAccountName: e}, imagePullSecrets: [{name: p}], volumeClaimTemplates: [{metadata: {name: v}}], volumes: [{secret: {secretName: x}}], templates: [{container: {envFrom: [{configMapRef: {name: c}}]}}, {script: {env: [{valueFrom: {secretKeyRef: {name: k}}}]}, sidecars: [{envFrom: [{secretRef: {name: q}}]}]}]}`,
			"ConfigMap/c Secret/k Secret/p Secret/q Secret/x ServiceAccount/e ServiceAccount/s"},
		{"flink.apache.org/v1beta1 FlinkDeployment", `{podTemplate: {spec: ` + pod + `}, taskManager: {podTemplate: {spec: {serviceAccountName: s}}}}`, "ConfigMap/c ServiceAccount/s PersistentVolumeClaim/data"},
		{"kustomize.toolkit.fluxcd.io/v1 Kustomization", `{decryption: {secretRef: {name: d}}, kubeConfig: {secretRef: {name: k}}, serviceAccountName: s, postBuild: {substituteFrom: [{kind: ConfigMap, name: v}]}}`, "ConfigMap/v Secret/d Secret/k ServiceAccount/s"},
		{"helm.toolkit.fluxcd.io/v2 HelmRelease", `{valuesFrom: [{kind: Secret, name: a}, {kind: ConfigMap, name: b}, {kind: Other, name: c}], chart: {spec: {verify: {secretRef: {name: v}}}}, kubeConfig: {secretRef: {name: k}}, serviceAccountName: s}`, "ConfigMap/b Secret/a Secret/k Secret/v ServiceAccount/s"},
		{"source.toolkit.fluxcd.io/v1 GitRepository", `{secretRef: {name: a}, verify: {secretRef: {name: b}}}`, "Secret/a Secret/b"},
		{"source.toolkit.fluxcd.io/v1beta2 OCIRepository", `{secretRef: {name: a}, certSecretRef: {name: b}, verify: {secretRef: {name: c}}, serviceAccountName: s}`, "Secret/a Secret/b Secret/c ServiceAccount/s"},
		{"source.toolkit.fluxcd.io/v1beta2 HelmRepository", `{secretRef: {name: a}}`, "Secret/a"},
		{"source.toolkit.fluxcd.io/v1beta2 Bucket", `{secretRef: {name: a}}`, "Secret/a"},
		{"source.toolkit.fluxcd.io/v1beta2 HelmChart", `{verify: {secretRef: {name: a}}}`, "Secret/a"},
		{"batch.volcano.sh/v1alpha1 Job", `{tasks: [{name: a, template: {spec: ` + pod + `}}], volumes: [{volumeClaimName: mine}, {volumeClaimName: made, volumeClaim: {}}]}`, "ConfigMap/c PersistentVolumeClaim/data PersistentVolumeClaim/mine"},
		{"ray.io/v1 RayCluster", ray, "ConfigMap/c ServiceAccount/w PersistentVolumeClaim/data"},
		{"ray.io/v1 RayJob", `{rayClusterSpec: ` + ray + `, submitterPodTemplate: {spec: {imagePullSecrets: [{name: p}]}}}`, "ConfigMap/c Secret/p ServiceAccount/w PersistentVolumeClaim/data"},
		{"ray.io/v1 RayService", `{rayClusterConfig: ` + ray + `}`, "ConfigMap/c ServiceAccount/w PersistentVolumeClaim/data"},
		{"sparkoperator.k8s.io/v1beta2 SparkApplication", `{sparkConfigMap: sc, hadoopConfigMap: hc, imagePullSecrets: [p], volumes: [{configMap: {name: v}}], driver: {serviceAccount: s, configMaps: [{name: dc}], secrets: [{name: ds}]}, executor: {envFrom: [{secretRef: {name: es}}]}}`,
			"ConfigMap/dc ConfigMap/hc ConfigMap/sc ConfigMap/v Secret/ds Secret/es Secret/p ServiceAccount/s"},
		{"kubeflow.org/v1 Notebook", `{template: {spec: ` + pod + `}}`, all},
		{"kubeflow.org/v1 PyTorchJob", `{pytorchReplicaSpecs: {Master: {template: {spec: ` + pod + `}}, Worker: {template: {spec: {serviceAccountName: w}}}}}`, "ConfigMap/c ServiceAccount/w PersistentVolumeClaim/data"},
		{"kubeflow.org/v1 TFJob", `{tfReplicaSpecs: {Chief: {template: {spec: ` + pod + `}}}}`, all},
		{"kubeflow.org/v2beta1 MPIJob", `{mpiReplicaSpecs: {Launcher: {template: {spec: ` + pod + `}}}}`, all},
	} {
		version, kind, _ := strings.Cut(tc.kind, " ")
		obj := fixture.Object(t, "{apiVersion: "+version+", kind: "+kind+", metadata: {namespace: ns, name: x}, spec: "+tc.spec+"}")
		unchanged := fixture.Frozen(t, obj)
		refs, err := kindOf(t, obj).Dependencies(obj)
		if err != nil {
			t.Fatal(err)
		}
		unchanged()
		var got []string
		for _, ref := range refs {
			if ref.APIVersion != "v1" || ref.Namespace != "ns" {
				t.Errorf("got %+v", ref)
			}
			got = append(got, ref.Kind+"/"+ref.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", tc.kind, got, tc.want)
		}
	}
}
