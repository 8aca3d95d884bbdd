package agent

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

// metricsAreReported checks that the agents of both members report what their clusters know of the pods of a workload.
func (w *world) metricsAreReported() {
	name := workloads[0]
	metrics := func(cluster string) *metricsv1alpha1.WorkloadMetrics {
		return &metricsv1alpha1.WorkloadMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.WorkloadMetricsName("Deployment", name, cluster)}}
	}
	for _, cluster := range []string{pulled, pushed} {
		until(w, "the agent of "+cluster+" reports that pods have no metrics", w.gateway, metrics(cluster), func(m *metricsv1alpha1.WorkloadMetrics) bool {
			return m.Cluster == cluster && m.Pods == (metricsv1alpha1.PodCounts{Total: 2, Ready: 2}) && len(m.Metrics) == 2 && m.Metrics[0].Failure == "no pod has a sample"
		})
	}
	w.measure(w.member)
	w.measure(w.other)
	w.use(name, "250m")
	for _, cluster := range []string{pulled, pushed} {
		until(w, "the agent of "+cluster+" reports the metrics of pods", w.gateway, metrics(cluster), func(m *metricsv1alpha1.WorkloadMetrics) bool {
			cpu := m.Metrics[0]
			return cpu.Resource == corev1.ResourceCPU && cpu.Measured.Pods == 2 && cpu.Measured.Usage.String() == "500m" && len(cpu.Missing) == 0
		})
	}
	printed := w.run("kubectl", "get", "workloadmetrics", "-n", namespace)
	for _, cluster := range []string{pulled, pushed} {
		if !strings.Contains(printed, name+"-deployment."+cluster) {
			w.Errorf("the metrics of %s are not shown:\n%s", cluster, printed)
		}
	}
}

// measure lets a member store metrics of pods, as custom resources.
func (w *world) measure(member client.Client) {
	w.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "pods.metrics.k8s.io", Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: v1beta1.GroupName, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Singular: "podmetrics", Kind: "PodMetrics", ListKind: "PodMetricsList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	if err := member.Create(w.Context(), definition); err != nil {
		w.Fatal(err)
	}
}

// use sets the metrics of the pods that a workload has in the members.
func (w *world) use(workload, cpu string) {
	w.Helper()
	w.useIn(w.member, workload, cpu)
	w.useIn(w.other, workload, cpu)
}

func (w *world) useIn(member client.Client, workload, cpu string) {
	w.Helper()
	pods := &corev1.PodList{}
	if err := member.List(w.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{"app": workload}); err != nil {
		w.Fatal(err)
	}
	for _, pod := range pods.Items {
		testenv.Eventually(w, "the member has metrics", func(ctx context.Context) (bool, error) {
			measured := &v1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}}
			_, err := controllerutil.CreateOrUpdate(ctx, member, measured, func() error {
				// A sample of a pod that starts counts only if its window began after the pod was ready.
				measured.Timestamp, measured.Window = metav1.NewTime(time.Now().Add(time.Hour)), metav1.Duration{Duration: time.Second}
				measured.Containers = []v1beta1.ContainerMetrics{{Name: "web", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")}}}
				return nil
			})
			return err == nil, err
		})
	}
}
