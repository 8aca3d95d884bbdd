package install

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/federate"
	"github.com/cellplane/cellplane/internal/testenv"
)

// samples are values that people use.
var samples = map[string]string{
	"defaults": ``,
	"one node": oneNode(),
	"highly available": `
certificates: {issuer: builtin}
cells: [{name: cell-a}, {name: cell-b, etcd: {replicas: 5, storageClassName: fast}}, {name: cell-c, apiServer: {replicas: 4}, engine: {extraArgs: [--descheduler]}}]
gateway:
  replicas: 5
  url: https://federation.example.com
  hosts: [10.1.2.3, federation.internal]
  service: {type: LoadBalancer, annotations: {example.com/scheme: internal}, loadBalancerClass: example.com/lb}
  from: [{ipBlock: {cidr: 10.0.0.0/8}}]
  autoscaling: {enabled: true, maxReplicas: 20}
images: {prefix: registry.example.com/cp, pullSecrets: [registry], cellplane: {digest: "sha256:` + strings.Repeat("0a", 32) + `"}}
networkPolicies: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
topologySpread: {whenUnsatisfiable: DoNotSchedule}
podAnnotations: {example.com/team: platform}
nodeSelector: {example.com/pool: control}
tolerations: [{key: dedicated, operator: Exists}]
`,
	"monitored": monitored,
	"with snapshots": `
snapshots: {enabled: true, storageClassName: slow}
`,
	"with snapshots on a volume of one's own": `
snapshots: {enabled: true, schedule: "0 * * * *", keep: 48, existingClaim: backup}
`,
	"with Cluster API": clusterAPI,
	"without network policies and priority classes": `
networkPolicies: {enabled: false}
priorityClasses: {create: false, storeName: system-cluster-critical}
`,
}

func oneNode() string {
	data, err := os.ReadFile("../../deploy/charts/examples/one-node.yaml")
	if err != nil {
		panic(err)
	}
	return string(data)
}

func values(t testing.TB, text string) map[string]any {
	t.Helper()
	parsed := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func rendered(t testing.TB, release Release) []*unstructured.Unstructured {
	t.Helper()
	all, err := render(release, "Helm")
	if err != nil {
		t.Fatal(err)
	}
	return all.Objects
}

// TestObjectsAreValid lets a real API server check every object, and every pod by the Pod Security Standard "restricted".
func TestObjectsAreValid(t *testing.T) {
	member := testenv.SharedMembers(t)[0]
	cluster, err := Connect(member.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := member.Namespace(t)
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := member.Client(t).CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{} // objects that were checked with another sample
	for name, text := range samples {
		pods := 0
		for _, object := range rendered(t, Release{Name: namespace, Namespace: namespace, Values: values(t, text)}) {
			if ofOperator(object) {
				continue
			}
			template := podOf(t, object)
			if template != nil && object.GetKind() != "Pod" {
				pods++
			}
			data, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if known[string(data)] {
				continue
			}
			known[string(data)] = true
			options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
			switch object.GetKind() { // pods refer to these
			case "PriorityClass":
				t.Cleanup(func() {
					if err := cluster.delete(context.WithoutCancel(t.Context()), object); err != nil {
						t.Error(err)
					}
				})
				options.DryRun = nil
			case "ServiceAccount":
				options.DryRun = nil
			}
			if err := cluster.apply(t.Context(), object, options); err != nil {
				t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
			if template == nil || object.GetKind() == "Pod" {
				continue
			}
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Name = "checked"
			if _, err := member.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: options.DryRun, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: the pod of %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
		if pods < 10 {
			t.Errorf("%s: there are only %d pods", name, pods)
		}
	}
	t.Run("pods that are not restricted are refused", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1.PodSpec{ServiceAccountName: namespace, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err := member.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			t.Errorf("got %v", err)
		}
	})
}

// podOf returns the pod of a workload, nil if it has none.
func podOf(t testing.TB, object *unstructured.Unstructured) *corev1.PodTemplateSpec {
	t.Helper()
	convert := func(into any) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	switch object.GetKind() {
	case "Deployment":
		var workload appsv1.Deployment
		convert(&workload)
		return &workload.Spec.Template
	case "StatefulSet":
		var workload appsv1.StatefulSet
		convert(&workload)
		for _, claim := range workload.Spec.VolumeClaimTemplates { // as the controller does
			source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + workload.Name + "-0"}}
			workload.Spec.Template.Spec.Volumes = append(workload.Spec.Template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: source})
		}
		return &workload.Spec.Template
	case "Job":
		var workload batchv1.Job
		convert(&workload)
		return &workload.Spec.Template
	case "CronJob":
		var workload batchv1.CronJob
		convert(&workload)
		return &workload.Spec.JobTemplate.Spec.Template
	case "Pod":
		var pod corev1.Pod
		convert(&pod)
		return &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	}
	return nil
}

// TestBadValues finds mistakes in values before anything is applied.
func TestBadValues(t *testing.T) {
	for text, words := range map[string]string{
		`cells: []`:                                    "minItems",
		`cells: [{name: hub}]`:                         "cells/0/name",
		`cells: [{name: A}]`:                           "does not match pattern",
		`cells: [{name: cell-a}, {nme: b}]`:            "nme",
		`hub: {etcd: {replicas: 2}}`:                   "hub/etcd/replicas",
		`gateways: {}`:                                 "gateways",
		`certificates: {issuer: self}`:                 "issuer",
		`gateway: {url: "http://federation.example"}`:  "gateway/url",
		`gateway: {replicas: 0}`:                       "gateway/replicas",
		`images: {etcd: {digest: "sha256:short"}}`:     "digest",
		`cells: [{name: cell-a}, {name: cell-a}]`:      "two cells are called cell-a",
		`topologySpread: {whenUnsatisfiable: Perhaps}`: "whenUnsatisfiable",
	} {
		_, err := Render(Release{Name: "cp", Namespace: "fed", Values: values(t, text)})
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", text, err, words)
		}
	}
	if _, err := Render(Release{Name: "cp", Namespace: "fed", KubeVersion: "v1.28.0"}); err == nil || !strings.Contains(err.Error(), "v1.28.0") {
		t.Errorf("an old cluster: %v", err)
	}
}

// TestReleasesAreApart expects that a release does not touch one of the same name in another namespace.
func TestReleasesAreApart(t *testing.T) {
	one, other := Release{Name: "cp", Namespace: "one"}, Release{Name: "cp", Namespace: "other"}
	names := map[string]bool{}
	for _, object := range rendered(t, one) {
		if object.GetNamespace() == "" {
			names[object.GetName()] = true
		}
		if elsewhere(object, one) || elsewhere(object, other) != (object.GetNamespace() == "") {
			t.Errorf("%s %s is not known as one of its release", object.GetKind(), object.GetName())
		}
	}
	if len(names) == 0 {
		t.Error("no object is without a namespace")
	}
	for _, object := range rendered(t, other) {
		if object.GetNamespace() == "" && names[object.GetName()] {
			t.Errorf("both have the %s %s", object.GetKind(), object.GetName())
		}
	}
}

// TestIssuersAgree compares what the built-in issuer writes with the Certificates for cert-manager, and with what pods mount.
func TestIssuersAgree(t *testing.T) {
	builtin := map[string]federate.Certificate{}
	authorities := map[string]bool{}
	mounted := map[string]bool{}
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed"}) {
		if object.GetName() == "cp-federation" {
			config := federation(t, object)
			for _, certificate := range config.Certificates {
				builtin[certificate.Secret] = certificate
			}
			for _, name := range config.Authorities {
				authorities[name] = true
			}
		}
		if template := podOf(t, object); template != nil {
			for _, volume := range template.Spec.Volumes {
				if volume.Projected == nil {
					continue
				}
				for _, source := range volume.Projected.Sources {
					if source.Secret != nil {
						mounted[source.Secret.Name] = true
					}
				}
			}
		}
	}
	for name := range mounted {
		if builtin[name].Secret == "" && !authorities[name] {
			t.Errorf("Secret %s is mounted and not issued", name)
		}
	}
	seen := 0
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, `certificates: {issuer: cert-manager}`)}) {
		if object.GetName() == "cp-federation" {
			if config := federation(t, object); len(config.Certificates)+len(config.Authorities) > 0 {
				t.Error("with cert-manager, the built-in issuer issues certificates too")
			}
		}
		if object.GetKind() != "Certificate" {
			continue
		}
		seen++
		secret, _, _ := unstructured.NestedString(object.Object, "spec", "secretName")
		if authorities[secret] {
			continue
		}
		want := builtin[secret]
		name, _, _ := unstructured.NestedString(object.Object, "spec", "commonName")
		issuer, _, _ := unstructured.NestedString(object.Object, "spec", "issuerRef", "name")
		names, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
		addresses, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "ipAddresses")
		groups, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "subject", "organizations")
		usages, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "usages")
		if hosts := slices.Concat(names, addresses); name != want.CommonName || issuer != want.Authority || !slices.Equal(groups, want.Organizations) ||
			!slices.Equal(slices.Sorted(slices.Values(hosts)), slices.Sorted(slices.Values(want.Hosts))) ||
			slices.Contains(usages, "server auth") != (len(want.Hosts) > 0) || slices.Contains(usages, "client auth") != (want.Client || len(want.Hosts) == 0) {
			t.Errorf("Certificate %s differs from %+v: %v", object.GetName(), want, object.Object["spec"])
		}
	}
	if seen != len(builtin)+len(authorities) {
		t.Errorf("there are %d Certificates, want %d", seen, len(builtin)+len(authorities))
	}
}

// federation reads the configuration of `cellplane federate` from its ConfigMap.
func federation(t testing.TB, object *unstructured.Unstructured) *federate.Config {
	t.Helper()
	text, _, _ := unstructured.NestedString(object.Object, "data", "federation.yaml")
	config, err := federate.ParseConfig([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return config
}

// TestDocumentedSize compares the requests with the size for which they are documented.
func TestDocumentedSize(t *testing.T) {
	type request struct{ replicas, memoryMiB int64 }
	got := map[string]request{}
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed"}) {
		template := podOf(t, object)
		if template == nil || object.GetKind() == "Job" || object.GetKind() == "CronJob" || object.GetKind() == "Pod" {
			continue
		}
		replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		requests := template.Spec.Containers[0].Resources.Requests
		if requests.Cpu().MilliValue() != 500 {
			t.Errorf("%s requests %s cores", object.GetName(), requests.Cpu())
		}
		got[object.GetName()] = request{replicas, requests.Memory().Value() >> 20}
	}
	for _, part := range planned(t) {
		for _, name := range workloadsOf(part) {
			if want := (request{int64(part.Replicas), int64(part.MemoryMiB)}); got[name] != want {
				t.Errorf("%s has replicas and memory %v, want %v", name, got[name], want)
			}
			delete(got, name)
		}
	}
	if len(got) > 0 {
		t.Errorf("these have no size: %v", got)
	}
}

// TestNewCellRestartsNothing expects that a cell that is added or removed changes the pods of no other part.
func TestNewCellRestartsNothing(t *testing.T) {
	pods := func(text string) map[string]string {
		found := map[string]string{}
		for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, text)}) {
			if kind := object.GetKind(); kind != "Deployment" && kind != "StatefulSet" {
				continue
			}
			template, err := yaml.Marshal(podOf(t, object))
			if err != nil {
				t.Fatal(err)
			}
			found[object.GetName()] = string(template)
		}
		return found
	}
	after := pods(`cells: [{name: cell-a}, {name: cell-b}, {name: cell-c}]`)
	for name, before := range pods(`cells: [{name: cell-a}, {name: cell-b}]`) {
		if after[name] != before {
			t.Errorf("a new cell restarts %s", name)
		}
	}
	// A new address of the gateways is one for those that use it.
	for name, moved := range pods(`gateway: {service: {port: 8443}}`) {
		uses := strings.HasSuffix(name, "-engine") || name == "cp-cluster-gateway" || name == "cp-federation-controllers"
		if changed := moved != pods(``)[name]; changed != uses {
			t.Errorf("a new port of the gateways restarts %s: %v, want %v", name, changed, uses)
		}
	}
}
