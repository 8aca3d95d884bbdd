package clustergateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
)

// eventTimeout bounds the wait for an event. It is long, for loaded machines.
const eventTimeout = 3 * time.Minute

// testOneVersion writes a pod of a member, and a template, in every way, and compares the versions in the answers with those in reads and
// watches.
func testOneVersion(t *testing.T, w *world) {
	namespace := w.namespace(t, "one-version")
	for i, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		pods := clientFor(t, config).CoreV1().Pods(namespace)
		t.Run(fmt.Sprintf("Member in %s", encoding), func(t *testing.T) {
			name := fmt.Sprintf("pod-%d", i)
			w.unscheduled(t, 0, namespace, name)
			shown := w.eventuallyPod(t, "the pod is shown", namespace, name, in("member1"))
			checkOneVersion(t, &written{pods: pods, name: name}, shown)
		})
		t.Run(fmt.Sprintf("Template in %s", encoding), func(t *testing.T) {
			name := fmt.Sprintf("template-%d", i)
			created := create(t, pods.Create, newPod(name, nil))
			checkOneVersion(t, &written{pods: pods, name: name}, created)
		})
	}
	t.Run("Table", func(t *testing.T) { checkVersionInTable(t, w, namespace) })
	t.Run("Forgotten", func(t *testing.T) { checkForgottenVersion(t, w, namespace) })
	t.Run("Silent", func(t *testing.T) { checkNoWarnings(t, w, namespace) })
}

// written is a pod that is written through the gateway by one client.
type written struct {
	pods    typedcorev1.PodInterface
	name    string
	watcher watch.Interface
}

// checkOneVersion changes a pod from a version that a read or a creation has returned.
func checkOneVersion(t *testing.T, p *written, from *corev1.Pod) {
	t.Helper()
	p.expect(t, "at first", from)
	var err error
	p.watcher, err = p.pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.name, ResourceVersion: from.ResourceVersion})
	check(t, err)
	defer func() { p.watcher.Stop() }()

	ctx, last := t.Context(), from
	patch := func(kind types.PatchType, version, value string) (*corev1.Pod, error) {
		return p.pods.Patch(ctx, p.name, kind, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"changed":%q}}}`, version, value), metav1.PatchOptions{})
	}
	for _, write := range []struct {
		what string
		do   func(from *corev1.Pod) (*corev1.Pod, error)
	}{
		{"a merge patch", func(from *corev1.Pod) (*corev1.Pod, error) {
			return patch(types.MergePatchType, from.ResourceVersion, "merged")
		}},
		{"a strategic merge patch", func(from *corev1.Pod) (*corev1.Pod, error) {
			return patch(types.StrategicMergePatchType, from.ResourceVersion, "strategic")
		}},
		{"a JSON patch", func(from *corev1.Pod) (*corev1.Pod, error) {
			return p.pods.Patch(ctx, p.name, types.JSONPatchType, fmt.Appendf(nil, `[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/labels/json","value":"yes"}]`, from.ResourceVersion), metav1.PatchOptions{})
		}},
		{"an update", func(from *corev1.Pod) (*corev1.Pod, error) {
			changed := from.DeepCopy()
			changed.Labels = map[string]string{"changed": "updated"}
			return p.pods.Update(ctx, changed, metav1.UpdateOptions{})
		}},
		{"an apply", func(from *corev1.Pod) (*corev1.Pod, error) {
			applied := corev1ac.Pod(p.name, from.Namespace).WithResourceVersion(from.ResourceVersion).WithLabels(map[string]string{"applied": "yes"})
			return p.pods.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "one-version"})
		}},
		{"a patch of the status", func(from *corev1.Pod) (*corev1.Pod, error) {
			return p.pods.Patch(ctx, p.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"message":"patched"}}`, from.ResourceVersion), metav1.PatchOptions{}, "status")
		}},
		{"an update of the status", func(from *corev1.Pod) (*corev1.Pod, error) {
			changed := from.DeepCopy()
			changed.Status.Message = "updated"
			return p.pods.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		}},
		{"an ephemeral container", func(from *corev1.Pod) (*corev1.Pod, error) {
			changed := from.DeepCopy()
			changed.Spec.EphemeralContainers = append(changed.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debugger"}})
			return p.pods.UpdateEphemeralContainers(ctx, p.name, changed, metav1.UpdateOptions{})
		}},
	} {
		got, err := write.do(last)
		if err != nil {
			t.Fatalf("%s of the version %s: %v", write.what, last.ResourceVersion, err)
		}
		if got.ResourceVersion == last.ResourceVersion {
			t.Errorf("%s has not changed the version", write.what)
		}
		p.expect(t, "after "+write.what, got)
		if _, err := write.do(last); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s of a former version: %v, want a conflict", write.what, err) // a test in a JSON patch fails with 422
		}
		last = got
	}

	// What changes nothing has the version of what there is.
	for _, same := range []struct {
		what    string
		options metav1.PatchOptions
		body    string
	}{
		{"a patch that changes nothing", metav1.PatchOptions{}, `{}`},
		{"a dry run", metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, `{"metadata":{"labels":{"changed":"dry"}}}`},
	} {
		got, err := p.pods.Patch(ctx, p.name, types.MergePatchType, []byte(same.body), same.options)
		check(t, err)
		if got.ResourceVersion != last.ResourceVersion {
			t.Errorf("after %s the version is %s, want %s", same.what, got.ResourceVersion, last.ResourceVersion)
		}
	}

	// A watch from a write begins with what comes after it.
	again, err := p.pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.name, ResourceVersion: last.ResourceVersion})
	check(t, err)
	defer again.Stop()
	next, err := patch(types.MergePatchType, last.ResourceVersion, "next")
	check(t, err)
	p.expect(t, "after the last patch", next)
	expectChange(t, "a watch from a write", again, next.ResourceVersion)

	check(t, p.pods.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{ResourceVersion: &next.ResourceVersion}}))
	deletionOf(t, again)
}

// deletionOf returns the version of the next deletion in a watch. Before it pods may be marked as being deleted.
func deletionOf(t *testing.T, watcher watch.Interface) string {
	t.Helper()
	for {
		event := nextOf(t, watcher)
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch shows %v, want a deletion", event)
		}
		if event.Type == watch.Deleted {
			return pod.ResourceVersion
		}
	}
}

// expect checks that reads and a watch show an object as the answer to a write does.
func (p *written) expect(t *testing.T, when string, answer *corev1.Pod) {
	t.Helper()
	read, err := p.pods.Get(t.Context(), p.name, metav1.GetOptions{})
	check(t, err)
	list, err := p.pods.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.name})
	check(t, err)
	if read.ResourceVersion != answer.ResourceVersion || len(list.Items) != 1 || list.Items[0].ResourceVersion != answer.ResourceVersion {
		t.Errorf("%s a get shows the version %s and a list has %d items at %v, want %s", when, read.ResourceVersion, len(list.Items), list.Items, answer.ResourceVersion)
	}
	if p.watcher != nil {
		expectChange(t, when, p.watcher, answer.ResourceVersion)
	}
}

func expectChange(t *testing.T, when string, watcher watch.Interface, version string) {
	t.Helper()
	event := nextOf(t, watcher)
	if pod, ok := event.Object.(*corev1.Pod); !ok || event.Type != watch.Modified || pod.ResourceVersion != version {
		t.Errorf("%s the watch shows %v, want a change at %s", when, event, version)
	}
}

func nextOf(t *testing.T, watcher watch.Interface) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	select {
	case event := <-watcher.ResultChan():
		return event
	case <-ctx.Done():
		t.Fatal("the watch shows nothing")
		return watch.Event{}
	}
}

// checkVersionInTable changes a pod as a client does that asks for Tables, and deletes it as one that reads the deleted object.
func checkVersionInTable(t *testing.T, w *world, namespace string) {
	t.Helper()
	w.unscheduled(t, 0, namespace, "table")
	w.eventuallyPod(t, "the pod is shown", namespace, "table", in("member1"))
	client := w.client.CoreV1().RESTClient()
	table := &metav1.Table{}
	body, err := client.Patch(types.MergePatchType).Namespace(namespace).Resource("pods").Name("table").Body([]byte(`{"metadata":{"labels":{"a":"b"}}}`)).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	check(t, err)
	check(t, json.Unmarshal(body, table))
	read, err := w.client.CoreV1().Pods(namespace).Get(t.Context(), "table", metav1.GetOptions{})
	check(t, err)
	row := &metav1.PartialObjectMetadata{}
	if len(table.Rows) != 1 {
		t.Fatalf("the Table is %s", body)
	}
	check(t, json.Unmarshal(table.Rows[0].Object.Raw, row))
	if table.ResourceVersion != read.ResourceVersion || row.ResourceVersion != read.ResourceVersion {
		t.Errorf("the Table has the version %s and its row %s, want %s", table.ResourceVersion, row.ResourceVersion, read.ResourceVersion)
	}
	status, err := client.Get().Namespace(namespace).Resource("pods").Name("table").SubResource("status").Param("resourceVersion", read.ResourceVersion).DoRaw(t.Context())
	check(t, err)
	if check(t, json.Unmarshal(status, row)); row.ResourceVersion != read.ResourceVersion {
		t.Errorf("a get of the status shows the version %s, want %s", row.ResourceVersion, read.ResourceVersion)
	}

	watcher, err := w.client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=table", ResourceVersion: read.ResourceVersion})
	check(t, err)
	defer watcher.Stop()
	deleted := &corev1.Pod{}
	check(t, client.Delete().Namespace(namespace).Resource("pods").Name("table").Body(&metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}).Do(t.Context()).Into(deleted))
	if shown := deletionOf(t, watcher); shown != deleted.ResourceVersion {
		t.Errorf("the answer to the deletion has the version %s, and the watch shows %s", deleted.ResourceVersion, shown)
	}
}

// checkForgottenVersion changes a pod based on a version of a replica that has been restarted since.
func checkForgottenVersion(t *testing.T, w *world, namespace string) {
	t.Helper()
	const forgotten = "1234567890123456789"
	w.unscheduled(t, 0, namespace, "forgotten")
	read := w.eventuallyPod(t, "the pod is shown", namespace, "forgotten", in("member1"))
	pods := w.client.CoreV1().Pods(namespace)
	changed := withVersion(read, forgotten)
	changed.Labels = map[string]string{"changed": "yes"}
	first, err := pods.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || first.Labels["changed"] != "yes" {
		t.Fatalf("an update of an object that has not changed: %v, %v", first, err)
	}
	if _, err := pods.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an object that has changed: %v, want a conflict", err)
	}
	elsewhere := changed.DeepCopy()
	elsewhere.Annotations[names.ClusterAnnotation] = "member2"
	if _, err := pods.Update(t.Context(), elsewhere, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an object of another cluster: %v, want a conflict", err)
	}
	if _, err := pods.Patch(t.Context(), "forgotten", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, forgotten), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a patch, which does not say what it is based on: %v, want a conflict", err)
	}
}

// checkNoWarnings checks that the answers to writes have no warnings as long as all is well.
func checkNoWarnings(t *testing.T, w *world, namespace string) {
	t.Helper()
	client, heard := w.warned(t)
	pods := client.CoreV1().Pods(namespace)
	w.unscheduled(t, 1, namespace, "silent")
	w.eventuallyPod(t, "the pod is shown", namespace, "silent", in("member2"))
	for i := range 20 {
		check(t, second(pods.Patch(t.Context(), "silent", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"i":"%d"}}}`, i), metav1.PatchOptions{})))
	}
	check(t, second(client.CoreV1().Nodes().Patch(t.Context(), "member2-node-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"silent":"yes"}}}`), metav1.PatchOptions{})))
	if said := heard.String(); strings.Contains(said, "not shown yet") {
		t.Errorf("writes are answered with the warnings %s", said)
	}
}
