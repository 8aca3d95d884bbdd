package main

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

const (
	benchNamespace = "bench"
	containerName  = "app"
	firstImage     = "registry.example/team/app:1"
	secondImage    = "registry.example/team/app:2"
)

// everywhere propagates all Deployments of the benchmark to all members.
func everywhere() *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: "everywhere"},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		},
	}
}

// deployment has the size of a small service. Without replicas it is paused, so that members do nothing.
func deployment(name string, replicas int32) *appsv1.Deployment {
	selector := map[string]string{"app.kubernetes.io/name": name}
	labels := maps.Clone(selector)
	labels["app.kubernetes.io/part-of"] = "shop"
	labels["tier"] = "backend"
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: benchNamespace, Name: name, Labels: labels,
			Annotations: map[string]string{"example.com/team": "payments", "example.com/owner": "bench"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Paused:   replicas == 0,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers: []corev1.Container{{
						Name:  containerName,
						Image: firstImage,
						Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
						Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "eu-1"}, {Name: "DB_HOST", Value: "db.example.com"}},
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
						}},
					}},
				},
			},
		},
	}
}

func imageOf(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// settled reports whether all replicas of a Deployment are of the current template and ready, and no others are left.
func settled(d *appsv1.Deployment, replicas int32) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.Replicas == replicas && s.UpdatedReplicas == replicas && s.ReadyReplicas == replicas
}
