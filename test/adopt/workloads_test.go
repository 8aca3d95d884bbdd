package adopt

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/testenv"
)

// prepare creates the custom kinds everywhere, and a policy in member2 that injects a sidecar.
func (m *many) prepare() {
	m.Helper()
	for _, gvk := range []schema.GroupVersionKind{cloneSetKind, widgetKind} {
		plural := strings.ToLower(gvk.Kind) + "s"
		schema := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
		for _, c := range slices.Concat([]client.WithWatch{m.federation}, slices.Collect(maps.Values(m.members))) {
			definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: gvk.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(gvk.Kind), Kind: gvk.Kind, ListKind: gvk.Kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: gvk.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
					Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				}},
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
			cloneSets, err := m.cloneSetsOf(ctx, cluster)
			if err != nil {
				return false, err
			}
			for i := range cloneSets {
				if err := cloneSetRolledOut(&cloneSets[i]); err != nil {
					return false, fmt.Errorf("%s in %s: %w", cloneSets[i].GetName(), cluster, err)
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
