package clustergateway_test

import (
	"context"
	"encoding/json"
	"regexp"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testWorkloadMetrics pushes metrics as the agent of a member, and reads them.
func testWorkloadMetrics(t *testing.T, w *world) {
	namespace := w.namespace(t, "workloadmetrics")
	agent := w.reporter(t, "member1")
	w.autoscale(t, namespace, "web")
	web := metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	item := metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: "of-web", CreationTimestamp: metav1.Now()},
		Workload:   web, Timestamp: metav1.Now(), Pods: metricsv1alpha1.PodCounts{Total: 3, Ready: 2},
		Metrics: []metricsv1alpha1.MetricSums{{Resource: corev1.ResourceCPU, Measured: metricsv1alpha1.MeasuredPods{Pods: 2, Usage: resource.MustParse("250m")}}},
	}
	spec := metricsv1alpha1.MetricsReportSpec{Session: "s", Begin: true, End: true, Items: []metricsv1alpha1.WorkloadMetrics{item}}
	testenv.Eventually(t, "the report is taken, and says what an autoscaler wants", func(ctx context.Context) (bool, error) {
		spec.Sequence++
		answer, err := send(ctx, agent, "member1", spec)
		if err != nil || answer.Status.Wanted == nil || len(answer.Status.Wanted.Workloads) != 1 {
			return false, err
		}
		wanted := answer.Status.Wanted.Workloads[0]
		return !answer.Status.Resend && wanted.WorkloadReference == web && wanted.Namespace == namespace &&
			len(wanted.Metrics) == 1 && wanted.Metrics[0] == (metricsv1alpha1.WantedMetric{Resource: corev1.ResourceMemory, Container: "main"}), nil
	})

	w.refusesForgedMetrics(t, agent, spec)

	// Every replica and both surfaces have them.
	for _, r := range w.replicas {
		config := w.directConfig(t, r)
		w.hasMetrics(t, config, namespace)
	}
	federation := rest.CopyConfig(w.gateway.Config(t))
	federation.Host += "/federation"
	w.hasMetrics(t, w.gateway.Config(t), namespace)
	w.hasMetrics(t, federation, namespace)
	printed := w.kubectl.Must(t, "get", "workloadmetrics", "-n", namespace)
	if !regexp.MustCompile(`^NAME +CLUSTER +PODS +CPU +MEMORY +AGE\nweb-deployment.member1 +member1 +2/3 +250m +<unknown> +\S+\n$`).MatchString(printed) {
		t.Errorf("kubectl get workloadmetrics printed:\n%s", printed)
	}

	objects, err := dynamic.NewForConfig(w.gateway.Config(t))
	check(t, err)
	watching, err := objects.Resource(views.Metrics).Namespace(namespace).Watch(t.Context(), metav1.ListOptions{})
	check(t, err)
	defer watching.Stop()
	if event := <-watching.ResultChan(); event.Type != watch.Added {
		t.Fatalf("the first event is %v", event)
	}
	item.Pods.Ready = 3
	change := metricsv1alpha1.MetricsReportSpec{Session: "s", Sequence: spec.Sequence + 1, Items: []metricsv1alpha1.WorkloadMetrics{item}}
	answer, err := send(t.Context(), agent, "member1", change)
	check(t, err)
	if answer.Status.Resend {
		t.Error("the change does not continue the report before")
	}
	event := <-watching.ResultChan()
	if ready, _, _ := unstructured.NestedInt64(event.Object.(*unstructured.Unstructured).Object, "pods", "ready"); event.Type != watch.Modified || ready != 3 {
		t.Errorf("after the change: %v", event)
	}
	if err := objects.Resource(views.Metrics).Namespace(namespace).Delete(t.Context(), "web-deployment.member1", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) && !apierrors.IsNotFound(err) {
		t.Errorf("deleting: %v", err)
	}
}

// refusesForgedMetrics checks that an agent cannot report about another cluster, though its role does not say so.
func (w *world) refusesForgedMetrics(t *testing.T, agent rest.Interface, spec metricsv1alpha1.MetricsReportSpec) {
	t.Helper()
	if _, err := send(t.Context(), agent, "member2", spec); !apierrors.IsForbidden(err) {
		t.Errorf("a report about another cluster: %v, want 403", err)
	}
	forged := *spec.DeepCopy()
	forged.Sequence++
	forged.Items[0].Cluster = "member2"
	if _, err := send(t.Context(), agent, "member1", forged); !apierrors.IsBadRequest(err) {
		t.Errorf("an item of another cluster: %v, want 400", err)
	}
	if _, err := send(t.Context(), clientFor(t, w.gateway.ConfigFor(t, "frank")).Discovery().RESTClient(), "member1", spec); !apierrors.IsForbidden(err) {
		t.Errorf("a report of a user: %v, want 403", err)
	}
}

// hasMetrics checks that an API has the metrics of one workload.
func (w *world) hasMetrics(t *testing.T, config *rest.Config, namespace string) {
	t.Helper()
	objects, err := dynamic.NewForConfig(config)
	check(t, err)
	list, err := objects.Resource(views.Metrics).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: names.ClusterLabel + "=member1"})
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].GetName() != "web-deployment.member1" || list.Items[0].GetAnnotations()[names.ClusterAnnotation] != "member1" {
		t.Errorf("%s has %v", config.Host, list.Items)
	}
	one, err := objects.Resource(views.Metrics).Namespace(namespace).Get(t.Context(), "web-deployment.member1", metav1.GetOptions{})
	check(t, err)
	if cluster, _, _ := unstructured.NestedString(one.Object, "cluster"); cluster != "member1" || one.GetKind() != "WorkloadMetrics" {
		t.Errorf("%s has %v", config.Host, one)
	}
}

// reporter returns a client with the identity of a member's agent. Its role lets it report about any cluster.
func (w *world) reporter(t *testing.T, member string) rest.Interface {
	t.Helper()
	hub := clientFor(t, w.config(t, w.Hub))
	meta := metav1.ObjectMeta{Name: names.AgentUser(member)}
	create(t, hub.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{metricsv1alpha1.GroupName}, Resources: []string{"metricsreports"}, Verbs: []string{"create"}},
	}})
	create(t, hub.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: meta.Name}},
	})
	return clientFor(t, w.gateway.ConfigFor(t, meta.Name)).Discovery().RESTClient()
}

// autoscale creates an autoscaler in the federation that needs the memory of a container.
func (w *world) autoscale(t *testing.T, namespace, deployment string) {
	t.Helper()
	average := resource.MustParse("100Mi")
	create(t, w.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: deployment},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment}, MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
				Name: corev1.ResourceMemory, Container: "main", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &average},
			}}},
		},
	})
}

// send sends a report about a cluster.
func send(ctx context.Context, client rest.Interface, cluster string, spec metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReport, error) {
	body, err := json.Marshal(metricsv1alpha1.MetricsReport{Spec: spec})
	if err != nil {
		return nil, err
	}
	data, err := client.Post().AbsPath(views.ReportsPath+cluster).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	answer := &metricsv1alpha1.MetricsReport{}
	return answer, json.Unmarshal(data, answer)
}
