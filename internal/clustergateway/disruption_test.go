package clustergateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// followPods runs three pods in each member and starts informers for them.
func (w *world) followPods(t *testing.T, namespace string) []*follower {
	t.Helper()
	for i := range 6 {
		w.run(t, i%2, namespace, fmt.Sprintf("pod-%d", i), nil)
	}
	for i := range 6 {
		w.eventuallyPod(t, "all pods run", namespace, fmt.Sprintf("pod-%d", i), running)
	}
	followers := w.follow(t, namespace)
	for _, f := range followers {
		f.eventually(t, "it has all pods", func(held map[string]metav1.Object) bool { return len(held) == 6 })
	}
	return followers
}

// changed labels a pod in its member, and waits until all informers have seen it.
func (w *world) changed(t *testing.T, followers []*follower, namespace string, pod int, value string) {
	t.Helper()
	name := fmt.Sprintf("pod-%d", pod)
	testenv.Eventually(t, "the pod is labelled", func(ctx context.Context) (bool, error) {
		_, err := w.members[pod%2].CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"changed":%q}}}`, value), metav1.PatchOptions{})
		return err == nil, err
	})
	for _, f := range followers {
		f.eventually(t, "it has seen the change", func(held map[string]metav1.Object) bool {
			return held[name] != nil && held[name].GetLabels()["changed"] == value
		})
	}
}

// testReplicaSwitch stops the replica that clients use.
func testReplicaSwitch(t *testing.T, w *world) {
	namespace := w.namespace(t, "replica-switch")
	followers := w.followPods(t, namespace)
	for i, r := range w.replicas {
		if i > 0 {
			break // one of them has to stay
		}
		r.stop()
	}
	w.changed(t, followers, namespace, 0, "after-a-replica-left")
	for _, f := range followers {
		f.expectDeletions(t, 0)
	}
}

// testMemberRestart restarts the API server of a member.
func testMemberRestart(t *testing.T, w *world) {
	namespace := w.namespace(t, "member-restart")
	followers := w.followPods(t, namespace)
	server, err := w.Members[0].Process(kubebin.KubeAPIServer)
	check(t, err)
	check(t, server.Kill()) // it is restarted
	testenv.Eventually(t, "the API server is back", func(ctx context.Context) (bool, error) {
		err := server.Check(ctx)
		return err == nil, err
	})
	w.changed(t, followers, namespace, 0, "after-the-restart")
	w.changed(t, followers, namespace, 1, "elsewhere")
	for _, f := range followers {
		f.expectDeletions(t, 0)
	}
}

// testPartition pauses the API server of a member.
func testPartition(t *testing.T, w *world) {
	namespace := w.namespace(t, "partition")
	followers := w.followPods(t, namespace)
	server, err := w.Members[1].Process(kubebin.KubeAPIServer)
	check(t, err)
	check(t, server.Pause())
	resumed := false
	defer func() {
		if !resumed {
			_ = server.Resume() // the test failed early
		}
	}()
	client, heard := w.warned(t)
	testenv.Eventually(t, "the pods of the member are stale", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		if len(list.Items) == 3 {
			t.Fatal("the pods of the member were removed before they were stale")
		}
		stale := map[string]int{} // a busy member may be late for a probe, too
		for _, pod := range list.Items {
			if pod.Annotations[names.StaleSinceAnnotation] != "" {
				stale[pod.Annotations[names.ClusterAnnotation]]++
			}
		}
		return stale["member2"] == 3 && stale["member1"] == 0 && strings.Contains(heard.String(), "cluster member2 since"), fmt.Errorf("stale are %v", stale)
	})
	w.changed(t, followers, namespace, 0, "in-the-other-member")
	for _, f := range followers {
		testenv.Eventually(t, f.name+" has received the stale pods", func(context.Context) (bool, error) { return f.stale("pod-1", "pod-3", "pod-5"), nil })
		f.eventually(t, "the stale pods are removed", func(held map[string]metav1.Object) bool { return len(held) == 3 })
	}
	check(t, server.Resume())
	resumed = true
	for _, f := range followers {
		f.eventually(t, "they are back, and not stale", func(held map[string]metav1.Object) bool {
			for _, pod := range held {
				if pod.GetAnnotations()[names.StaleSinceAnnotation] != "" {
					return false
				}
			}
			return len(held) == 6
		})
	}
	w.changed(t, followers, namespace, 1, "after-the-partition")
	for _, f := range followers {
		f.expectDeletions(t, 3)
	}
}

// testReregistration removes a member and registers it again under the same name.
func testReregistration(t *testing.T, w *world) {
	namespace := w.namespace(t, "reregistration")
	followers := w.followPods(t, namespace)
	objects, err := dynamic.NewForConfig(w.config(t, w.Hub))
	check(t, err)
	clusters := objects.Resource(clusterv1alpha1.GroupVersion.WithResource("clusters"))
	before, err := clusters.Get(t.Context(), "member1", metav1.GetOptions{})
	check(t, err)
	check(t, clusters.Delete(t.Context(), "member1", metav1.DeleteOptions{}))
	check(t, w.members[0].CoreV1().Pods(namespace).Delete(t.Context(), "pod-2", metav1.DeleteOptions{}))
	w.join(t, w.Members[0])
	after, err := clusters.Get(t.Context(), "member1", metav1.GetOptions{})
	check(t, err)
	if before.GetUID() == after.GetUID() {
		t.Fatal("the old registration still exists")
	}
	w.changed(t, followers, namespace, 0, "after-the-registration")
	for _, f := range followers {
		f.eventually(t, "the deleted pod is gone", func(held map[string]metav1.Object) bool { return len(held) == 5 && held["pod-2"] == nil })
	}
	for _, f := range followers {
		f.expectDeletions(t, 1)
	}
}
