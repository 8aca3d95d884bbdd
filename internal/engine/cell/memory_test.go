package cell

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
)

// The memory of a small Deployment in three members: its template, its binding and its Works, whose manifests have been
// compared and forgotten. An engine may take 20 KiB for it in all, including garbage.
func TestMemoryPerWorkload(t *testing.T) {
	const n, most = 500, 10 << 10
	c, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	kind := &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true}
	templates := newTemplateStore(kind)
	decodeWork, decodeBinding := decodeItem(&workv1alpha1.WorkList{}), decodeItem(&workv1alpha2.ResourceBindingList{})
	set := func(sink fleet.Sink, decode fleet.Decode, document, number string) {
		obj, err := decode([]byte(strings.NewReplacer("NUMBER", number).Replace(document)))
		if err != nil {
			t.Fatal(err)
		}
		sink.Set(obj)
	}
	add := func(number string) {
		set(templates, fleet.DecodeUnstructured, templateDocument, number)
		set(c.bindings, decodeBinding, bindingDocument, number)
		for _, member := range []string{"member1", "member2", "member3"} {
			set(c.Works, decodeWork, strings.ReplaceAll(workDocument, "MEMBER", member), number)
			c.Manifests.Forget(Key{Namespace: "karmada-es-" + member, Name: "shop-" + number + "-6c757ff454"})
		}
	}
	add("first") // allocates what all have in common

	before := inUse()
	for i := range n {
		add(fmt.Sprintf("%05d", i))
	}
	each := (inUse() - before) / n
	t.Logf("%d bytes per workload", each)
	if each > most {
		t.Errorf("%d bytes per workload, want at most %d", each, most)
	}
	if templates.Len() != n+1 || c.bindings.Len() != n+1 || c.Works.Len() != 3*(n+1) {
		t.Errorf("%d templates, %d bindings and %d Works are cached", templates.Len(), c.bindings.Len(), c.Works.Len())
	}
	runtime.KeepAlive(c)
}

func inUse() int64 {
	runtime.GC()
	runtime.GC() // frees what only weak references held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const (
	templateDocument = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"shop-NUMBER","namespace":"bench","uid":"280bee15-e9af-4075-bd25-NUMBER","resourceVersion":"397","generation":2,"creationTimestamp":"2026-01-01T00:00:00Z",
		"labels":{"app.kubernetes.io/name":"shop-NUMBER","app.kubernetes.io/part-of":"shop","propagationpolicy.karmada.io/permanent-id":"05cbb576-f7e5-41d5-b8d9-aa4885e09760","tier":"backend"},
		"annotations":{"example.com/owner":"bench","example.com/team":"payments","propagationpolicy.karmada.io/name":"everywhere","propagationpolicy.karmada.io/namespace":"bench"},
		"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:example.com/owner":{}}},"f:spec":{"f:replicas":{}}}}]},
		"spec":{"replicas":1,"selector":{"matchLabels":{"app.kubernetes.io/name":"shop-NUMBER"}},"template":{"metadata":{"labels":{"app.kubernetes.io/name":"shop-NUMBER","app.kubernetes.io/part-of":"shop","tier":"backend"}},
		"spec":{"containers":[{"name":"app","image":"registry.example/team/app:1","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"REGION","value":"eu-1"},{"name":"DB_HOST","value":"db.example.com"}],
		"resources":{"requests":{"cpu":"10m","memory":"16Mi"}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":0,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}},
		"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"progressDeadlineSeconds":600},
		"status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}}`

	bindingDocument = `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"name":"shop-NUMBER-deployment","namespace":"bench","uid":"478947d9-0846-4d32-8c39-NUMBER","resourceVersion":"1010","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z",
		"annotations":{"policy.karmada.io/applied-placement":"{\"clusterTolerations\":[]}","propagationpolicy.karmada.io/name":"everywhere","propagationpolicy.karmada.io/namespace":"bench"},"finalizers":["karmada.io/binding-controller"],
		"labels":{"propagationpolicy.karmada.io/permanent-id":"05cbb576-f7e5-41d5-b8d9-aa4885e09760","resourcebinding.karmada.io/permanent-id":"684dc7ab-5ef8-4566-b5d8-NUMBER"},
		"managedFields":[{"manager":"cellplane-engine","operation":"Update","apiVersion":"work.karmada.io/v1alpha2","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:clusters":{}}}}],
		"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"Deployment","name":"shop-NUMBER","uid":"280bee15-e9af-4075-bd25-NUMBER"}]},
		"spec":{"clusters":[{"name":"member1","replicas":1},{"name":"member2","replicas":1},{"name":"member3","replicas":1}],"conflictResolution":"Abort","placement":{},"replicas":1,"replicaRequirements":{"namespace":"bench","resourceRequest":{"cpu":"10m","memory":"16Mi"}},
		"resource":{"apiVersion":"apps/v1","kind":"Deployment","name":"shop-NUMBER","namespace":"bench","resourceVersion":"397","uid":"280bee15-e9af-4075-bd25-NUMBER"},"schedulerName":"default-scheduler"},
		"status":{"aggregatedStatus":[{"applied":true,"clusterName":"member1","health":"Healthy","status":{"availableReplicas":1,"generation":1,"observedGeneration":1,"readyReplicas":1,"replicas":1,"resourceTemplateGeneration":2,"updatedReplicas":1}},
		{"applied":true,"clusterName":"member2","health":"Healthy","status":{"availableReplicas":1,"generation":1,"observedGeneration":1,"readyReplicas":1,"replicas":1,"resourceTemplateGeneration":2,"updatedReplicas":1}},
		{"applied":true,"clusterName":"member3","health":"Healthy","status":{"availableReplicas":1,"generation":1,"observedGeneration":1,"readyReplicas":1,"replicas":1,"resourceTemplateGeneration":2,"updatedReplicas":1}}],
		"conditions":[{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"Binding has been scheduled successfully.","reason":"Success","status":"True","type":"Scheduled"},
		{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"All works have been successfully applied","reason":"FullyAppliedSuccess","status":"True","type":"FullyApplied"}],"lastScheduledTime":"2026-01-01T00:00:00Z","schedulerObservedGeneration":1}}`

	workDocument = `{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"name":"shop-NUMBER-6c757ff454","namespace":"karmada-es-MEMBER","uid":"4697052a-b708-470c-MEMBER-NUMBER","resourceVersion":"822","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z",
		"annotations":{"resourcebinding.karmada.io/name":"shop-NUMBER-deployment","resourcebinding.karmada.io/namespace":"bench","work.karmada.io/conflict-resolution":"abort"},"finalizers":["karmada.io/execution-controller"],
		"labels":{"cellplane.io/slot":"10318","resourcebinding.karmada.io/permanent-id":"684dc7ab-5ef8-4566-b5d8-NUMBER","work.karmada.io/permanent-id":"10897120-82db-450e-MEMBER-NUMBER"},
		"managedFields":[{"manager":"cellplane-engine","operation":"Update","apiVersion":"work.karmada.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:workload":{".":{},"f:manifests":{}}}}}]},
		"spec":{"workload":{"manifests":[` + templateDocument + `]}},
		"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"Work is being dispatched to member clusters.","reason":"Dispatching","status":"True","type":"Dispatching"},
		{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"Manifest has been successfully applied","reason":"AppliedSuccessful","status":"True","type":"Applied"},
		{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"All objects exist in the member cluster","reason":"ObjectsExist","status":"True","type":"Available"},
		{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"No further change is expected","reason":"AtRest","status":"False","type":"Progressing"},
		{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"The objects agree with their manifests","reason":"ObjectsAgree","status":"False","type":"Degraded"}],
		"manifestStatuses":[{"health":"Healthy","identifier":{"group":"apps","kind":"Deployment","name":"shop-NUMBER","namespace":"bench","ordinal":0,"resource":"deployments","version":"v1"},"status":{"availableReplicas":1,"generation":1,"observedGeneration":1,"readyReplicas":1,"replicas":1,"resourceTemplateGeneration":2,"updatedReplicas":1}}]}}`
)
