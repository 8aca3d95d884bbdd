package adopt_test

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/adopt"
)

// effect is what becomes of a group whose clusters differ in a field.
type effect int

const (
	// overridden fields get an override. Those of pods are among them: pods would be restarted if one changed.
	overridden effect = iota
	// fixed fields cannot be changed once an object exists.
	fixed
	// granting fields decide about rights, which an override must not change.
	granting
	// ownOfCluster fields are set by each cluster.
	ownOfCluster
	// scaling fields have the number of replicas.
	scaling
)

// variable is a field that has one of some values in each cluster. It is absent if the value is nil.
type variable struct {
	path   string
	effect effect
	values []any
}

// variableKind is a kind whose objects differ in some fields only.
type variableKind struct {
	apiVersion, kind string
	clusterScoped    bool
	fields           []variable
}

// tree is an object in JSON.
type tree = map[string]any

func labelSelector(labels tree) tree { return tree{"matchLabels": labels} }

func container(name, image string) tree { return tree{"name": name, "image": image} }

func claim(class any, storage string) tree {
	return tree{"metadata": tree{"name": "data"}, "spec": tree{"resources": tree{"requests": tree{"storage": storage}}, "storageClassName": class}}
}

var (
	labelled  = variable{"metadata.labels.team", overridden, []any{nil, "a", "b"}}
	annotated = variable{"metadata.annotations.note", overridden, []any{nil, "a", "b"}}
	replicas  = variable{"spec.replicas", scaling, []any{int64(0), int64(1), int64(2)}}
	selectors = []any{
		labelSelector(tree{"app": "it"}), labelSelector(tree{"app": "it", "tier": "web"}),
		tree{"matchExpressions": []any{tree{"key": "app", "operator": "Exists"}}},
	}
	selector  = variable{"spec.selector", fixed, selectors}
	restarted = variable{"spec.template.metadata.annotations.restarted", overridden, []any{nil, "monday", "friday"}}
	pods      = variable{"spec.template.spec", overridden, []any{
		tree{"containers": []any{container("main", "web:1")}}, tree{"containers": []any{container("main", "web:2")}},
		tree{"containers": []any{container("main", "web:1"), container("sidecar", "proxy:1")}}, tree{"containers": []any{container("main", "web:1")}, "priorityClassName": "high"},
	}}
)

var variableKinds = []variableKind{
	{apiVersion: "apps/v1", kind: "Deployment", fields: []variable{labelled, annotated, replicas, selector, restarted, pods, {"spec.paused", overridden, []any{nil, true}}}},
	{apiVersion: "apps/v1", kind: "StatefulSet", fields: []variable{
		labelled, annotated, replicas, selector, restarted, pods,
		{"spec.serviceName", fixed, []any{nil, "it", "other"}},
		{"spec.podManagementPolicy", fixed, []any{"OrderedReady", "Parallel"}},
		{"spec.volumeClaimTemplates", fixed, []any{nil, []any{claim("fast", "1Gi")}, []any{claim("slow", "1Gi")}, []any{claim("slow", "2Gi")}, []any{claim(nil, "1Gi"), claim(nil, "1Gi")}}},
		{"spec.updateStrategy", overridden, []any{tree{"type": "OnDelete"}, tree{"type": "RollingUpdate", "rollingUpdate": tree{"partition": int64(1)}}}},
	}},
	{apiVersion: "apps/v1", kind: "DaemonSet", fields: []variable{labelled, selector, restarted, pods, {"spec.minReadySeconds", overridden, []any{nil, int64(5)}}}},
	{apiVersion: "batch/v1", kind: "Job", fields: []variable{
		labelled, pods,
		{"spec.manualSelector", overridden, []any{true}},
		{"spec.selector", fixed, []any{nil, labelSelector(tree{"app": "it"}), labelSelector(tree{"app": "other"})}},
		{"spec.completionMode", fixed, []any{"NonIndexed", "Indexed"}},
		{"spec.parallelism", overridden, []any{int64(0), int64(1), int64(2)}},
		{"spec.completions", overridden, []any{int64(1), int64(3)}},
		{"spec.backoffLimit", overridden, []any{int64(1), int64(6)}},
		{"spec.ttlSecondsAfterFinished", ownOfCluster, []any{nil, int64(1), int64(2)}},
	}},
	{apiVersion: "batch/v1", kind: "CronJob", fields: []variable{
		labelled, {"spec.schedule", overridden, []any{"0 * * * *", "5 * * * *"}}, {"spec.jobTemplate.spec.completionMode", overridden, []any{nil, "Indexed"}},
	}},
	{apiVersion: "v1", kind: "Service", fields: []variable{
		labelled, annotated,
		{"spec.clusterIP", ownOfCluster, []any{"10.0.0.1", "10.0.0.2"}},
		{"spec.healthCheckNodePort", ownOfCluster, []any{nil, int64(31000), int64(31001)}},
		{"spec.type", overridden, []any{"ClusterIP", "LoadBalancer"}},
		{"spec.selector", overridden, []any{nil, tree{"app": "it"}, tree{"app": "other"}}},
		{"spec.ipFamilies", overridden, []any{[]any{"IPv4"}, []any{"IPv6"}, []any{"IPv4", "IPv6"}}},
		{"spec.ports", overridden, []any{[]any{tree{"name": "web", "port": int64(80)}}, []any{tree{"name": "web", "port": int64(81)}}}},
	}},
	{apiVersion: "v1", kind: "Service", fields: []variable{
		labelled, {"spec.clusterIP", fixed, []any{nil, "None"}}, {"spec.ports", overridden, []any{[]any{tree{"port": int64(80)}}, []any{tree{"port": int64(81)}}}},
	}},
	{apiVersion: "v1", kind: "PersistentVolumeClaim", fields: []variable{
		labelled, annotated,
		{"spec.accessModes", fixed, []any{[]any{"ReadWriteOnce"}, []any{"ReadWriteMany"}, []any{"ReadWriteOnce", "ReadWriteMany"}}},
		{"spec.storageClassName", fixed, []any{nil, "fast", "slow"}},
		{"spec.volumeMode", fixed, []any{"Filesystem", "Block"}},
		{"spec.selector", fixed, []any{nil, labelSelector(tree{"app": "it"})}},
		{"spec.resources.requests.storage", overridden, []any{"1Gi", "2Gi"}},
		{"spec.volumeName", ownOfCluster, []any{nil, "pv-1", "pv-2"}},
	}},
	{apiVersion: "v1", kind: "ConfigMap", fields: []variable{labelled, {"data", overridden, []any{nil, tree{"a": "b"}, tree{"a": "c", "d": "e"}}}, {"immutable", overridden, []any{nil, true}}}},
	{apiVersion: "v1", kind: "Secret", fields: []variable{
		labelled, {"type", fixed, []any{"Opaque", "kubernetes.io/tls"}}, {"data", overridden, []any{nil, tree{"a": "YQ=="}}}, {"immutable", overridden, []any{nil, true}},
	}},
	{apiVersion: "v1", kind: "Secret", fields: []variable{
		annotated, {"type", overridden, []any{"bootstrap.kubernetes.io/token"}}, {"data", granting, []any{tree{"token": "YQ=="}, tree{"token": "Yg=="}}},
	}},
	{apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", fields: []variable{
		labelled, annotated, {"rules", granting, []any{nil, []any{tree{"verbs": []any{"get"}}}, []any{tree{"verbs": []any{"*"}}}}},
	}},
	{apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", fields: []variable{
		labelled, {"roleRef", fixed, []any{tree{"kind": "Role", "name": "a"}, tree{"kind": "ClusterRole", "name": "a"}, tree{"kind": "Role", "name": "b"}}},
		{"subjects", granting, []any{nil, []any{tree{"kind": "User", "name": "a"}}, []any{tree{"kind": "User", "name": "b"}}}},
	}},
	{apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", clusterScoped: true, fields: []variable{annotated, {"rules", granting, []any{nil, []any{tree{"verbs": []any{"get"}}}}}}},
	{apiVersion: "example.com/v1", kind: "Fleet", clusterScoped: true, fields: []variable{annotated, {"spec.size", overridden, []any{int64(1), int64(2)}}}},
	{apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", fields: []variable{labelled, replicas, pods, {"spec.selector", overridden, selectors}}},
	// The fields that cannot be changed are those of a kind of one API group. Others have kinds of the same name.
	{apiVersion: "example.com/v1", kind: "Deployment", fields: []variable{labelled, {"spec.selector", overridden, selectors}}},
	{apiVersion: "example.com/v1", kind: "Job", fields: []variable{labelled, {"spec.completionMode", overridden, []any{nil, "Indexed"}}, {"spec.selector", overridden, []any{nil, "it"}}}},
	{apiVersion: "example.com/v1", kind: "Secret", fields: []variable{labelled, {"type", overridden, []any{"a", "b"}}}},
}

// values are those of the fields of an object.
type values []any

// draw returns the values in one to three clusters. Most are the same in all of them.
func (k *variableKind) draw(t *rapid.T) []values {
	common := make(values, len(k.fields))
	for i, field := range k.fields {
		common[i] = rapid.SampledFrom(field.values).Draw(t, field.path)
	}
	drawn := make([]values, rapid.IntRange(1, 3).Draw(t, "clusters"))
	for cluster := range drawn {
		drawn[cluster] = slices.Clone(common)
		for i, field := range k.fields {
			if rapid.IntRange(0, 7).Draw(t, "differs") == 0 {
				drawn[cluster][i] = rapid.SampledFrom(field.values).Draw(t, field.path)
			}
		}
	}
	return drawn
}

// object returns the object with these values.
func (k *variableKind) object(t *rapid.T, of values) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: tree{"apiVersion": k.apiVersion, "kind": k.kind, "metadata": tree{"name": "it", "uid": "uid", "resourceVersion": "1"}}}
	if !k.clusterScoped {
		obj.SetNamespace("shop")
	}
	for i, field := range k.fields {
		if of[i] == nil {
			continue
		}
		if err := unstructured.SetNestedField(obj.Object, runtime.DeepCopyJSONValue(of[i]), strings.Split(field.path, ".")...); err != nil {
			t.Fatal(err)
		}
	}
	return obj
}

// group returns the objects of clusters a, b and c.
func (k *variableKind) group(t *rapid.T, drawn ...values) adopt.Group {
	var objects []*unstructured.Unstructured
	for _, of := range drawn {
		objects = append(objects, k.object(t, of))
	}
	return group(objects...)
}

// kept returns what comes under the federation: if clusters have different numbers of replicas, objects without any do not.
func (k *variableKind) kept(drawn []values) []values {
	scaled := slices.IndexFunc(k.fields, func(field variable) bool { return field.effect == scaling })
	if scaled < 0 || !slices.ContainsFunc(drawn, func(of values) bool { return of[scaled] != drawn[0][scaled] }) {
		return drawn
	}
	return slices.DeleteFunc(slices.Clone(drawn), func(of values) bool { return of[scaled] == int64(0) })
}

// differing returns the paths of the fields with these effects in which some objects differ.
func (k *variableKind) differing(drawn []values, effects ...effect) (paths []string) {
	for i, field := range k.fields {
		if slices.Contains(effects, field.effect) && slices.ContainsFunc(drawn, func(of values) bool { return !reflect.DeepEqual(of[i], drawn[0][i]) }) {
			paths = append(paths, field.path)
		}
	}
	return paths
}
