package ledger

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// TestCapacityWithVolumes counts only nodes that can reach existing volumes, or those that storage classes create:
// one of ten nodes with four CPUs.
func TestCapacityWithVolumes(t *testing.T) {
	near := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"near"}}},
	}}}
	class := func(zone string, count int32) cellplanev1alpha1.LedgerNodeClass {
		return cellplanev1alpha1.LedgerNodeClass{
			Name: zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}, Allocatable: cpus(4), Nodes: []cellplanev1alpha1.LedgerNodes{{Count: count, Free: cpus(4)}},
		}
	}
	l := &cellplanev1alpha1.ClusterLedger{
		ObjectMeta: metav1.ObjectMeta{Name: "member"}, Classes: []cellplanev1alpha1.LedgerNodeClass{class("near", 1), class("far", 9)},
		Volumes:        []cellplanev1alpha1.LedgerVolumes{{Claims: []string{"ns/data"}, Reach: near}},
		StorageClasses: []cellplanev1alpha1.LedgerStorageClass{{Name: "local", Default: true, Reach: near}},
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpus(1)}}}}}
	mounting := func(claim string) *simulate.Pod {
		t.Helper()
		with := template.DeepCopy()
		with.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		pod, err := simulate.FromTemplate("ns", with)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	claiming := func(class *string) *simulate.Pod {
		t.Helper()
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{Template: template}}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}}}
		pod, err := simulate.FromStatefulSet("ns", set)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	for name, test := range map[string]struct {
		pod  *simulate.Pod
		want int64
	}{
		"bound claim":            {mounting("data"), 4},
		"unknown claim":          {mounting("other"), 40},
		"class with topology":    {claiming(ptr.To("local")), 4},
		"default class":          {claiming(nil), 4},
		"class without topology": {claiming(ptr.To("shared")), 40},
	} {
		if got := Open(l, nil, time.Now()).Capacity(test.pod).Total(); got != test.want {
			t.Errorf("%s: capacity for %d, want %d", name, got, test.want)
		}
	}
}
