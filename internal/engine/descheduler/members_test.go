package descheduler

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestUnreachableMember checks that after the first timeout no other request waits for the member.
func TestUnreachableMember(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	namespace := server.Namespace(t)
	labels := map[string]string{"app": "web"}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app"}}}},
	}}
	if _, err := server.Client(t).AppsV1().Deployments(namespace).Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	view, err := cell.New(server.RESTConfig(), cell.Options{Name: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "absent"}, Spec: clusterv1alpha1.ClusterSpec{APIEndpoint: "https://127.0.0.1:1"}}
	absent, err := fleet.OpenMember(t.Context(), cluster, &corev1.Secret{Data: map[string][]byte{fleet.MemberTokenKey: []byte("token")}})
	if err != nil {
		t.Fatal(err)
	}
	defer absent.Close()
	pending := InMembers(view, func(string) (*fleet.Member, error) { return absent, nil })
	b := &workv1alpha2.ResourceBinding{}
	b.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "web"}
	if _, err := pending(t.Context(), "absent", b, time.Minute); err == nil {
		t.Fatal("an unreachable member returned a count")
	}
	known := absent.Broken()
	if known == nil {
		t.Fatal("the next request would wait again")
	}
	if _, err := pending(t.Context(), "absent", b, time.Minute); !errors.Is(err, known) {
		t.Errorf("the member was queried again: %v", err)
	}
}
