package adopt

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	workloadCount = flag.Int("adopt.workloads", 12, "how many workloads are adopted")
	seed          = flag.Uint64("adopt.seed", 1, "seed of the differences between clusters")
)

const (
	manyNamespace = "legacy"
	updated       = "example.com/updated"
)

var (
	cloneSetKind = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}
	widgetKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	manyKinds    = []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		batchv1.SchemeGroupVersion.WithKind("Job"), cloneSetKind, widgetKind,
	}
)

// legacyWorkload is one workload that runs in some members, with differences.
type legacyWorkload struct {
	schema.GroupVersionKind
	name     string
	clusters map[string]client.Object
	// autoscaled is set if it has an autoscaler in members. It is updated through the federation, too.
	autoscaled bool
}

// many is the state of the test.
type many struct {
	*world
	workloads []legacyWorkload
	watches   []*podWatch
}

// Workloads of all kinds, different in each cluster, are adopted, updated once and released. On the way the command and an engine are killed, a member is
// paused and a cell emptied. Nothing is restarted before the update, and released objects are as before, but for the update. Workloads that a member would
// change, or does not let be changed, are left alone.
func testMany(w *world) {
	m := &many{world: w}
	w.Logf("%d workloads, seed %d", *workloadCount, *seed)
	m.prepare()
	m.generate(rand.New(rand.NewPCG(*seed, 0)))
	m.create()
	before := m.read()
	for _, cluster := range m.memberNames {
		m.watches = append(m.watches, watchPods(w.T, cluster, w.members[cluster]))
	}

	flags := []string{"-n", manyNamespace, "--resource", "clonesets.apps.kruise.io,widgets.example.com"}
	m.killedApply(flags)
	m.disturbedApply(flags)
	output, code := m.try(append([]string{"adopt", "apply"}, flags...)...)
	if code != 2 {
		m.Errorf("adopt apply ends with exit code %d", code)
	}
	for name, why := range stubborn {
		if line := fmt.Sprintf("Deployment %s/%s: not adopted: %s", manyNamespace, name, why); !strings.Contains(output, line) {
			m.Errorf("adopt apply does not say %q", line)
		}
		if err := m.federation.Get(m.Context(), client.ObjectKey{Namespace: manyNamespace, Name: name}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
			m.Errorf("there is a template of %s: %v", name, err)
		}
	}
	if adopted := strings.Count(output, "adopted\n") + strings.Count(output, "managed already\n"); adopted < *workloadCount {
		m.Errorf("adopt apply has adopted %d of %d workloads:\n%s", adopted, *workloadCount, output)
	}
	m.compare("after the adoption", before, m.read(), nil)
	for _, watch := range m.watches {
		watch.wantQuiet(m.T, nil)
	}

	// The deliberate update, of every third workload. Autoscalers of members go on meanwhile.
	m.scale(before)
	changed := m.update()
	m.run(append([]string{"adopt", "release"}, flags...)...)
	after := m.read()
	m.compare("after the release", before, after, changed)
	for key, obj := range after {
		for _, entries := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
			for name := range entries {
				if strings.Contains(name, "karmada.io/") || strings.Contains(name, "cellplane.io/") {
					m.Errorf("%s still has %s", key, name)
				}
			}
		}
	}
	for _, watch := range m.watches {
		watch.wantQuiet(m.T, changed)
	}
}

// prepare creates the custom kinds everywhere, and a policy in member2 that injects a sidecar.
func (m *many) prepare() {
	m.Helper()
	for _, gvk := range []schema.GroupVersionKind{cloneSetKind, widgetKind} {
		plural := strings.ToLower(gvk.Kind) + "s"
		schema := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
		for _, c := range slices.Concat([]client.WithWatch{m.federation}, slices.Collect(maps.Values(m.members))) {
			definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: gvk.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(gvk.Kind), Kind: gvk.Kind, ListKind: gvk.Kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: gvk.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}},
			}}
			if err := c.Create(m.Context(), definition); err != nil {
				m.Fatal(err)
			}
		}
	}
	meta := metav1.ObjectMeta{Name: "sidecars"}
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}
	for _, obj := range []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
				ResourceRules:  []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "sidecar", image: "registry.example/sidecar:1"}]}}}}`,
				},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}},
	} {
		if err := m.members["member2"].Create(m.Context(), obj); err != nil {
			m.Fatal(err)
		}
	}
	for _, cluster := range m.memberNames {
		if err := m.members[cluster].Create(m.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manyNamespace}}); err != nil {
			m.Fatal(err)
		}
	}
	testenv.Eventually(m.T, "the policy of member2 is in force", func(ctx context.Context) (bool, error) {
		probe := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: manyNamespace, Name: "probe", Labels: map[string]string{"inject": "yes"}}}
		probe.Spec.Selector, probe.Spec.Template = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}}, podTemplate("probe", 0, rand.New(rand.NewPCG(0, 0)))
		err := m.members["member2"].Create(ctx, probe, client.DryRunAll)
		return err == nil && len(probe.Spec.Template.Spec.Containers) == 2, err
	})
}

func podTemplate(name string, variant int, random *rand.Rand) corev1.PodTemplateSpec {
	container := corev1.Container{Name: "main", Image: fmt.Sprintf("registry.example/%s:%d", name, variant)}
	if random.IntN(2) == 0 {
		container.Env = []corev1.EnvVar{{Name: "VARIANT", Value: fmt.Sprint(variant)}}
	}
	if random.IntN(3) == 0 {
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(1+random.IntN(5)), resource.DecimalSI)}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
}

// generate decides about all workloads by a seed.
func (m *many) generate(random *rand.Rand) {
	m.Helper()
	for i := range *workloadCount {
		gvk := manyKinds[i%len(manyKinds)]
		l := legacyWorkload{GroupVersionKind: gvk, name: fmt.Sprintf("%s-%03d", strings.ToLower(gvk.Kind), i), clusters: map[string]client.Object{}}
		clusters := slices.Clone(m.memberNames)
		if random.IntN(3) == 0 {
			clusters = slices.Delete(clusters, 0, 1)
		}
		injected := gvk.Kind == "Deployment" && i%4 == 0
		divided := i%(2*12) == 0 // different numbers of replicas, so that the update is planned for all clusters together
		for position, cluster := range clusters {
			meta := metav1.ObjectMeta{Namespace: manyNamespace, Name: l.name, Labels: map[string]string{"app": l.name}}
			if injected {
				meta.Labels["inject"] = "yes"
			}
			if random.IntN(3) == 0 {
				meta.Annotations = map[string]string{"example.com/by-hand": cluster}
			}
			replicas := 1 + random.IntN(2)
			if divided {
				replicas = 1 + position
			}
			l.clusters[cluster] = newWorkload(m.T, gvk, meta, podTemplate(l.name, random.IntN(2), random), int32(replicas)) //nolint:gosec // it is small
		}
		m.workloads = append(m.workloads, l)
	}
}

func newWorkload(t *testing.T, gvk schema.GroupVersionKind, meta metav1.ObjectMeta, pod corev1.PodTemplateSpec, replicas int32) client.Object {
	t.Helper()
	selector := &metav1.LabelSelector{MatchLabels: pod.Labels}
	switch gvk.Kind {
	case "Deployment":
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: pod}}
	case "StatefulSet":
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: pod, PodManagementPolicy: appsv1.ParallelPodManagement}}
	case "DaemonSet":
		pod.Spec.NodeSelector = map[string]string{"example.com/nowhere": "true"} // four pods each would be most of the test
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}}
	case "Job":
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Labels = nil
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &replicas, Completions: ptr.To(replicas), Template: pod}}
	default:
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(gvk)
		obj.SetNamespace(meta.Namespace)
		obj.SetName(meta.Name)
		obj.SetLabels(meta.Labels)
		obj.SetAnnotations(meta.Annotations)
		text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]any{}
		for key, value := range pod.Labels {
			labels[key] = value
		}
		obj.Object["spec"] = map[string]any{"replicas": int64(replicas), "selector": map[string]any{"matchLabels": labels}, "template": text}
		return obj
	}
}

// create creates the workloads in members, an autoscaler for some, and waits until they run.
func (m *many) create() {
	m.Helper()
	for i := range m.workloads {
		l := &m.workloads[i]
		for cluster, obj := range l.clusters {
			if err := m.members[cluster].Create(m.Context(), obj, client.FieldOwner("kubectl-create")); err != nil {
				m.Fatalf("creating %s in %s: %v", l.name, cluster, err)
			}
			if l.autoscaled = l.Kind == "Deployment" && i%12 == 6; l.autoscaled {
				hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: manyNamespace, Name: l.name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					MaxReplicas: 5, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: l.name},
				}}
				if err := m.members[cluster].Create(m.Context(), hpa); err != nil {
					m.Fatal(err)
				}
			}
		}
	}
	for name := range stubborn {
		meta := metav1.ObjectMeta{Namespace: manyNamespace, Name: name, Labels: map[string]string{"app": name}}
		obj := newWorkload(m.T, manyKinds[0], meta, podTemplate(name, 0, rand.New(rand.NewPCG(0, 0))), 1)
		if err := m.members["member1"].Create(m.Context(), obj, client.FieldOwner("kubectl-create")); err != nil {
			m.Fatal(err)
		}
	}
	m.untilRolledOut()
	m.rejectAdoption()
}

// stubborn are Deployments of member1 that cannot be adopted, by what the command says of them.
var stubborn = map[string]string{
	"changed": "cluster member1 would change: spec.template.",
	"refused": "it cannot be rehearsed in cluster member1: deployments.apps \"refused\" is forbidden: ",
}

// rejectAdoption has member1 give a Deployment another pod template with any update, and refuse any update of another one.
func (m *many) rejectAdoption() {
	m.Helper()
	meta := metav1.ObjectMeta{Name: "change"}
	for _, obj := range []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{ResourceNames: []string{"changed"}, RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}}}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{priorityClassName: "system-node-critical"}}}}`},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}},
	} {
		if err := m.members["member1"].Create(m.Context(), obj); err != nil {
			m.Fatal(err)
		}
	}
	rehearse := func(ctx context.Context, name string) (*appsv1.Deployment, error) {
		d := &appsv1.Deployment{}
		if err := m.members["member1"].Get(ctx, client.ObjectKey{Namespace: manyNamespace, Name: name}, d); err != nil {
			return nil, err
		}
		return d, m.members["member1"].Update(ctx, d, client.DryRunAll)
	}
	testenv.Eventually(m.T, "member1 changes a Deployment", func(ctx context.Context) (bool, error) {
		d, err := rehearse(ctx, "changed")
		return err == nil && d.Spec.Template.Spec.PriorityClassName != "", err
	})
	testenv.Refuse(m.T, m.config("member1"), testenv.Refusal{
		Operation: admissionregistrationv1.Update, Group: "apps", Resource: "deployments", Name: "refused", Words: "it stays as it is",
		Probe: func(ctx context.Context) error {
			_, err := rehearse(ctx, "refused")
			return err
		},
	})
}

// untilRolledOut waits until all controllers in members are done.
func (m *many) untilRolledOut() {
	m.Helper()
	testenv.Eventually(m.T, "all workloads run", func(ctx context.Context) (bool, error) {
		for _, cluster := range m.memberNames {
			var deployments appsv1.DeploymentList
			var stateful appsv1.StatefulSetList
			var daemons appsv1.DaemonSetList
			var jobs batchv1.JobList
			for _, list := range []client.ObjectList{&deployments, &stateful, &daemons, &jobs} {
				if err := m.members[cluster].List(ctx, list, client.InNamespace(manyNamespace)); err != nil {
					return false, err
				}
			}
			for i := range deployments.Items {
				d := &deployments.Items[i]
				if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.AvailableReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas {
					return false, fmt.Errorf("deployment %s in %s: %+v", d.Name, cluster, s)
				}
			}
			for i := range stateful.Items {
				d := &stateful.Items[i]
				if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.AvailableReplicas != *d.Spec.Replicas || s.CurrentRevision != s.UpdateRevision {
					return false, fmt.Errorf("stateful set %s in %s: %+v", d.Name, cluster, s)
				}
			}
			for i := range daemons.Items {
				if d := &daemons.Items[i]; d.Status.ObservedGeneration != d.Generation {
					return false, fmt.Errorf("daemon set %s in %s: %+v", d.Name, cluster, d.Status)
				}
			}
			for i := range jobs.Items {
				if j := &jobs.Items[i]; j.Status.Active+j.Status.Succeeded == 0 {
					return false, fmt.Errorf("job %s in %s: %+v", j.Name, cluster, j.Status)
				}
			}
		}
		return true, nil
	})
}

// read returns all workloads in members, by cluster and name.
func (m *many) read() map[string]*unstructured.Unstructured {
	m.Helper()
	found := map[string]*unstructured.Unstructured{}
	for _, cluster := range m.memberNames {
		for _, gvk := range manyKinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			if err := m.members[cluster].List(m.Context(), list, client.InNamespace(manyNamespace)); err != nil {
				m.Fatal(err)
			}
			for i := range list.Items {
				found[cluster+" "+list.Items[i].GetName()] = &list.Items[i]
			}
		}
	}
	return found
}

// compare compares what users decide about objects. Those that were changed differ in their mark only.
func (m *many) compare(when string, before, after map[string]*unstructured.Unstructured, changed map[string]bool) {
	m.Helper()
	for key := range after {
		if before[key] == nil {
			m.Errorf("%s there is %s, which is new", when, key)
		}
	}
	for key, old := range before {
		now := after[key]
		if now == nil {
			m.Errorf("%s %s is gone", when, key)
			continue
		}
		want, got := usersPart(old), usersPart(now)
		if changed[now.GetName()] {
			mark(m.T, &unstructured.Unstructured{Object: want})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			m.Errorf("%s %s is another (-before +now):\n%s", when, key, diff)
		}
	}
}

// usersPart returns an object without what servers, controllers and federations keep in it.
func usersPart(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	delete(obj.Object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	clean := func(entries map[string]string) map[string]string {
		maps.DeleteFunc(entries, func(key, _ string) bool {
			return strings.Contains(key, "karmada.io/") || strings.Contains(key, "cellplane.io/") || key == "deployment.kubernetes.io/revision" || key == "deprecated.daemonset.template.generation"
		})
		if len(entries) == 0 {
			return nil
		}
		return entries
	}
	obj.SetLabels(clean(obj.GetLabels()))
	obj.SetAnnotations(clean(obj.GetAnnotations()))
	return obj.Object
}

// mark makes the deliberate update: an annotation of pods, or of the object where pods cannot be changed.
func mark(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	path := []string{"spec", "template", "metadata", "annotations", updated}
	if obj.GetKind() == "Job" {
		path = path[2:]
	}
	if err := unstructured.SetNestedField(obj.Object, "yes", path...); err != nil {
		t.Fatal(err)
	}
}

// scale scales workloads that have an autoscaler in one of their clusters, as the autoscaler does. Nobody but members decides about these replicas.
func (m *many) scale(before map[string]*unstructured.Unstructured) {
	m.Helper()
	for i := range m.workloads {
		l := &m.workloads[i]
		if !l.autoscaled {
			continue
		}
		cluster := slices.Min(slices.Collect(maps.Keys(l.clusters)))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: manyNamespace, Name: l.name}}
		scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
		if err := m.members[cluster].SubResource("scale").Patch(m.Context(), d, scale, client.WithSubResourceBody(&autoscalingv1.Scale{}), client.FieldOwner("kube-controller-manager")); err != nil {
			m.Fatal(err)
		}
		if err := unstructured.SetNestedField(before[cluster+" "+l.name].Object, int64(3), "spec", "replicas"); err != nil {
			m.Fatal(err)
		}
	}
}

// update updates every third workload through the federation, and waits for all clusters.
func (m *many) update() (changed map[string]bool) {
	m.Helper()
	changed = map[string]bool{}
	for i := 0; i < len(m.workloads); i++ {
		l := &m.workloads[i]
		if i%3 != 0 && i%7 != 0 || l.GroupVersionKind == cloneSetKind { // no controller of CloneSets runs here, and a rollout waits for it
			continue
		}
		changed[l.name] = true
		testenv.Eventually(m.T, "the template of "+l.name+" is changed", func(ctx context.Context) (bool, error) {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(l.GroupVersionKind)
			if err := m.federation.Get(ctx, client.ObjectKey{Namespace: manyNamespace, Name: l.name}, obj); err != nil {
				return false, err
			}
			mark(m.T, obj)
			err := m.federation.Update(ctx, obj)
			return err == nil, err
		})
	}
	testenv.Eventually(m.T, "all clusters have the update", func(context.Context) (bool, error) {
		for key, obj := range m.read() {
			if !changed[obj.GetName()] {
				continue
			}
			path := []string{"spec", "template", "metadata", "annotations", updated}
			if obj.GetKind() == "Job" {
				path = path[2:]
			}
			if value, _, _ := unstructured.NestedString(obj.Object, path...); value != "yes" {
				return false, fmt.Errorf("%s is not updated", key)
			}
		}
		return true, nil
	})
	m.untilRolledOut()
	return changed
}

// killedApply kills the command in the middle of adopting workloads.
func (m *many) killedApply(flags []string) {
	m.Helper()
	cmd := m.command(m.Context(), append([]string{"adopt", "apply", "--parallel", "2"}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	first := ""
	for lines := bufio.NewScanner(stdout); !strings.HasSuffix(first, ": adopted") && lines.Scan(); {
		first = lines.Text()
	}
	if err := cmd.Process.Kill(); err != nil {
		m.Fatalf("the command ended with %q: %v", first, err)
	}
	_ = cmd.Wait() // it was killed
}

// disturbedApply adopts a third of the workloads, and then kills an engine, pauses a member and empties a cell. The command may fail.
func (m *many) disturbedApply(flags []string) {
	m.Helper()
	parallel := strconv.Itoa(min(16, max(1, *workloadCount/3))) // some must be left when the first third is done
	cmd := m.command(m.Context(), append([]string{"adopt", "apply", "--timeout", "30s", "--parallel", parallel}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for adopted := 0; adopted < *workloadCount/3 && lines.Scan(); {
		if strings.HasSuffix(lines.Text(), ": adopted") {
			adopted++
		}
	}
	paused := m.pid("member2/kube-apiserver")
	if paused == 0 {
		m.Fatalf("member2 has no API server: %+v", m.report())
	}
	if err := syscall.Kill(paused, syscall.SIGSTOP); err != nil {
		m.Fatal(err)
	}
	resume := sync.OnceValue(func() error { return syscall.Kill(paused, syscall.SIGCONT) })
	defer func() { _ = resume() }()
	const engine = "cell-a/engine"
	killed := m.pid(engine)
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		m.Fatalf("killing %s: %v: %+v", engine, err, m.report())
	}
	testenv.Eventually(m.T, "the engine runs again", func(context.Context) (bool, error) {
		now := m.pid(engine)
		return now != 0 && now != killed, nil
	})
	if err := resume(); err != nil {
		m.Fatal(err)
	}
	m.run("cells", "drain", "cell-b")
	for lines.Scan() { // the command ends by itself
		continue
	}
	_ = cmd.Wait()
}

// podWatch sees every pod, ReplicaSet and ControllerRevision that appears or disappears in a member, and every restart.
type podWatch struct {
	cluster string
	mu      sync.Mutex
	seen    map[types.UID]bool
	// events are by the name of the workload.
	events map[string][]string
}

func watchPods(t *testing.T, cluster string, member client.WithWatch) *podWatch {
	t.Helper()
	w := &podWatch{cluster: cluster, seen: map[types.UID]bool{}, events: map[string][]string{}}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &appsv1.ReplicaSetList{}, &appsv1.ControllerRevisionList{}} {
		if err := member.List(t.Context(), list, client.InNamespace(manyNamespace)); err != nil {
			t.Fatal(err)
		}
		version := list.GetResourceVersion()
		w.note(t, list)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.follow(ctx, t, member, list, version)
		}()
		t.Cleanup(func() {
			cancel()
			<-done
		})
	}
	return w
}

// note records the objects that are there already.
func (w *podWatch) note(t *testing.T, list client.ObjectList) {
	items, err := runtimeItems(list)
	if err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range items {
		w.seen[obj.GetUID()] = true
	}
}

// follow watches until the end of the test. A watch that ends is continued where it was.
func (w *podWatch) follow(ctx context.Context, t *testing.T, member client.WithWatch, list client.ObjectList, version string) {
	for ctx.Err() == nil {
		stream, err := member.Watch(ctx, list, client.InNamespace(manyNamespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}})
		if err != nil {
			select { // the member may be paused
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		for event := range stream.ResultChan() {
			obj, ok := event.Object.(client.Object)
			if err := apierrors.FromObject(event.Object); event.Type == watch.Error && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				break // the connection has ended
			}
			if !ok || event.Type == watch.Error {
				t.Errorf("watching %T in %s: %v", list, w.cluster, event.Object)
				stream.Stop()
				return
			}
			version = obj.GetResourceVersion()
			w.handle(event.Type, obj)
		}
		stream.Stop()
	}
}

func (w *podWatch) handle(kind watch.EventType, obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case watch.Added:
		if !w.seen[obj.GetUID()] {
			w.add(obj, "appeared")
		}
		w.seen[obj.GetUID()] = true
	case watch.Deleted:
		w.add(obj, "disappeared")
	case watch.Modified:
		if pod, is := obj.(*corev1.Pod); is {
			for i := range pod.Status.ContainerStatuses {
				if pod.Status.ContainerStatuses[i].RestartCount > 0 {
					w.add(obj, "was restarted")
				}
			}
		}
	}
}

// add records an event. The names of what belongs to a workload begin with its name.
func (w *podWatch) add(obj client.Object, what string) {
	parts := strings.SplitN(obj.GetName(), "-", 3)
	name := strings.Join(parts[:min(2, len(parts))], "-")
	w.events[name] = append(w.events[name], fmt.Sprintf("%T %s %s", obj, obj.GetName(), what))
}

// wantQuiet checks that nothing has happened, except to the workloads that were changed.
func (w *podWatch) wantQuiet(t *testing.T, changed map[string]bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, events := range w.events {
		if !changed[name] {
			t.Errorf("in %s: %v", w.cluster, events)
		}
	}
}

func runtimeItems(list client.ObjectList) (items []client.Object, err error) {
	switch list := list.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	case *appsv1.ReplicaSetList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	case *appsv1.ControllerRevisionList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	default:
		err = fmt.Errorf("%T is not watched", list)
	}
	return items, err
}
