package native

import (
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

func TestDependencies(t *testing.T) {
	const spec = `{containers: [{name: a, envFrom: [{configMapRef: {name: c}}]}], volumes: [{persistentVolumeClaim: {claimName: data}}, {persistentVolumeClaim: {claimName: shared}}]}`
	const all = "v1/ConfigMap ns/c v1/PersistentVolumeClaim ns/data v1/PersistentVolumeClaim ns/shared"
	for _, tc := range []struct{ document, want string }{
		{`{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: ` + spec + `}}}`, all},
		{`{apiVersion: apps/v1, kind: ReplicaSet, spec: {template: {spec: ` + spec + `}}}`, all},
		{`{apiVersion: apps/v1, kind: DaemonSet, spec: {template: {spec: ` + spec + `}}}`, all},
		{`{apiVersion: batch/v1, kind: Job, spec: {template: {spec: ` + spec + `}}}`, all},
		{`{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: ` + spec + `}}}}}`, all},
		{`{apiVersion: v1, kind: Pod, spec: ` + spec + `}`, all},
		{`{apiVersion: apps/v1, kind: StatefulSet, spec: {volumeClaimTemplates: [{metadata: {name: data}}], template: {spec: ` + spec + `}}}`, "v1/ConfigMap ns/c v1/PersistentVolumeClaim ns/shared"},
		{`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: t}, {hosts: [x]}], defaultBackend: {service: {name: d}}, rules: [{host: h}, {http: {paths: [{backend: {service: {name: s}}}, {backend: {resource: {name: r}}}]}}]}}`, "v1/Secret ns/t v1/Service ns/d v1/Service ns/s"},
		{`{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport}`, "v1/Service ns/derived-web discovery.k8s.io/v1/EndpointSlice ns/ kubernetes.io/service-name=derived-web"},
	} {
		obj := fixture.Object(t, tc.document)
		obj.SetNamespace("ns")
		obj.SetName("web")
		unchanged := fixture.Frozen(t, obj)
		refs, err := kindOf(t, obj).Dependencies(obj)
		if err != nil {
			t.Fatal(err)
		}
		unchanged()
		var got []string
		for _, ref := range refs {
			got = append(got, ref.APIVersion+"/"+ref.Kind, ref.Namespace+"/"+ref.Name)
			if ref.LabelSelector != nil {
				for key, value := range ref.LabelSelector.MatchLabels {
					got = append(got, key+"="+value)
				}
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", obj.GetKind(), got, tc.want)
		}
	}
}

func TestPrune(t *testing.T) {
	const meta = `
  creationTimestamp: null
  deletionGracePeriodSeconds: 1
  deletionTimestamp: x
  finalizers: [x]
  generation: 1
  managedFields: [x]
  ownerReferences: [x]
  resourceVersion: x
  selfLink: x
  uid: x`
	cases := map[string]struct{ template, want string }{
		"anything":             {"{kind: Foo, apiVersion: a/v1, spec: {x: 1}, status: {x: 1}}", "{kind: Foo, apiVersion: a/v1, spec: {x: 1}, metadata: {name: x, annotations: {keep: me}}}"},
		"deployment":           {"{kind: Deployment, apiVersion: apps/v1, metadata: {annotations: {deployment.kubernetes.io/revision: '1', deployment.kubernetes.io/revision-history: '1'}}}", "{kind: Deployment, apiVersion: apps/v1, metadata: {name: x, annotations: {keep: me}}}"},
		"deployment of others": {"{kind: Deployment, apiVersion: other/v1, metadata: {annotations: {deployment.kubernetes.io/revision: '1'}}}", "{kind: Deployment, apiVersion: other/v1, metadata: {name: x, annotations: {keep: me, deployment.kubernetes.io/revision: '1'}}}"},
		"job": {"{kind: Job, apiVersion: batch/v1, spec: {ttlSecondsAfterFinished: 1, selector: {matchLabels: {controller-uid: u, batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {app: x, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}}}}",
			"{kind: Job, apiVersion: batch/v1, metadata: {name: x, annotations: {keep: me}}, spec: {template: {metadata: {labels: {app: x}}}}}"},
		"job that selects by itself": {"{kind: Job, apiVersion: batch/v1, spec: {ttlSecondsAfterFinished: 1, manualSelector: true, selector: {matchLabels: {controller-uid: u}}}}",
			"{kind: Job, apiVersion: batch/v1, metadata: {name: x, annotations: {keep: me}}, spec: {manualSelector: true, selector: {matchLabels: {controller-uid: u}}}}"},
		"token secret":     {"{kind: Secret, apiVersion: v1, type: kubernetes.io/service-account-token, data: {token: x}, metadata: {annotations: {kubernetes.io/service-account.uid: u, kubernetes.io/service-account.name: sa}}}", "{kind: Secret, apiVersion: v1, type: kubernetes.io/service-account-token, metadata: {name: x, annotations: {keep: me, kubernetes.io/service-account.name: sa}}}"},
		"secret":           {"{kind: Secret, apiVersion: v1, type: Opaque, data: {token: x}}", "{kind: Secret, apiVersion: v1, type: Opaque, data: {token: x}, metadata: {name: x, annotations: {keep: me}}}"},
		"account":          {"{kind: ServiceAccount, apiVersion: v1, secrets: [{name: x-token-a}, {name: x-token-b}, {name: mine}]}", "{kind: ServiceAccount, apiVersion: v1, secrets: [{name: mine}], metadata: {name: x, annotations: {keep: me}}}"},
		"account's tokens": {"{kind: ServiceAccount, apiVersion: v1, secrets: [{name: x-token-a}, {name: x-token-b}]}", "{kind: ServiceAccount, apiVersion: v1, metadata: {name: x, annotations: {keep: me}}}"},
		"service":          {"{kind: Service, apiVersion: v1, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: []}}", "{kind: Service, apiVersion: v1, metadata: {name: x, annotations: {keep: me}}, spec: {ports: []}}"},
		"headless service": {"{kind: Service, apiVersion: v1, spec: {clusterIP: None, clusterIPs: [None]}}", "{kind: Service, apiVersion: v1, metadata: {name: x, annotations: {keep: me}}, spec: {clusterIP: None, clusterIPs: [None]}}"},
		"claim":            {"{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {annotations: {volume.kubernetes.io/selected-node: node1}}}", "{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: x, annotations: {keep: me}}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := fixture.Object(t, tc.template)
			metadata, _ := template.Object["metadata"].(map[string]any)
			if metadata == nil {
				metadata = map[string]any{}
				template.Object["metadata"] = metadata
			}
			for key, value := range fixture.Value(t, meta).(map[string]any) {
				metadata[key] = value
			}
			annotations := template.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["keep"] = "me"
			template.SetAnnotations(annotations)
			template.SetName("x")
			unchanged := fixture.Frozen(t, template)
			got, err := Prune(template)
			if err != nil {
				t.Fatal(err)
			}
			unchanged()
			fixture.Equal(t, any(got.Object), fixture.Value(t, tc.want))
		})
	}
}
