package native

import (
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

// TestOperations pins the operations that each kind supports.
func TestOperations(t *testing.T) {
	const (
		replicas   = configv1alpha1.InterpreterOperationInterpretReplica
		revise     = configv1alpha1.InterpreterOperationReviseReplica
		retain     = configv1alpha1.InterpreterOperationRetain
		aggregate  = configv1alpha1.InterpreterOperationAggregateStatus
		reflect    = configv1alpha1.InterpreterOperationInterpretStatus
		health     = configv1alpha1.InterpreterOperationInterpretHealth
		dependency = configv1alpha1.InterpreterOperationInterpretDependency
		component  = configv1alpha1.InterpreterOperationInterpretComponent
	)
	want := map[configv1alpha1.InterpreterOperation][]string{
		replicas:   {"Deployment", "ReplicaSet", "StatefulSet", "Job", "Pod"},
		revise:     {"Deployment", "ReplicaSet", "StatefulSet", "Job"},
		retain:     {"Deployment", "ReplicaSet", "StatefulSet", "Pod", "Service", "ServiceAccount", "PersistentVolumeClaim", "PersistentVolume", "Job", "Secret"},
		aggregate:  {"Deployment", "ReplicaSet", "Service", "Ingress", "Job", "CronJob", "DaemonSet", "StatefulSet", "Pod", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler"},
		reflect:    {"Deployment", "ReplicaSet", "Service", "Ingress", "Job", "DaemonSet", "StatefulSet", "PodDisruptionBudget", "HorizontalPodAutoscaler"},
		health:     {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Service", "Ingress", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget"},
		dependency: {"Deployment", "ReplicaSet", "Job", "CronJob", "Pod", "DaemonSet", "StatefulSet", "Ingress", "ServiceImport"},
		component:  {},
	}
	known := map[string]bool{}
	for gvk := range Table {
		known[gvk.Kind] = true
	}
	for op, names := range want {
		expected := map[string]bool{}
		for _, name := range names {
			expected[name] = true
			if !known[name] {
				t.Errorf("%s is not in the table", name)
			}
		}
		for gvk, kind := range Table {
			if kind.Supports(op) != expected[gvk.Kind] {
				t.Errorf("%s supports %s: %v", gvk.Kind, op, kind.Supports(op))
			}
		}
	}
}

func TestReplicas(t *testing.T) {
	const template = `
  template:
    spec:
      nodeSelector: {disk: ssd}
      priorityClassName: high
      tolerations: [{key: gpu, operator: Exists}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]
      overhead: {cpu: 10m}
      initContainers:
      - {name: init, resources: {requests: {cpu: "2"}}}
      - {name: sidecar, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}
      containers:
      - {name: a, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}}
      - {name: b, resources: {requests: {cpu: 1}}}`
	cases := map[string]struct {
		document string
		replicas int32
	}{
		"deployment":           {"apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 3" + template, 3},
		"deployment, unset":    {"apiVersion: apps/v1\nkind: Deployment\nspec:" + template, 0},
		"replica set":          {"apiVersion: apps/v1\nkind: ReplicaSet\nspec:\n  replicas: 4" + template, 4},
		"stateful set":         {"apiVersion: apps/v1\nkind: StatefulSet\nspec:\n  replicas: 5" + template, 5},
		"job":                  {"apiVersion: batch/v1\nkind: Job\nspec:\n  parallelism: 6\n  completions: 12" + template, 6},
		"job without parallel": {"apiVersion: batch/v1\nkind: Job\nspec:" + template, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := fixture.Object(t, tc.document+"\nmetadata: {name: web, namespace: prod}")
			unchanged := fixture.Frozen(t, obj)
			replicas, requirements, err := kindOf(t, obj).Replicas(obj)
			unchanged()
			if err != nil || replicas != tc.replicas {
				t.Fatalf("got %d, %v, want %d", replicas, err, tc.replicas)
			}
			checkRequirements(t, requirements)
		})
	}
	obj := fixture.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: prod}, spec: {containers: [{name: a}]}}`)
	if n, requirements, err := pod.Replicas(obj); n != 1 || requirements != nil || err != nil {
		t.Fatalf("a pod without requests gave %d, %v, %v", n, requirements, err)
	}
	obj = fixture.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: prod}, spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}}`)
	if n, requirements, err := pod.Replicas(obj); n != 1 || requirements == nil || requirements.ResourceRequest.Cpu().String() != "2" || err != nil {
		t.Fatalf("a pod that requests two cores gave %d, %v, %v", n, requirements, err)
	}
}

func checkRequirements(t *testing.T, r *workv1alpha2.ReplicaRequirements) {
	t.Helper()
	if r == nil || r.NodeClaim == nil {
		t.Fatal("no requirements")
	}
	// The init container needs more CPU than both containers; the sidecar runs beside them; a limit is a request.
	for name, want := range map[string]string{"cpu": "2010m", "memory": "2Gi", "nvidia.com/gpu": "1"} {
		for key, quantity := range r.ResourceRequest {
			if string(key) == name && quantity.String() != want {
				t.Errorf("%s is %s, want %s", name, quantity.String(), want)
			}
		}
	}
	if len(r.ResourceRequest) != 3 || r.Namespace != "prod" || r.PriorityClassName != "high" ||
		r.NodeClaim.NodeSelector["disk"] != "ssd" || len(r.NodeClaim.Tolerations) != 1 || r.NodeClaim.Tolerations[0].Key != "gpu" ||
		r.NodeClaim.HardNodeAffinity.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "a" {
		t.Errorf("got %+v", r)
	}
}

func TestReviseReplica(t *testing.T) {
	for _, tc := range []struct{ document, want string }{
		{`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3, paused: true}}`, `{replicas: 7, paused: true}`},
		{`{apiVersion: apps/v1, kind: ReplicaSet}`, `{replicas: 7}`},
		{`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3}}`, `{replicas: 7}`},
		{`{apiVersion: batch/v1, kind: Job, spec: {parallelism: 3, completions: 9}}`, `{parallelism: 7, completions: 9}`},
	} {
		obj := fixture.Object(t, tc.document)
		unchanged := fixture.Frozen(t, obj)
		got, err := kindOf(t, obj).ReviseReplica(obj, 7)
		if err != nil {
			t.Fatal(err)
		}
		unchanged()
		fixture.Equal(t, got.Object["spec"], fixture.Value(t, tc.want))
		if again, err := kindOf(t, obj).ReviseReplica(got, 7); again != got || err != nil {
			t.Errorf("revising to the same number returned a new object, %v", err)
		}
	}
}

func TestRetain(t *testing.T) {
	cases := map[string]struct{ desired, observed, want string }{
		"deployment owned by an autoscaler": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {resourcetemplate.karmada.io/retain-replicas: "true"}}, spec: {replicas: 1}}`,
			`{spec: {replicas: 9, paused: true}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {resourcetemplate.karmada.io/retain-replicas: "true"}}, spec: {replicas: 9}}`,
		},
		"deployment": {
			`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1}}`, `{spec: {replicas: 9}}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1}}`,
		},
		"pod": {
			`{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, image: x}, {name: b}], initContainers: [{name: i}]}}`,
			`{spec: {nodeName: n, serviceAccountName: s, volumes: [{name: token}], containers: [{name: a, image: y, volumeMounts: [{name: token}]}], initContainers: [{name: i, volumeMounts: [{name: token}]}]}}`,
			`{apiVersion: v1, kind: Pod, spec: {nodeName: n, serviceAccountName: s, volumes: [{name: token}], containers: [{name: a, image: x, volumeMounts: [{name: token}]}, {name: b}], initContainers: [{name: i, volumeMounts: [{name: token}]}]}}`,
		},
		"service": {
			`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, ports: [{port: 80}, {port: 53, protocol: UDP}, {port: 90, nodePort: 30001}, {port: 91}]}}`,
			`{spec: {type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], healthCheckNodePort: 31000, sessionAffinity: None, ports: [{port: 80, protocol: TCP, nodePort: 30080}, {port: 53, protocol: UDP, nodePort: 30053}, {port: 90, nodePort: 30090}, {port: 91, protocol: UDP, nodePort: 30091}]}}`,
			`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30080}, {port: 53, protocol: UDP, nodePort: 30053}, {port: 90, nodePort: 30001}, {port: 91}]}}`,
		},
		"service that leaves the cluster": {
			`{apiVersion: v1, kind: Service, spec: {type: ExternalName, externalName: x}}`, `{spec: {clusterIP: 10.0.0.1}}`,
			`{apiVersion: v1, kind: Service, spec: {type: ExternalName, externalName: x}}`,
		},
		"service account": {
			`{apiVersion: v1, kind: ServiceAccount}`, `{secrets: [{name: t}]}`, `{apiVersion: v1, kind: ServiceAccount, secrets: [{name: t}]}`,
		},
		"service account with secrets of its own": {
			`{apiVersion: v1, kind: ServiceAccount, secrets: [{name: mine}]}`, `{secrets: [{name: t}]}`,
			`{apiVersion: v1, kind: ServiceAccount, secrets: [{name: mine}]}`,
		},
		"claim": {
			`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {a: 1}}`, `{spec: {volumeName: pv, b: 2}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {a: 1, volumeName: pv}}`,
		},
		"volume": {
			`{apiVersion: v1, kind: PersistentVolume}`, `{spec: {claimRef: {name: c}}}`, `{apiVersion: v1, kind: PersistentVolume, spec: {claimRef: {name: c}}}`,
		},
		"job": {
			`{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {labels: {app: x}}}}}`,
			`{spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {app: y, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}}}}`,
			`{apiVersion: batch/v1, kind: Job, spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {app: x, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}}}}`,
		},
		"job with a selector of its own": {
			`{apiVersion: batch/v1, kind: Job, spec: {manualSelector: true, selector: {matchLabels: {a: b}}}}`, `{spec: {selector: {matchLabels: {c: d}}}}`,
			`{apiVersion: batch/v1, kind: Job, spec: {manualSelector: true, selector: {matchLabels: {a: b}}}}`,
		},
		"token secret": {
			`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token}`,
			`{metadata: {annotations: {kubernetes.io/service-account.uid: u, other: x}}, data: {token: t}}`,
			`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {annotations: {kubernetes.io/service-account.uid: u}}, data: {token: t}}`,
		},
		"secret": {
			`{apiVersion: v1, kind: Secret, type: Opaque, data: {a: b}}`, `{data: {c: d}}`, `{apiVersion: v1, kind: Secret, type: Opaque, data: {a: b}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			desired, observed := fixture.Object(t, tc.desired), fixture.Object(t, tc.observed)
			unchanged := fixture.Frozen(t, desired, observed)
			got, err := kindOf(t, desired).Retain(desired, observed)
			if err != nil {
				t.Fatal(err)
			}
			unchanged()
			fixture.Equal(t, any(got.Object), fixture.Value(t, tc.want))
		})
	}
}

func TestReflectStatus(t *testing.T) {
	const meta = `metadata: {generation: 5, annotations: {resourcetemplate.karmada.io/generation: "3"}}, `
	cases := map[string]struct{ document, want string }{
		"deployment": {
			`{apiVersion: apps/v1, kind: Deployment, ` + meta + `status: {observedGeneration: 5, replicas: 4, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 1, unavailableReplicas: 3, conditions: [
				{type: Available, status: "True", reason: r, message: m, lastUpdateTime: t}, {type: Progressing, status: "False", reason: r, message: m, lastUpdateTime: t}, {type: ReplicaFailure, status: "True", reason: r, message: m}]}}`,
			`{generation: 5, resourceTemplateGeneration: 3, observedGeneration: 5, replicas: 4, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 1, unavailableReplicas: 3, conditions: [
				{type: Available, status: "True"}, {type: Progressing, status: "False", reason: r, message: m}, {type: ReplicaFailure, status: "True", reason: r, message: m}]}`,
		},
		"deployment whose numbers say all": {
			`{apiVersion: apps/v1, kind: Deployment, ` + meta + `status: {observedGeneration: 5, replicas: 1, conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True"}, {type: ReplicaFailure, status: "False"}]}}`,
			`{generation: 5, resourceTemplateGeneration: 3, observedGeneration: 5, replicas: 1}`,
		},
		"deployment with nothing but a condition": {
			`{apiVersion: apps/v1, kind: Deployment, status: {conditions: [{type: Progressing, status: "False"}]}}`, `{conditions: [{type: Progressing, status: "False"}]}`,
		},
		"deployment with a mangled annotation": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 5, annotations: {resourcetemplate.karmada.io/generation: x}}, status: {replicas: 1}}`,
			`{generation: 5, replicas: 1}`,
		},
		"nothing yet": {`{apiVersion: apps/v1, kind: Deployment}`, `null`},
		"replica set": {
			`{apiVersion: apps/v1, kind: ReplicaSet, ` + meta + `status: {observedGeneration: 4, replicas: 4, fullyLabeledReplicas: 3, readyReplicas: 2, availableReplicas: 1}}`,
			`{generation: 5, resourceTemplateGeneration: 3, observedGeneration: 4, replicas: 4, fullyLabeledReplicas: 3, readyReplicas: 2, availableReplicas: 1}`,
		},
		"stateful set": {
			`{apiVersion: apps/v1, kind: StatefulSet, ` + meta + `status: {observedGeneration: 5, replicas: 5, currentReplicas: 4, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 1, collisionCount: 0, updateRevision: r}}`,
			`{generation: 5, resourceTemplateGeneration: 3, observedGeneration: 5, replicas: 5, currentReplicas: 4, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 1}`,
		},
		"daemon set": {
			`{apiVersion: apps/v1, kind: DaemonSet, ` + meta + `status: {observedGeneration: 5, currentNumberScheduled: 7, desiredNumberScheduled: 6, numberAvailable: 5, numberMisscheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberUnavailable: 1}}`,
			`{generation: 5, resourceTemplateGeneration: 3, observedGeneration: 5, currentNumberScheduled: 7, desiredNumberScheduled: 6, numberAvailable: 5, numberMisscheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberUnavailable: 1}`,
		},
		"job": {
			`{apiVersion: batch/v1, kind: Job, status: {active: 1, succeeded: 2, failed: 3, ready: 1, startTime: t, completionTime: u, conditions: [{type: Complete}], uncountedTerminatedPods: {}}}`,
			`{active: 1, succeeded: 2, failed: 3, startTime: t, completionTime: u, conditions: [{type: Complete}]}`,
		},
		"service": {
			`{apiVersion: v1, kind: Service, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}, conditions: []}}`, `{loadBalancer: {ingress: [{ip: 1.2.3.4}]}}`,
		},
		"ingress": {
			`{apiVersion: networking.k8s.io/v1, kind: Ingress, status: {loadBalancer: {}, other: 1}}`, `{loadBalancer: {}, other: 1}`,
		},
		"budget": {
			`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {currentHealthy: 1, desiredHealthy: 2, disruptionsAllowed: 0, expectedPods: 4, disruptedPods: {p: t}, observedGeneration: 1}}`,
			`{currentHealthy: 1, desiredHealthy: 2, disruptionsAllowed: 0, expectedPods: 4, disruptedPods: {p: t}}`,
		},
		"autoscaler": {
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, status: {currentReplicas: 1, desiredReplicas: 2, conditions: [], currentMetrics: []}}`,
			`{currentReplicas: 1, desiredReplicas: 2}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := fixture.Object(t, tc.document)
			unchanged := fixture.Frozen(t, obj)
			got, err := kindOf(t, obj).ReflectStatus(obj)
			if err != nil {
				t.Fatal(err)
			}
			unchanged()
			fixture.Equal(t, fixture.Status(t, got), fixture.Value(t, tc.want))
		})
	}
}

func TestHealth(t *testing.T) {
	const (
		healthy   = workv1alpha2.ResourceHealthy
		unhealthy = workv1alpha2.ResourceUnhealthy
	)
	cases := []struct {
		document string
		want     workv1alpha2.ResourceHealth
	}{
		{`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 2}}`, healthy},
		{`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 1, updatedReplicas: 2, availableReplicas: 2}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 1, availableReplicas: 2}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 1}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 3, availableReplicas: 3}}`, healthy},
		{`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 3}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}, status: {observedGeneration: 2, updatedReplicas: 1, availableReplicas: 3}}`, healthy},
		{`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}, status: {observedGeneration: 2, updatedReplicas: 1, availableReplicas: 2}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, availableReplicas: 2}}`, healthy},
		{`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, availableReplicas: 1}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 1, availableReplicas: 2}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2}}`, healthy},
		{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 1, numberAvailable: 2}}`, unhealthy},
		{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}}`, unhealthy},
		{`{apiVersion: v1, kind: Service, spec: {type: ClusterIP}}`, healthy},
		{`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}`, unhealthy},
		{`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`, healthy},
		{`{apiVersion: networking.k8s.io/v1, kind: Ingress, status: {loadBalancer: {ingress: [{hostname: h}]}}}`, healthy},
		{`{apiVersion: networking.k8s.io/v1, kind: Ingress, status: {loadBalancer: {ingress: [{}]}}}`, unhealthy},
		{`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Bound}}`, healthy},
		{`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Pending}}`, unhealthy},
		{`{apiVersion: v1, kind: Pod, status: {phase: Succeeded}}`, healthy},
		{`{apiVersion: v1, kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, healthy},
		{`{apiVersion: v1, kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`, unhealthy},
		{`{apiVersion: v1, kind: Pod, status: {phase: Failed, conditions: [{type: Ready, status: "True"}]}}`, unhealthy},
		{`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {currentHealthy: 2, desiredHealthy: 2}}`, healthy},
		{`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {currentHealthy: 1, desiredHealthy: 2}}`, unhealthy},
	}
	for _, tc := range cases {
		obj := fixture.Object(t, tc.document)
		if got, err := kindOf(t, obj).Health(obj); got != tc.want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", tc.document, got, err, tc.want)
		}
	}
}
