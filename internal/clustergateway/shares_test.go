package clustergateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// testShares runs two cluster-gateways with one member each, and a gateway that merges them.
func testShares(t *testing.T, whole *world) {
	hub, err := dynamic.NewForConfig(whole.config(t, whole.Hub))
	check(t, err)
	clusters := hub.Resource(clusterv1alpha1.GroupVersion.WithResource("clusters"))
	w := &world{Federation: whole.Federation, members: whole.members, kubectl: whole.kubectl}
	options := gatewaytest.Options(t, w.Federation)
	for i := range w.members {
		check(t, second(clusters.Patch(t.Context(), fmt.Sprintf("member%d", i+1), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"share":"s%d"}}}`, i), metav1.PatchOptions{})))
		r := newReplica(t, fmt.Sprintf("share-%d", i))
		w.start(t, r, func(o *clustergateway.Options) {
			o.Clusters = fmt.Sprintf("share=s%d", i)
			if i > 0 {
				o.TemplatesKubeconfig = "" // only one of them shows templates
			}
		})
		w.replicas = append(w.replicas, r)
	}
	w.addViews(t, options)
	options.Views.ClusterGateways = []string{w.replicas[0].url(), w.replicas[1].url()}
	w.gateway = gatewaytest.Run(t, w.Federation, options)
	w.client, w.kubectl = w.gateway.Client(t), kubectltest.Kubectl(w.gateway.Kubeconfig(t))
	testenv.Eventually(t, "the nodes of both members are shown", func(ctx context.Context) (bool, error) {
		nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 4, err
	})
	for i, r := range w.replicas {
		nodes, err := w.direct(t, r).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 2 || nodes.Items[0].Name != fmt.Sprintf("member%d-node-0", i+1) {
			t.Errorf("share %d shows %v, %v", i, nodes, err)
		}
	}
	w.checkInformers(t, "shares-informers")
	w.checkWebSocketWatch(t, w.namespace(t, "shares-websocket"))
	t.Run("Pages", func(t *testing.T) { checkSharedPages(t, w) })
	t.Run("Collision", func(t *testing.T) { checkSharedCollision(t, w) })
	t.Run("Moves", func(t *testing.T) { checkSharedMoves(t, w) })
	t.Run("Concurrency", func(t *testing.T) { checkSharedUpdate(t, w) })
}

func checkSharedPages(t *testing.T, w *world) {
	namespace := w.namespace(t, "shares-pages")
	for i := range 7 {
		w.run(t, i%2, namespace, fmt.Sprintf("pod-%d", i), nil)
		w.eventuallyPod(t, "the pod is shown", namespace, fmt.Sprintf("pod-%d", i), in(fmt.Sprintf("member%d", i%2+1)))
	}
	seen, token, version := "", "", ""
	for first := true; first || token != ""; first = false {
		page, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 2, Continue: token})
		check(t, err)
		for _, pod := range page.Items {
			seen += pod.Name + " "
		}
		if version != "" && page.ResourceVersion != version {
			t.Errorf("pages have the versions %s and %s", version, page.ResourceVersion)
		}
		token, version = page.Continue, page.ResourceVersion
	}
	if want := "pod-0 pod-1 pod-2 pod-3 pod-4 pod-5 pod-6 "; seen != want {
		t.Errorf("the pages show %q, want %q", seen, want)
	}
}

// checkSharedCollision creates pods of the same name in members of different shares.
func checkSharedCollision(t *testing.T, w *world) {
	namespace := w.namespace(t, "shares-collision")
	followers := w.follow(t, namespace)
	first := w.run(t, 1, namespace, "web-0", nil)
	w.eventuallyPod(t, "the first is shown", namespace, "web-0", in("member2"))
	testenv.Eventually(t, "another second has begun", func(context.Context) (bool, error) {
		return time.Now().Unix() > first.CreationTimestamp.Unix(), nil // creation times have a resolution of one second
	})
	other := w.run(t, 0, namespace, "web-0", nil)
	w.run(t, 0, namespace, "web-1", nil)
	for _, f := range followers {
		f.eventually(t, "the first is still the one that is shown", func(held map[string]metav1.Object) bool {
			return len(held) == 2 && held["web-1"] != nil && held["web-0"].GetUID() == first.UID
		})
	}
	list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Items[0].UID != first.UID {
		t.Errorf("the list is %v, %v", list, err)
	}
	check(t, w.members[1].CoreV1().Pods(namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	w.eventuallyPod(t, "the other is shown", namespace, "web-0", in("member1"))
	// The shares see the deletion at different times. All informers end with the remaining pod.
	for _, f := range followers {
		f.eventually(t, "it has the remaining pod", func(held map[string]metav1.Object) bool {
			return len(held) == 2 && held["web-0"] != nil && held["web-0"].GetUID() == other.UID && held["web-0"].GetAnnotations()[names.ContestedAnnotation] == ""
		})
	}
}

// checkSharedMoves moves a name between members of different shares, many times in quick succession. A pod of that name always
// exists, so reads always find one. Watches report each state once, and nothing about a deleted pod after its successor.
func checkSharedMoves(t *testing.T, w *world) {
	const rounds = 12
	namespace := w.namespace(t, "shares-moves")
	// Which of two pods created in the same second is shown depends on their clusters, so the shown member changes in every
	// round or every other round.
	last := w.unscheduled(t, 0, namespace, "web-0")
	w.eventuallyPod(t, "the first is shown", namespace, "web-0", in("member1"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	list, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	watcher, err := w.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	check(t, err)
	defer watcher.Stop()
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			if _, err := w.client.CoreV1().Pods(namespace).Get(ctx, "web-0", metav1.GetOptions{}); err != nil && ctx.Err() == nil {
				t.Errorf("a pod that is always there cannot be read: %v", err)
			}
		}
	})
	for i := range rounds {
		from, to := i%2, (i+1)%2
		next := w.unscheduled(t, to, namespace, "web-0")
		testenv.Eventually(t, "its share has the next pod", func(ctx context.Context) (bool, error) {
			var found corev1.Pod
			err := w.direct(t, w.replicas[to]).CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name("web-0").
				SetHeader(views.ContestedHeader, "true").Do(ctx).Into(&found)
			return err == nil && found.UID == next.UID, err
		})
		check(t, w.members[from].CoreV1().Pods(namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		last = next
	}
	check(t, second(w.members[rounds%2].CoreV1().Pods(namespace).Patch(ctx, "web-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"last":"yes"}}}`), metav1.PatchOptions{})))
	cancelled := func() { cancel(); looking.Wait() }
	defer cancelled()
	shown := map[types.UID]string{} // the last reported state
	held := list.Items[0].UID
	for event := range watcher.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch sent %s %v", event.Type, event.Object)
		}
		state := pod.Annotations[names.MemberVersionAnnotation]
		switch {
		case event.Type == watch.Deleted && held == "":
			t.Errorf("%s is reported as deleted, but no pod was shown", pod.UID)
		case event.Type == watch.Deleted:
			held = ""
			continue
		case held == pod.UID && shown[pod.UID] == state:
			t.Errorf("%s at %s is reported twice", pod.UID, state)
		}
		held, shown[pod.UID] = pod.UID, state
		if pod.Annotations["last"] == "yes" {
			break
		}
	}
	if held != last.UID {
		t.Errorf("the watch ends with %s, want %s", held, last.UID)
	}
}

// unscheduled creates a pod that is never scheduled. Simulated nodes delete pods by name, and might delete its successor.
func (w *world) unscheduled(t *testing.T, member int, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := newPod(name, nil)
	pod.Spec.SchedulerName = "nobody"
	return create(t, w.members[member].CoreV1().Pods(namespace).Create, pod)
}

// checkSharedUpdate changes a pod based on an event of a merged watch.
func checkSharedUpdate(t *testing.T, w *world) {
	namespace := w.namespace(t, "shares-update")
	follower := w.follow(t, namespace)[0]
	w.run(t, 1, namespace, "one", nil)
	testenv.Eventually(t, "the pod is labelled", func(ctx context.Context) (bool, error) {
		version := follower.version("one")
		if version == "" {
			return false, errors.New("the informer has no pod")
		}
		if len(version) < 30 {
			return false, fmt.Errorf("the version %s is not one of a merged watch", version)
		}
		_, err := w.client.CoreV1().Pods(namespace).Patch(ctx, "one", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"changed":"yes"}}}`, version), metav1.PatchOptions{})
		return err == nil, err
	})
	pod, err := w.members[1].CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || pod.Labels["changed"] != "yes" {
		t.Errorf("the member has %v, %v", pod, err)
	}
}
