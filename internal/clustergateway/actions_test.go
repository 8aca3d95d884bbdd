package clustergateway_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// testConcurrency writes pods based on old and on current versions, with every verb.
func testConcurrency(t *testing.T, w *world) {
	namespace := w.namespace(t, "concurrency")
	for i, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		w.checkConcurrency(t, clientFor(t, config), namespace, fmt.Sprintf("pod-%d", i))
	}
}

func (w *world) checkConcurrency(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	w.run(t, 0, namespace, name, nil)
	old := w.eventuallyPod(t, "the pod runs", namespace, name, running)
	pods, member := client.CoreV1().Pods(namespace), w.members[0].CoreV1().Pods(namespace)
	check(t, second(member.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"there"}}}`), metav1.PatchOptions{})))
	current := w.eventuallyPod(t, "the change is shown", namespace, name, func(pod *corev1.Pod) bool { return pod != nil && pod.Labels["changed"] == "there" })
	if old.ResourceVersion == current.ResourceVersion {
		t.Error("the version did not change with the object")
	}
	update := func(pod *corev1.Pod) error {
		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"changed": "here"}
		return second(pods.Update(t.Context(), changed, metav1.UpdateOptions{}))
	}
	patch := func(version string) error {
		return second(pods.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"patched":"yes"}}}`, version), metav1.PatchOptions{}))
	}
	jsonPatch := func(version string) error {
		return second(pods.Patch(t.Context(), name, types.JSONPatchType, fmt.Appendf(nil, `[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/labels/tested","value":"yes"}]`, version), metav1.PatchOptions{}))
	}
	remove := func(version string) error {
		return pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	}
	for what, err := range map[string]error{
		"an update": update(old), "a patch": patch(old.ResourceVersion), "a deletion": remove(old.ResourceVersion),
		"an update with an unknown version": update(withVersion(old, "1234567890123456789")),
	} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s based on an old view: %v, want a conflict", what, err)
		}
	}
	if err := jsonPatch(old.ResourceVersion); err == nil {
		t.Error("a patch that tests for an old version was applied")
	}
	// Versions from other replicas are accepted too.
	w.settle(t, namespace, name)
	for _, r := range w.replicas {
		shown, err := w.direct(t, r).CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		if err := patch(shown.ResourceVersion); err != nil {
			t.Errorf("a patch based on what replica %s shows: %v", r.name, err)
		}
		w.settle(t, namespace, name)
	}
	if err := update(w.settle(t, namespace, name)); err != nil {
		t.Errorf("an update based on the current view: %v", err)
	}
	if err := jsonPatch(w.settle(t, namespace, name).ResourceVersion); err != nil {
		t.Errorf("a patch that tests for the current version: %v", err)
	}
	if err := remove(w.settle(t, namespace, name).ResourceVersion); err != nil {
		t.Errorf("a deletion based on the current view: %v", err)
	}
	w.eventuallyPod(t, "the pod is gone", namespace, name, gone)
}

func withVersion(pod *corev1.Pod, version string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ResourceVersion = version
	return pod
}

// settle waits until all replicas show the current version of a pod of member1, and returns the gateway's view of it.
func (w *world) settle(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var shown *corev1.Pod
	testenv.Eventually(t, "all replicas show the current pod", func(ctx context.Context) (bool, error) {
		there, err := w.members[0].CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, r := range w.replicas {
			pod, err := w.direct(t, r).CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil || pod.Annotations[names.MemberVersionAnnotation] != there.ResourceVersion {
				return false, err
			}
		}
		shown, err = w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil, err
	})
	return shown
}

// testTemplates creates a pod through the gateway, and propagates it to a member in place of the engine.
func testTemplates(t *testing.T, w *world) {
	namespace := w.namespace(t, "templates")
	pods, cell := w.client.CoreV1().Pods(namespace), clientFor(t, w.config(t, w.Cells[0])).CoreV1().Pods(namespace)
	federationConfig := w.gateway.Config(t)
	federationConfig.Host += "/federation"
	federation := clientFor(t, federationConfig).CoreV1().Pods(namespace)
	follower := w.follow(t, namespace)[0]

	template := create(t, pods.Create, newPod("web", map[string]string{"app": "web"}))
	shown, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || shown.UID != template.UID {
		t.Fatalf("after the creation the gateway shows %v, %v", shown, err)
	}
	follower.eventually(t, "the template is shown", func(held map[string]metav1.Object) bool {
		return held["web"] != nil && held["web"].GetUID() == template.UID && held["web"].GetAnnotations()[names.ClusterAnnotation] == ""
	})
	// The gateway's view of the template can be used to update it.
	testenv.Eventually(t, "the template is labelled", func(ctx context.Context) (bool, error) {
		shown, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		shown.Labels["changed"] = "yes"
		_, err = pods.Update(ctx, shown, metav1.UpdateOptions{})
		return err == nil, err
	})
	stored, err := cell.Get(t.Context(), "web", metav1.GetOptions{})
	check(t, err)
	if stored.UID != template.UID || stored.Labels["changed"] != "yes" || stored.Annotations[names.MemberVersionAnnotation] != "" {
		t.Errorf("the cell has %v", stored)
	}

	// Clients read what they have written, with the version of the write.
	for i := range 20 {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":"%d"}}}`, i)
		written, err := pods.Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		check(t, err)
		read, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		check(t, err)
		if read.Labels["changed"] != written.Labels["changed"] || read.ResourceVersion != written.ResourceVersion {
			t.Fatalf("after change %d the gateway shows %v at %s, want %s", i, read.Labels, read.ResourceVersion, written.ResourceVersion)
		}
	}

	made := newPod("web", map[string]string{"app": "web"})
	made.Annotations = map[string]string{names.TemplateUIDAnnotation: string(template.UID)}
	made = create(t, w.members[0].CoreV1().Pods(namespace).Create, made)
	follower.eventually(t, "the pod of the member is shown", func(held map[string]metav1.Object) bool {
		return len(held) == 1 && held["web"].GetUID() == made.UID && held["web"].GetAnnotations()[names.ClusterAnnotation] == "member1"
	})
	w.eventuallyPod(t, "the gateway shows it, too", namespace, "web", in("member1"))
	if only, err := federation.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || only.UID != template.UID {
		t.Errorf("/federation shows %v, %v", only, err)
	}
	check(t, second(pods.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})))
	if stored, err = cell.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || stored.Labels["patched"] != "yes" {
		t.Errorf("after the patch the template is %v, %v", stored, err)
	}
	check(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &made.UID}}))
	if _, err := cell.Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the template in the cell after the deletion: %v, want not found", err)
	}
	if _, err := w.members[0].CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the gateway must leave the member's pod to the engine: %v", err)
	}
	check(t, w.members[0].CoreV1().Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	follower.eventually(t, "nothing is left", func(held map[string]metav1.Object) bool { return len(held) == 0 })
}

// testEventsOnHub finds an event of a template that lives on the hub among those of members, and changes and deletes it by its name.
func testEventsOnHub(t *testing.T, w *world) {
	namespace := w.namespace(t, "events-on-hub")
	hub, events := clientFor(t, w.config(t, w.Hub)).CoreV1().Events(namespace), w.client.CoreV1().Events(namespace)
	made := create(t, hub.Create, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "reader.17a"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Namespace: namespace, Name: "reader"},
	})
	listed := func(count int) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			list, err := events.List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Role,involvedObject.name=reader"})
			return err == nil && len(list.Items) == count, err
		}
	}
	testenv.Eventually(t, "the event of the hub is listed", listed(1))
	if got, err := events.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil || got.UID != made.UID {
		t.Errorf("the gateway shows %v, %v", got, err)
	}
	check(t, second(events.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"count":7}`), metav1.PatchOptions{})))
	if stored, err := hub.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil || stored.Count != 7 {
		t.Errorf("the hub has %v, %v", stored, err)
	}
	check(t, events.Delete(t.Context(), made.Name, metav1.DeleteOptions{}))
	if _, err := hub.Get(t.Context(), made.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted event is still on the hub: %v", err)
	}
	testenv.Eventually(t, "the deleted event is not listed", listed(0))
}

// warnings collects the warnings of API servers.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "; ")
}

func (w *world) warned(t testing.TB) (kubernetes.Interface, *warnings) {
	t.Helper()
	heard := &warnings{}
	config := w.gateway.Config(t)
	config.WarningHandler = heard
	return clientFor(t, config), heard
}

// testCollision creates pods of the same name in two members.
func testCollision(t *testing.T, w *world) {
	namespace := w.namespace(t, "collision")
	followers := w.follow(t, namespace)
	first := w.run(t, 1, namespace, "web-0", nil)
	w.eventuallyPod(t, "the first is shown", namespace, "web-0", in("member2"))
	testenv.Eventually(t, "another second has begun", func(context.Context) (bool, error) {
		return time.Now().Unix() > first.CreationTimestamp.Unix(), nil // creation times have a resolution of one second
	})
	other := w.run(t, 0, namespace, "web-0", nil)
	client, heard := w.warned(t)
	testenv.Eventually(t, "a warning names the other member", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, "web-0", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if pod.UID != first.UID {
			t.Fatalf("the gateway shows %v", pod)
		}
		return strings.Contains(heard.String(), `"web-0" is also in member1`), nil
	})
	throughProxy := w.gateway.Config(t)
	throughProxy.Host += "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy"
	if pod, err := clientFor(t, throughProxy).CoreV1().Pods(namespace).Get(t.Context(), "web-0", metav1.GetOptions{}); err != nil || pod.UID != other.UID {
		t.Errorf("the proxy shows %v, %v", pod, err)
	}
	check(t, w.members[1].CoreV1().Pods(namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	for _, f := range followers {
		f.eventually(t, "the other is shown", func(held map[string]metav1.Object) bool { return len(held) == 1 && held["web-0"].GetUID() == other.UID })
		f.expectDeletions(t, 1) // only that of the first pod
	}
}

// testKubectl runs common kubectl commands.
func testKubectl(t *testing.T, w *world) {
	namespace := w.namespace(t, "kubectl")
	create(t, w.client.AppsV1().Deployments(namespace).Create, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: newPod("", nil).Spec},
		},
	})
	w.run(t, 0, namespace, "one", map[string]string{"app": "web"})
	w.run(t, 1, namespace, "two", map[string]string{"app": "db"})
	one := w.eventuallyPod(t, "the first pod runs", namespace, "one", running)
	w.eventuallyPod(t, "the second pod runs", namespace, "two", running)
	testenv.Eventually(t, "the event of the scheduler is shown", func(ctx context.Context) (bool, error) {
		events, err := w.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=one,reason=Scheduled"})
		return err == nil && len(events.Items) > 0, err
	})
	log, err := os.OpenFile(w.Members[0].PodLog(), os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	defer log.Close()
	_, err = log.WriteString("2026-01-02T03:04:05.000000006Z stdout F hello from one\n")
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watched := &kubectltest.Output{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.kubectl.To(ctx, t, watched, "", "get", "pods", "-n", namespace, "-w") // until the context ends
	}()
	testenv.Eventually(t, "kubectl watches", func(context.Context) (bool, error) { return strings.Contains(watched.String(), "two"), nil })
	for _, test := range []struct {
		args []string
		want []string
		not  string
	}{
		{args: []string{"get", "pods", "-A"}, want: []string{"NAMESPACE", "CLUSTER", "one", "member1", "two", "member2"}},
		{args: []string{"get", "pods", "-n", namespace, "-o", "wide"}, want: []string{"NODE", one.Spec.NodeName}},
		{args: []string{"get", "pods", "-n", namespace, "-l", "cellplane.io/cluster=member2"}, want: []string{"two"}, not: "one"},
		{args: []string{"get", "pods", "-A", "--field-selector", "spec.nodeName=" + one.Spec.NodeName}, want: []string{"one"}, not: "two "},
		{args: []string{"get", "pods", "-n", namespace, "-o", "yaml"}, want: []string{"cellplane.io/cluster: member1", "kind: Pod"}},
		{args: []string{"get", "nodes"}, want: []string{"member1-node-0", "member2-node-1", "Ready", "CLUSTER"}},
		{args: []string{"describe", "pod", "one", "-n", namespace}, want: []string{"Status:", "Running", "cellplane.io/cluster: member1", "Scheduled"}},
		{args: []string{"describe", "node", one.Spec.NodeName}, want: []string{namespace, "one"}},
		{args: []string{"get", "events", "-n", namespace}, want: []string{"pod/one", "Scheduled", "CLUSTER"}},
		{args: []string{"logs", "one", "-n", namespace}, want: []string{"hello from one"}},
		{args: []string{"logs", "deploy/web", "-n", namespace}, want: []string{"hello from one"}},
		{args: []string{"exec", "one", "-n", namespace, "--", "echo", "hello"}, want: []string{"hello"}},
		{args: []string{"label", "pod", "one", "-n", namespace, "colour=red"}, want: []string{"labeled"}},
		{args: []string{"delete", "pod", "two", "-n", namespace}, want: []string{"deleted"}},
	} {
		said := w.kubectl.Must(t, test.args...)
		for _, want := range test.want {
			if !strings.Contains(said, want) {
				t.Errorf("kubectl %s does not print %q:\n%s", strings.Join(test.args, " "), want, said)
			}
		}
		if test.not != "" && strings.Contains(said, test.not) {
			t.Errorf("kubectl %s prints %q:\n%s", strings.Join(test.args, " "), test.not, said)
		}
	}
	if _, err := w.members[1].CoreV1().Pods(namespace).Get(t.Context(), "two", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted pod: %v", err)
	}
	if pod, err := w.members[0].CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{}); err != nil || pod.Labels["colour"] != "red" {
		t.Errorf("the labelled pod: %v, %v", pod, err)
	}
	testenv.Eventually(t, "kubectl get -w prints the deletion", func(context.Context) (bool, error) { return strings.Count(watched.String(), "two ") > 1, nil })
	cancel()
	<-ended
	if said := watched.String(); strings.Count(said, "CLUSTER") != 1 {
		t.Errorf("kubectl get -w printed:\n%s", said)
	}
}

// testDrain drains a node of a member.
func testDrain(t *testing.T, w *world) {
	namespace := w.namespace(t, "drain")
	w.run(t, 0, namespace, "one", nil)
	node := w.eventuallyPod(t, "the pod runs", namespace, "one", running).Spec.NodeName
	said := w.kubectl.Must(t, "drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--pod-selector", "!unknown")
	if !strings.Contains(said, "drained") {
		t.Errorf("kubectl drain printed:\n%s", said)
	}
	w.eventuallyPod(t, "the pod is gone", namespace, "one", gone)
	drained, err := w.members[0].CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil || !drained.Spec.Unschedulable {
		t.Errorf("the node is %v, %v", drained, err)
	}
	w.kubectl.Must(t, "uncordon", node)
	testenv.Eventually(t, "the node is shown as it was", func(ctx context.Context) (bool, error) {
		shown, err := w.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && !shown.Spec.Unschedulable, err
	})
}

// testDeleteCollection deletes the pods of both members, and a template, in one request.
func testDeleteCollection(t *testing.T, w *world) {
	namespace := w.namespace(t, "delete-collection")
	follower := w.follow(t, namespace)[0]
	for i, name := range []string{"one", "two"} {
		w.run(t, i, namespace, name, map[string]string{"app": "web"})
	}
	w.run(t, 0, namespace, "other", nil)
	create(t, w.client.CoreV1().Pods(namespace).Create, newPod("template", map[string]string{"app": "web"}))
	follower.eventually(t, "all are shown", func(held map[string]metav1.Object) bool { return len(held) == 4 })
	check(t, w.client.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{LabelSelector: "app=web"}))
	follower.eventually(t, "one is left", func(held map[string]metav1.Object) bool { return len(held) == 1 && held["other"] != nil })
}

// testLastApplied updates an object that was applied in its member.
func testLastApplied(t *testing.T, w *world) {
	namespace := w.namespace(t, "last-applied")
	pod := newPod("one", nil)
	pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
	create(t, w.members[0].CoreV1().Pods(namespace).Create, pod)
	w.eventuallyPod(t, "the pod runs", namespace, "one", running)
	shown := w.settle(t, namespace, "one")
	if _, found := shown.Annotations[corev1.LastAppliedConfigAnnotation]; found {
		t.Error("the annotation of kubectl apply is shown")
	}
	shown.Labels = map[string]string{"changed": "yes"}
	check(t, second(w.client.CoreV1().Pods(namespace).Update(t.Context(), shown, metav1.UpdateOptions{})))
	there, err := w.members[0].CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{})
	check(t, err)
	if there.Labels["changed"] != "yes" || there.Annotations[corev1.LastAppliedConfigAnnotation] != "{}" || there.Annotations[names.ClusterAnnotation] != "" {
		t.Errorf("the member has the labels %v and annotations %v", there.Labels, there.Annotations)
	}
}

var _ rest.WarningHandler = &warnings{}
