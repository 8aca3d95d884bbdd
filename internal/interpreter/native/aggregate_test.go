package native

import (
	"testing"

	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

func TestAggregateStatus(t *testing.T) {
	const (
		deploymentV3 = `{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 3}, status: {observedGeneration: 2, replicas: 1, conditions: [{type: Available}]}}`
		upToDate     = `{generation: 8, observedGeneration: 8, resourceTemplateGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}`
		behind       = `{generation: 8, observedGeneration: 7, resourceTemplateGeneration: 3, replicas: 3, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2, unavailableReplicas: 1}`
		oldTemplate  = `{generation: 8, observedGeneration: 8, resourceTemplateGeneration: 2, replicas: 3}`
	)
	cases := map[string]struct {
		template string
		members  []string
		want     string // the status, or "same" for the template itself
	}{
		"deployment": {deploymentV3, []string{upToDate, upToDate, upToDate},
			`{observedGeneration: 3, replicas: 6, updatedReplicas: 6, readyReplicas: 6, availableReplicas: 6, unavailableReplicas: 0, conditions: [{type: Available}]}`},
		"deployment a member has not observed": {deploymentV3, []string{upToDate, behind},
			`{observedGeneration: 2, replicas: 5, updatedReplicas: 3, readyReplicas: 4, availableReplicas: 4, unavailableReplicas: 1, conditions: [{type: Available}]}`},
		"deployment a member has not received": {deploymentV3, []string{upToDate, oldTemplate},
			`{observedGeneration: 2, replicas: 5, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, unavailableReplicas: 0, conditions: [{type: Available}]}`},
		"deployment a member says nothing of": {deploymentV3, []string{upToDate, ""},
			`{observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, unavailableReplicas: 0, conditions: [{type: Available}]}`},
		"deployment in no member": {deploymentV3, nil,
			`{observedGeneration: 3, replicas: 0, updatedReplicas: 0, readyReplicas: 0, availableReplicas: 0, unavailableReplicas: 0, conditions: [{type: Available}]}`},
		"deployment without change": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 3}, status: {observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}}`, []string{upToDate}, "same"},
		"null status":               {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 3}, status: {observedGeneration: 2}}`, []string{"null"}, "same"},
		"replica set": {`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {generation: 3}}`,
			[]string{`{generation: 1, observedGeneration: 1, resourceTemplateGeneration: 3, replicas: 2, fullyLabeledReplicas: 2, readyReplicas: 1, availableReplicas: 1}`, `{generation: 1, observedGeneration: 1, resourceTemplateGeneration: 3, replicas: 1}`},
			`{observedGeneration: 3, replicas: 3, fullyLabeledReplicas: 2, readyReplicas: 1, availableReplicas: 1}`},
		"stateful set": {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 3}}`,
			[]string{`{resourceTemplateGeneration: 3, replicas: 2, currentReplicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}`, `{resourceTemplateGeneration: 3, replicas: 1}`},
			`{observedGeneration: 3, replicas: 3, currentReplicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}`},
		"daemon set": {`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 3}}`,
			[]string{`{resourceTemplateGeneration: 3, currentNumberScheduled: 1, desiredNumberScheduled: 2, numberAvailable: 3, numberMisscheduled: 4, numberReady: 5, updatedNumberScheduled: 6, numberUnavailable: 7}`, `{resourceTemplateGeneration: 3, currentNumberScheduled: 10}`},
			`{observedGeneration: 3, currentNumberScheduled: 11, desiredNumberScheduled: 2, numberAvailable: 3, numberMisscheduled: 4, numberReady: 5, updatedNumberScheduled: 6, numberUnavailable: 7}`},
		"service": {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {conditions: [{type: x}]}}`,
			[]string{`{loadBalancer: {ingress: [{ip: 9.9.9.9}, {hostname: lb.example, ip: 1.1.1.1}]}}`, `{loadBalancer: {ingress: [{hostname: lb.example, ip: 1.1.1.1}, {ip: 2.2.2.2, ports: [{port: 80, protocol: TCP}]}]}}`, `{loadBalancer: {}}`},
			`{conditions: [{type: x}], loadBalancer: {ingress: [{hostname: lb.example, ip: 1.1.1.1}, {ip: 2.2.2.2, ports: [{port: 80, protocol: TCP}]}, {ip: 9.9.9.9}]}}`},
		"service in the other order": {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{hostname: a, ip: 1.1.1.1}, {hostname: b, ip: 2.2.2.2}]}}}`,
			[]string{`{loadBalancer: {ingress: [{hostname: b, ip: 2.2.2.2}]}}`, `{loadBalancer: {ingress: [{hostname: a, ip: 1.1.1.1}]}}`}, "same"},
		"service that lost its addresses": {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.1.1.1}]}}}`, []string{`{loadBalancer: {}}`}, `{loadBalancer: {}}`},
		"service inside":                  {`{apiVersion: v1, kind: Service, spec: {type: ClusterIP}}`, []string{`{loadBalancer: {ingress: [{ip: 1.1.1.1}]}}`}, "same"},
		"service without addresses":       {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {}}}`, []string{`{loadBalancer: {}}`, ""}, "same"},
		"ingress": {`{apiVersion: networking.k8s.io/v1, kind: Ingress}`,
			[]string{`{loadBalancer: {ingress: [{hostname: z}]}}`, `{loadBalancer: {ingress: [{hostname: a}, {hostname: z}]}}`},
			`{loadBalancer: {ingress: [{hostname: a}, {hostname: z}]}}`},
		"cron job": {`{apiVersion: batch/v1, kind: CronJob}`,
			[]string{`{active: [{name: a}], lastScheduleTime: "2025-01-02T00:00:00Z"}`, `{active: [{name: b}], lastScheduleTime: "2025-01-01T00:00:00Z", lastSuccessfulTime: "2025-01-01T00:00:05Z"}`, ""},
			`{active: [{name: a}, {name: b}], lastScheduleTime: "2025-01-02T00:00:00Z", lastSuccessfulTime: "2025-01-01T00:00:05Z"}`},
		"pod": {`{apiVersion: v1, kind: Pod, status: {qosClass: Burstable}}`,
			[]string{`{phase: Running, podIP: 1.2.3.4, containerStatuses: [{name: a, ready: true, restartCount: 1, image: i, imageID: d, containerID: c, state: {running: {}}}], initContainerStatuses: [{name: i, ready: true, restartCount: 0, image: i, imageID: d}]}`},
			`{qosClass: Burstable, phase: Running, containerStatuses: [{name: a, ready: true, restartCount: 1, image: i, imageID: d, state: {running: {}}}], initContainerStatuses: [{name: i, ready: true, restartCount: 0, image: i, imageID: d}]}`},
		"pod in several members": {`{apiVersion: v1, kind: Pod}`, []string{`{phase: Running, containerStatuses: [{name: a}]}`, `{phase: Succeeded, containerStatuses: [{name: a, ready: true}]}`},
			`{phase: Running, containerStatuses: [{name: m1/a, ready: false, restartCount: 0, image: "", imageID: ""}, {name: m2/a, ready: true, restartCount: 0, image: "", imageID: ""}]}`},
		"pod not yet reported":      {`{apiVersion: v1, kind: Pod}`, []string{`{phase: Running}`, ""}, `{phase: Pending}`},
		"pod failed":                {`{apiVersion: v1, kind: Pod}`, []string{`{phase: Failed}`, ""}, `{phase: Failed}`},
		"pod in no member":          {`{apiVersion: v1, kind: Pod, status: {phase: Pending}}`, nil, "same"},
		"volume":                    {`{apiVersion: v1, kind: PersistentVolume}`, []string{`{phase: Bound}`, `{phase: Available}`}, `{phase: Available}`},
		"volume failed":             {`{apiVersion: v1, kind: PersistentVolume}`, []string{`{phase: Failed}`, ""}, `{phase: Failed}`},
		"claim":                     {`{apiVersion: v1, kind: PersistentVolumeClaim}`, []string{`{phase: Bound}`, `{phase: Bound}`}, `{phase: Bound}`},
		"claim lost":                {`{apiVersion: v1, kind: PersistentVolumeClaim}`, []string{`{phase: Bound}`, `{phase: Lost}`}, `{phase: Lost}`},
		"claim not yet reported":    {`{apiVersion: v1, kind: PersistentVolumeClaim, status: {capacity: {storage: 1Gi}}}`, []string{`{phase: Bound}`, ""}, `{capacity: {storage: 1Gi}, phase: Pending}`},
		"budget":                    {`{apiVersion: policy/v1, kind: PodDisruptionBudget}`, []string{`{currentHealthy: 1, desiredHealthy: 1, disruptionsAllowed: 0, expectedPods: 2, disruptedPods: {p: "2025-01-01T00:00:00Z"}}`, `{currentHealthy: 2, desiredHealthy: 1, expectedPods: 2}`}, `{currentHealthy: 3, desiredHealthy: 2, expectedPods: 4, disruptedPods: {m1/p: "2025-01-01T00:00:00Z"}}`},
		"autoscaler":                {`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, status: {conditions: [{type: x}], currentReplicas: 9}}`, []string{`{currentReplicas: 1, desiredReplicas: 2}`, `{currentReplicas: 3, desiredReplicas: 4}`}, `{conditions: [{type: x}], currentReplicas: 4, desiredReplicas: 6}`},
		"autoscaler scaled to zero": {`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, status: {currentReplicas: 9}}`, []string{`{}`}, `{currentReplicas: 0}`},
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

func TestAggregateErrorsNameTheMemberAndTheField(t *testing.T) {
	for _, tc := range []struct{ template, member, want string }{
		{`{apiVersion: apps/v1, kind: Deployment}`, `{replicas: x}`, "reading the status reported by cluster m1: status.replicas: expected int64, found string"},
		{`{apiVersion: apps/v1, kind: Deployment}`, `[]`, "reading the status reported by cluster m1"},
		{`{apiVersion: apps/v1, kind: Deployment, status: {replicas: x}}`, `{}`, "status.replicas: expected an integer, found a string"},
		{`{apiVersion: apps/v1, kind: Deployment, status: x}`, `{}`, "status: expected an object, found a string"},
		{`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}`, `{loadBalancer: {ingress: [x]}}`, "reading the status reported by cluster m1: loadBalancer.ingress[0]: expected an object, found a string"},
		{`{apiVersion: v1, kind: Pod}`, `{phase: 1}`, "reading the status reported by cluster m1: phase: expected a string, found a number"},
		{`{apiVersion: v1, kind: Pod}`, `"x"`, "reading the status reported by cluster m1: status: expected an object, found a string"},
		{`{apiVersion: batch/v1, kind: Job}`, `{conditions: {}}`, "reading the status reported by cluster m1: status.conditions"},
	} {
		template := fixture.Object(t, tc.template)
		_, err := kindOf(t, template).AggregateStatus(template, fixture.Items(t, tc.member))
		if err == nil || len(err.Error()) < len(tc.want) || err.Error()[:len(tc.want)] != tc.want {
			t.Errorf("%s with %s: got %v, want %q", tc.template, tc.member, err, tc.want)
		}
	}
}
