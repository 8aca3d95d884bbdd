package usage

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/api/names"
)

// workload is a federated workload in the cluster.
type workload struct {
	key        workloadKey
	apiVersion string
	uid        types.UID
	created    metav1.Time
	selector   *metav1.LabelSelector
}

// followed is a kind of workload.
type followed struct {
	informer cache.SharedIndexInformer
	workload func(object any) (workload, bool)
}

// followWorkloads returns informers for the workloads that the federation manages.
func followWorkloads(client kubernetes.Interface) []followed {
	managed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = names.ManagedLabel + "=" + names.ManagedValue
	}))
	return []followed{
		{managed.Apps().V1().Deployments().Informer(), func(object any) (workload, bool) {
			d, ok := object.(*appsv1.Deployment)
			if !ok {
				return workload{}, false
			}
			return workloadOf("Deployment", d, d.Spec.Selector), true
		}},
		{managed.Apps().V1().StatefulSets().Informer(), func(object any) (workload, bool) {
			s, ok := object.(*appsv1.StatefulSet)
			if !ok {
				return workload{}, false
			}
			return workloadOf("StatefulSet", s, s.Spec.Selector), true
		}},
	}
}

func workloadOf(kind string, object metav1.Object, selector *metav1.LabelSelector) workload {
	return workload{
		key:        workloadKey{appsv1.SchemeGroupVersion.WithKind(kind).GroupKind(), object.GetNamespace(), object.GetName()},
		apiVersion: appsv1.SchemeGroupVersion.String(), uid: object.GetUID(), created: object.GetCreationTimestamp(), selector: selector,
	}
}

// followPods returns an informer for all pods, which keeps only what counts.
func followPods(client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	pods := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	if err := pods.SetTransform(slim); err != nil {
		return nil, fmt.Errorf("following the pods of the cluster: %w", err)
	}
	return pods, nil
}

// slim returns a pod with what its sums depend on: labels, requests and readiness.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{Containers: slimContainers(pod.Spec.Containers), InitContainers: slimContainers(pod.Spec.InitContainers), Resources: pod.Spec.Resources},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, StartTime: pod.Status.StartTime},
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime}}
		}
	}
	return kept, nil
}

func slimContainers(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		kept = append(kept, corev1.Container{Name: c.Name, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}, RestartPolicy: c.RestartPolicy})
	}
	return kept
}

// podIndex finds pods by a label: there may be many workloads and pods in a namespace.
type podIndex map[podLabel][]*corev1.Pod

// podLabel is a label of a pod; without a key it stands for all pods of a namespace.
type podLabel struct{ namespace, key, value string }

func newPodIndex(all []any) podIndex {
	index := podIndex{}
	for _, object := range all {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}
		index[podLabel{namespace: pod.Namespace}] = append(index[podLabel{namespace: pod.Namespace}], pod)
		for key, value := range pod.Labels {
			index[podLabel{pod.Namespace, key, value}] = append(index[podLabel{pod.Namespace, key, value}], pod)
		}
	}
	return index
}

// selected returns the pods that a selector selects.
func (i podIndex) selected(namespace string, by *metav1.LabelSelector) []*corev1.Pod {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil || selector.Empty() {
		return nil // an API server accepts no such workload
	}
	candidates := i[podLabel{namespace: namespace}]
	for key, value := range by.MatchLabels {
		if some := i[podLabel{namespace, key, value}]; len(some) < len(candidates) {
			candidates = some
		}
	}
	var pods []*corev1.Pod
	for _, pod := range candidates {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}
