package columns_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/columns"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// pod returns a pod with two containers, changed as the test case needs.
func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: ago(2 * time.Hour)},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "a", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "b", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

func TestCells(t *testing.T) {
	for name, test := range map[string]struct {
		object runtime.Object
		want   string
	}{
		"a pod":    {pod(nil), "[web member1 2/2 Running 0 120m 10.0.0.1 node <none> <none>]"},
		"no phase": {pod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending}; p.Spec.NodeName = "" }), "[web member1 0/2 Pending 0 120m <none> <none> <none> <none>]"},
		"a crash": {pod(func(p *corev1.Pod) {
			s := &p.Status.ContainerStatuses[1]
			s.Ready, s.State, s.RestartCount = false, waiting("CrashLoopBackOff"), 3
			s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(time.Minute)}}
		}), "[web member1 1/2 CrashLoopBackOff 3 (60s ago) 120m 10.0.0.1 node <none> <none>]"},
		"an exit code": {pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].State = false, ended(2, "")
		}), "[web member1 1/2 ExitCode:2 0 120m 10.0.0.1 node <none> <none>]"},
		"completed beside one that runs": {pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].State = false, ended(0, "Completed")
		}), "[web member1 1/2 NotReady 0 120m 10.0.0.1 node <none> <none>]"},
		"initializing": {pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "j"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", State: ended(0, "")}, {Name: "j", State: waiting("PodInitializing")}}
			p.Status.ContainerStatuses = nil
		}), "[web member1 0/2 Init:1/2 0 120m 10.0.0.1 node <none> <none>]"},
		"an init container that failed": {pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", State: ended(1, "Error")}}
			p.Status.ContainerStatuses = nil
		}), "[web member1 0/2 Init:Error 0 120m 10.0.0.1 node <none> <none>]"},
		"a sidecar": {pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", Ready: true, Started: ptr.To(true)}}
		}), "[web member1 3/3 Running 0 120m 10.0.0.1 node <none> <none>]"},
		"deleted": {pod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(ago(0)) }), "[web member1 2/2 Terminating 0 120m 10.0.0.1 node <none> <none>]"},
		"lost":    {pod(func(p *corev1.Pod) { p.DeletionTimestamp, p.Status.Reason = ptr.To(ago(0)), "NodeLost" }), "[web member1 2/2 Unknown 0 120m 10.0.0.1 node <none> <none>]"},
		"evicted": {pod(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses = corev1.PodFailed, "Evicted", nil
		}), "[web member1 0/2 Evicted 0 120m 10.0.0.1 node <none> <none>]"},
		"a node": {&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: ago(72 * time.Hour), Labels: map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": ""}},
			Spec:       corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1"}, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.1.1"}},
			},
		}, "[n member1 Ready,SchedulingDisabled edge,worker 3d v1 10.1.1.1 <none> <unknown> <unknown> <unknown>]"},
		"an event": {&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e"}, Type: "Warning", Reason: "Because", Message: "words", Count: 2, FirstTimestamp: ago(time.Hour), LastTimestamp: ago(time.Minute),
			InvolvedObject: corev1.ObjectReference{Kind: "ReplicaSet", Name: "web"}, Source: corev1.EventSource{Component: "c", Host: "h"},
		}, "[60s member1 Warning Because replicaset/web  c, h words 60m 2 e]"},
		"a new event": {&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e"}, EventTime: metav1.NewMicroTime(now.Add(-time.Minute)), ReportingController: "c", InvolvedObject: corev1.ObjectReference{Name: "web"},
		}, "[60s member1   web  c  60s 1 e]"},
		"workload metrics": {&metricsv1alpha1.WorkloadMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: "web-deployment.member1", CreationTimestamp: ago(time.Hour)},
			Pods:       metricsv1alpha1.PodCounts{Total: 3, Ready: 2},
			Metrics: []metricsv1alpha1.MetricSums{
				{Resource: corev1.ResourceCPU, Container: "a", Measured: metricsv1alpha1.MeasuredPods{Pods: 2, Usage: resource.MustParse("1")}},
				{Resource: corev1.ResourceCPU, Measured: metricsv1alpha1.MeasuredPods{Pods: 2, Usage: resource.MustParse("1.5")}},
				{Resource: corev1.ResourceMemory, Measured: metricsv1alpha1.MeasuredPods{Pods: 2, Usage: resource.MustParse("3Gi")}},
			},
		}, "[web-deployment.member1 member1 2/3 1500m 3072Mi 60m]"},
		"workload metrics without samples": {&metricsv1alpha1.WorkloadMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: "web-deployment.member1", CreationTimestamp: ago(time.Hour)},
			Pods:       metricsv1alpha1.PodCounts{Total: 3},
			Metrics:    []metricsv1alpha1.MetricSums{{Resource: corev1.ResourceCPU, Unready: metricsv1alpha1.UnreadyPods{Pods: 3}}},
		}, "[web-deployment.member1 member1 0/3 <unknown> <unknown> 60m]"},
		"a replica set": {&appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "rs"},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "i"}, {Name: "y", Image: "j"}}}}},
			Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1},
		}, "[rs member1 3 2 1 <unknown> x,y i,j a=b]"},
	} {
		kind := map[string]string{"*v1.Pod": "Pod", "*v1.Node": "Node", "*v1.Event": "Event", "*v1.ReplicaSet": "ReplicaSet", "*v1alpha1.WorkloadMetrics": "WorkloadMetrics"}[fmt.Sprintf("%T", test.object)]
		printer := columns.For(kind)
		cells := printer.Cells(test.object, "member1", now)
		if got := fmt.Sprint(cells); got != test.want {
			t.Errorf("%s: the row is\n%s, want\n%s", name, got, test.want)
		}
		if len(cells) != len(printer.Columns) {
			t.Errorf("%s: there are %d cells in %d columns", name, len(cells), len(printer.Columns))
		}
	}
}
