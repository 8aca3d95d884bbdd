package interpreter

import (
	"context"
	"testing"

	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

// BenchmarkDeployment measures the operations that run for every propagated workload.
func BenchmarkDeployment(b *testing.B) {
	i, ctx := New(Options{}), context.Background()
	obj := fixture.Object(b, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, generation: 3, labels: {app: web}, annotations: {resourcetemplate.karmada.io/generation: "3"}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      containers:
      - name: web
        image: example.com/web:1
        resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 256Mi}}
        envFrom: [{configMapRef: {name: web}}]
      volumes: [{name: tls, secret: {secretName: web-tls}}]
status: {observedGeneration: 3, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}`)
	const member = `{generation: 3, resourceTemplateGeneration: 3, observedGeneration: 3, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}`
	steady := fixture.Items(b, member, member, member)
	changed := fixture.Items(b, member, member, `{generation: 3, resourceTemplateGeneration: 3, observedGeneration: 3, replicas: 1, updatedReplicas: 1, unavailableReplicas: 1}`)
	for _, bench := range []struct {
		name string
		run  func() error
	}{
		{"Replicas", func() error { _, _, err := i.Replicas(ctx, obj); return err }},
		{"ReviseReplica", func() error { _, err := i.ReviseReplica(ctx, obj, 7); return err }},
		{"ReflectStatus", func() error { _, err := i.ReflectStatus(ctx, obj); return err }},
		{"AggregateUnchanged3", func() error { _, err := i.AggregateStatus(ctx, obj, steady); return err }},
		{"AggregateChanged3", func() error { _, err := i.AggregateStatus(ctx, obj, changed); return err }},
		{"Health", func() error { _, err := i.Health(ctx, obj); return err }},
		{"Dependencies", func() error { _, err := i.Dependencies(ctx, obj); return err }},
		{"Retain", func() error { _, err := i.Retain(ctx, obj, obj); return err }},
		{"Prune", func() error { _, err := i.Prune(obj); return err }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
