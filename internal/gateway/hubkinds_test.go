package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	bindingsGVR        = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}
	clusterBindingsGVR = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "clusterresourcebindings"}
	worksGVR           = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha1", Resource: "works"}
)

// hubKinds is a namespace with bindings, Works and events of templates on the hub and in cells, as the engines make them.
type hubKinds struct {
	*world
	t         *testing.T
	namespace string
	hub       kubernetes.Interface
	direct    dynamic.Interface // of the hub
}

// testHubKinds uses what the hub's engine makes of templates that live on the hub: it is shown together with what the cells have.
func testHubKinds(t *testing.T, w *world) {
	awaitSamples(t, w)
	h := &hubKinds{world: w, t: t, namespace: gatewaytest.Namespace(t, w.Federation, "hub-kinds"), hub: clientFor(t, adminOf(t, w.Hub)), direct: dynamicFor(t, adminOf(t, w.Hub))}
	h.fill()
	for _, test := range []struct {
		name string
		run  func(*hubKinds)
	}{
		{"Get", (*hubKinds).testGet},
		{"List", (*hubKinds).testList},
		{"Describe", (*hubKinds).testDescribe},
		{"Watch", (*hubKinds).testWatch},
		{"WatchAfterObject", (*hubKinds).testWatchAfterObject},
		{"InitialEvents", (*hubKinds).testInitialEvents},
		{"Informer", (*hubKinds).testInformer},
		{"Write", (*hubKinds).testWrite},
		{"Create", (*hubKinds).testCreate},
		{"Rights", (*hubKinds).testRights},
		{"ControlPlane", (*hubKinds).testControlPlane},
		{"DeleteCollection", (*hubKinds).testDeleteCollection},
	} {
		t.Run(test.name, func(t *testing.T) {
			bound := *h
			bound.t = t
			test.run(&bound)
		})
	}
}

func dynamicFor(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client
}

// surface returns the configuration of an administrator for a surface: "" or "/federation".
func (h *hubKinds) surface(prefix string) *rest.Config {
	config := h.gateway.Config(h.t)
	config.Host += prefix
	return config
}

// fill makes a binding, a Work and events on the hub, and others in each cell.
func (h *hubKinds) fill() {
	h.t.Helper()
	h.bind(h.Hub, "reader-role", "rbac.authorization.k8s.io/v1", "Role", "reader")
	h.bind(h.Hub, "robot-serviceaccount", "v1", "ServiceAccount", "robot")
	h.work(h.Hub, "reader-7d4f")
	h.event(h.Hub, "reader.17a", corev1.ObjectReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: "reader"})
	for i, cell := range h.Cells {
		name := h.nameIn(i, "web")
		h.bind(cell, name+"-deployment", "apps/v1", "Deployment", name)
		h.work(cell, fmt.Sprintf("web-%d", i))
		h.event(cell, fmt.Sprintf("web-%d.17b", i), corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name})
	}
}

// nameIn returns a name whose slot is in a cell.
func (h *hubKinds) nameIn(cell int, prefix string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", prefix, i); ownerOf(h.t, h.world, h.namespace, name) == cell {
			return name
		}
	}
}

func (h *hubKinds) bind(plane *controlplane.ControlPlane, name, apiVersion, kind, template string) {
	h.t.Helper()
	must(h.t, h.createIn(dynamicFor(h.t, adminOf(h.t, plane)), bindingsGVR, h.binding(name, apiVersion, kind, template)))
}

func (h *hubKinds) binding(name, apiVersion, kind, template string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": map[string]any{"name": name, "namespace": h.namespace},
		"spec": map[string]any{"resource": map[string]any{"apiVersion": apiVersion, "kind": kind, "namespace": h.namespace, "name": template}},
	}}
}

func (h *hubKinds) work(plane *controlplane.ControlPlane, name string) {
	h.t.Helper()
	must(h.t, h.createIn(dynamicFor(h.t, adminOf(h.t, plane)), worksGVR, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": map[string]any{"name": name, "namespace": h.namespace}, "spec": map[string]any{},
	}}))
}

func (h *hubKinds) createIn(client dynamic.Interface, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	_, err := client.Resource(resource).Namespace(object.GetNamespace()).Create(h.t.Context(), object, metav1.CreateOptions{})
	return err
}

func (h *hubKinds) event(plane *controlplane.ControlPlane, name string, about corev1.ObjectReference) {
	h.t.Helper()
	about.Namespace = h.namespace
	_, err := clientFor(h.t, adminOf(h.t, plane)).CoreV1().Events(h.namespace).Create(h.t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: about, Reason: "Tested", Count: 1,
	}, metav1.CreateOptions{})
	must(h.t, err)
}

// isOfHub checks the version of an object on the hub.
func (h *hubKinds) isOfHub(version string) {
	h.t.Helper()
	if v, err := position.ParseVersion(version); err != nil || v.Cell != slots.HubNumber {
		h.t.Errorf("the version %s is not one of the hub: %v", version, err)
	}
}

// testGet reads the objects of the hub by their names, on both surfaces.
func (h *hubKinds) testGet() {
	for _, prefix := range []string{"", "/federation"} {
		client := dynamicFor(h.t, h.surface(prefix))
		for name, resource := range map[string]schema.GroupVersionResource{"reader-role": bindingsGVR, "robot-serviceaccount": bindingsGVR, "reader-7d4f": worksGVR} {
			got, err := client.Resource(resource).Namespace(h.namespace).Get(h.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				h.t.Errorf("%s: %v", prefix, err)
				continue
			}
			h.isOfHub(got.GetResourceVersion())
		}
		for _, encoding := range encodings {
			config := h.surface(prefix)
			config.ContentType = encoding
			event, err := clientFor(h.t, config).CoreV1().Events(h.namespace).Get(h.t.Context(), "reader.17a", metav1.GetOptions{})
			must(h.t, err)
			h.isOfHub(event.ResourceVersion)
			again, err := clientFor(h.t, config).EventsV1().Events(h.namespace).Get(h.t.Context(), "reader.17a", metav1.GetOptions{})
			if err != nil || again.ResourceVersion != event.ResourceVersion {
				h.t.Errorf("in events.k8s.io it has version %s, want %s: %v", again.ResourceVersion, event.ResourceVersion, err)
			}
		}
	}
	if _, err := h.client.CoreV1().Events(h.namespace).Get(h.t.Context(), "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		h.t.Errorf("an event that does not exist: %v, want 404", err)
	}
	_, err := dynamicFor(h.t, h.surface("")).Resource(bindingsGVR).Namespace(h.namespace).Get(h.t.Context(), "nothing-role", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		h.t.Errorf("a binding that does not exist: %v, want 404", err)
	}
}

// testList lists the objects of the hub and the cells in every form, whole and in pages.
func (h *hubKinds) testList() {
	count := 1 + len(h.Cells)
	for _, prefix := range []string{"", "/federation"} {
		for path, want := range map[string]int{
			"/api/v1/namespaces/" + h.namespace + "/events":                                        count,
			"/apis/events.k8s.io/v1/namespaces/" + h.namespace + "/events":                         count,
			"/apis/work.karmada.io/v1alpha2/namespaces/" + h.namespace + "/resourcebindings":       count + 1,
			"/apis/work.karmada.io/v1alpha1/namespaces/" + h.namespace + "/works":                  count,
			"/apis/work.karmada.io/v1alpha1/works?fieldSelector=metadata.namespace=" + h.namespace: count,
		} {
			path, selector, _ := strings.Cut(path, "?")
			query, err := url.ParseQuery(selector)
			must(h.t, err)
			whole := h.pages(prefix+path, query, 0)
			if len(whole) != want || !slices.IsSorted(whole) {
				h.t.Errorf("%s%s lists %v, want %d in order", prefix, path, whole, want)
			}
			for _, limit := range []int{1, 2} {
				if paged := h.pages(prefix+path, query, limit); !slices.Equal(paged, whole) {
					h.t.Errorf("%s%s lists %v in pages of %d, want %v", prefix, path, paged, limit, whole)
				}
			}
			var table metav1.Table
			must(h.t, json.Unmarshal(h.get(h.t, prefix+path, query, "application/json;as=Table;v=v1;g=meta.k8s.io"), &table))
			if len(table.Rows) != want {
				h.t.Errorf("%s%s has a Table of %d rows, want %d", prefix, path, len(table.Rows), want)
			}
		}
		config := h.surface(prefix)
		config.ContentType = "application/vnd.kubernetes.protobuf"
		list, err := clientFor(h.t, config).CoreV1().Events(h.namespace).List(h.t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != count {
			h.t.Fatalf("%s: %d events in protobuf, want %d: %v", prefix, len(list.Items), count, err)
		}
		h.isOfHub(list.Items[0].ResourceVersion)
		if at, err := position.Parse(list.ResourceVersion); err != nil || len(at.Versions) != len(h.Cells)+1 {
			h.t.Errorf("the position %s does not have a field for each cell and the hub: %v", list.ResourceVersion, err)
		}
	}
	maps, err := h.client.CoreV1().ConfigMaps(h.namespace).List(h.t.Context(), metav1.ListOptions{})
	must(h.t, err)
	if at, err := position.Parse(maps.ResourceVersion); err != nil || len(at.Versions) != len(h.Cells) {
		h.t.Errorf("the position %s of a kind in cells does not have a field for each cell: %v", maps.ResourceVersion, err)
	}
}

// pages returns the names of a list that is read in pages; 0 means in one.
func (h *hubKinds) pages(path string, query url.Values, limit int) (found []string) {
	h.t.Helper()
	query = url.Values{"fieldSelector": query["fieldSelector"]}
	if limit > 0 {
		query.Set("limit", fmt.Sprint(limit))
	}
	version := ""
	for {
		var page metav1.PartialObjectMetadataList
		must(h.t, json.Unmarshal(h.get(h.t, path, query, "application/json"), &page))
		for i := range page.Items {
			found = append(found, page.Items[i].Name)
		}
		if version != "" && page.ResourceVersion != version || limit > 0 && len(page.Items) > limit {
			h.t.Errorf("a page of %d has version %s after %s", len(page.Items), page.ResourceVersion, version)
		}
		if version = page.ResourceVersion; page.Continue == "" {
			return found
		}
		query.Set("continue", page.Continue)
	}
}

// testDescribe finds the events of an object as kubectl describe does.
func (h *hubKinds) testDescribe() {
	list, err := h.client.CoreV1().Events(h.namespace).List(h.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=reader,involvedObject.kind=Role,involvedObject.namespace=" + h.namespace})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "reader.17a" {
		h.t.Errorf("found %v: %v", list.Items, err)
	}
	robot, err := h.client.CoreV1().ServiceAccounts(h.namespace).Create(h.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(h.t, err)
	h.event(h.Hub, "robot.17c", corev1.ObjectReference{APIVersion: "v1", Kind: "ServiceAccount", Name: robot.Name, UID: robot.UID})
	if described := h.kubectl.Must(h.t, "describe", "serviceaccount", "robot", "--namespace", h.namespace); !strings.Contains(described, "Tested") {
		h.t.Errorf("kubectl describe shows no event: %s", described)
	}
	must(h.t, h.hub.CoreV1().Events(h.namespace).Delete(h.t.Context(), "robot.17c", metav1.DeleteOptions{}))
	// Templates that are cluster-scoped have their bindings on the hub only, and their events in the namespace default.
	_, err = h.direct.Resource(clusterBindingsGVR).Create(h.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": map[string]any{"name": "hub-kinds-clusterrole"},
		"spec": map[string]any{"resource": map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "hub-kinds"}},
	}}, metav1.CreateOptions{})
	must(h.t, err)
	_, err = h.hub.CoreV1().Events("default").Create(h.t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "hub-kinds.17d"}, InvolvedObject: corev1.ObjectReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "hub-kinds"}, Reason: "Tested",
	}, metav1.CreateOptions{})
	must(h.t, err)
	if _, err := dynamicFor(h.t, h.surface("")).Resource(clusterBindingsGVR).Get(h.t.Context(), "hub-kinds-clusterrole", metav1.GetOptions{}); err != nil {
		h.t.Error(err)
	}
	list, err = h.client.CoreV1().Events("").List(h.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=hub-kinds,involvedObject.kind=ClusterRole"})
	if err != nil || len(list.Items) != 1 {
		h.t.Errorf("found %v: %v", list.Items, err)
	}
}

// count changes an event past the gateway.
func (h *hubKinds) count(plane *controlplane.ControlPlane, name string, count int32) {
	h.t.Helper()
	_, err := clientFor(h.t, adminOf(h.t, plane)).CoreV1().Events(h.namespace).Patch(h.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"count":%d}`, count), metav1.PatchOptions{})
	must(h.t, err)
}

// await reads a watch until an event has a count.
func (h *hubKinds) await(stream watch.Interface, name string, count int32) *corev1.Event {
	h.t.Helper()
	for {
		event := next(h.t, stream)
		object, ok := event.Object.(*corev1.Event)
		if !ok {
			h.t.Fatalf("got %v", event)
		}
		if event.Type != watch.Bookmark && object.Name == name && object.Count == count {
			return object
		}
	}
}

// testWatch watches from the version of a list, by a shared stream and without, and resumes from a bookmark.
func (h *hubKinds) testWatch() {
	for i, encoding := range encodings {
		for j, timeout := range []*int64{nil, ptr.To[int64](45)} { // short watches are not shared
			events := h.clientWith(h.t, encoding).CoreV1().Events(h.namespace)
			list, err := events.List(h.t.Context(), metav1.ListOptions{})
			must(h.t, err)
			stream, err := events.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: timeout, AllowWatchBookmarks: true})
			must(h.t, err)
			count := int32(100 + 10*i + j)
			h.count(h.Cells[1], "web-1.17b", count)
			h.await(stream, "web-1.17b", count)
			h.count(h.Hub, "reader.17a", count)
			seen := h.await(stream, "reader.17a", count)
			h.isOfHub(seen.ResourceVersion)
			got, err := events.Get(h.t.Context(), "reader.17a", metav1.GetOptions{})
			if err != nil || got.ResourceVersion != seen.ResourceVersion {
				h.t.Errorf("the event has version %s in the watch and %s when it is read: %v", seen.ResourceVersion, got.ResourceVersion, err)
			}
			bookmark := next(h.t, stream)
			stream.Stop()
			if bookmark.Type != watch.Bookmark {
				h.t.Fatalf("got %v, want a bookmark", bookmark)
			}
			h.count(h.Hub, "reader.17a", count+1000)
			resumed, err := events.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: bookmark.Object.(*corev1.Event).ResourceVersion, TimeoutSeconds: timeout})
			must(h.t, err)
			if first := next(h.t, resumed); first.Type != watch.Modified || first.Object.(*corev1.Event).Count != count+1000 {
				h.t.Errorf("the watch continues with %v", first)
			}
			resumed.Stop()
		}
	}
}

// testWatchAfterObject watches from the version of an object of the hub, of all objects and of this one only.
func (h *hubKinds) testWatchAfterObject() {
	events := h.client.CoreV1().Events(h.namespace)
	for i, selector := range []string{"", "metadata.name=reader.17a"} {
		from, err := events.Get(h.t.Context(), "reader.17a", metav1.GetOptions{})
		must(h.t, err)
		count := int32(2000 + i)
		h.count(h.Hub, "reader.17a", count)
		if selector == "" {
			h.count(h.Cells[0], "web-0.17b", count)
		}
		stream, err := events.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: from.ResourceVersion, FieldSelector: selector})
		must(h.t, err)
		h.await(stream, "reader.17a", count)
		stream.Stop()
		if selector != "" {
			continue
		}
		again, err := events.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: from.ResourceVersion})
		must(h.t, err)
		h.await(again, "web-0.17b", count)
		again.Stop()
		// The version means nothing in the cells of another kind, and is understood all the same.
		other, err := h.client.CoreV1().ConfigMaps(h.namespace).Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: from.ResourceVersion})
		must(h.t, err)
		_, err = h.client.CoreV1().ConfigMaps(h.namespace).Create(h.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
		must(h.t, err)
		if event := next(h.t, other); event.Type != watch.Added {
			h.t.Errorf("got %v", event)
		}
		other.Stop()
	}
}

// testInitialEvents begins a watch with the present objects of hub and cells.
func (h *hubKinds) testInitialEvents() {
	stream, err := h.client.CoreV1().Events(h.namespace).Watch(h.t.Context(), metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	must(h.t, err)
	defer stream.Stop()
	found := map[string]bool{}
	for {
		event := next(h.t, stream)
		object, ok := event.Object.(*corev1.Event)
		if !ok {
			h.t.Fatalf("got %v", event)
		}
		if event.Type == watch.Bookmark {
			break
		}
		found[object.Name] = true
	}
	if len(found) != 1+len(h.Cells) || !found["reader.17a"] {
		h.t.Errorf("the initial events are %v", found)
	}
	h.count(h.Hub, "reader.17a", 3000)
	h.await(stream, "reader.17a", 3000)
}

// testInformer has an informer follow a binding of the hub.
func (h *hubKinds) testInformer() {
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicFor(h.t, h.surface("/federation")), 0, h.namespace, nil)
	informer := factory.ForResource(bindingsGVR).Informer()
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		h.t.Fatal("the informer did not synchronize")
	}
	if keys := informer.GetStore().ListKeys(); len(keys) != 2+len(h.Cells) {
		h.t.Errorf("the informer has %v", keys)
	}
	bindings := h.direct.Resource(bindingsGVR).Namespace(h.namespace)
	must(h.t, h.createIn(h.direct, bindingsGVR, h.binding("late-role", "rbac.authorization.k8s.io/v1", "Role", "late")))
	state := func(want string) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) {
			object, exists, err := informer.GetStore().GetByKey(h.namespace + "/late-role")
			if !exists {
				return want == "gone", err
			}
			return object.(*unstructured.Unstructured).GetLabels()["state"] == want, err
		}
	}
	testenv.Eventually(h.t, "the informer has a new binding of the hub", state(""))
	_, err := bindings.Patch(h.t.Context(), "late-role", types.MergePatchType, []byte(`{"metadata":{"labels":{"state":"changed"}}}`), metav1.PatchOptions{})
	must(h.t, err)
	testenv.Eventually(h.t, "the informer has its change", state("changed"))
	must(h.t, bindings.Delete(h.t.Context(), "late-role", metav1.DeleteOptions{}))
	testenv.Eventually(h.t, "the informer has its deletion", state("gone"))
}

// testWrite changes and deletes objects of the hub by their names, with the versions that clients have.
func (h *hubKinds) testWrite() {
	bindings := dynamicFor(h.t, h.surface("")).Resource(bindingsGVR).Namespace(h.namespace)
	for _, name := range []string{"reader-role", h.nameIn(1, "web") + "-deployment"} { // on the hub and in a cell
		binding, err := bindings.Get(h.t.Context(), name, metav1.GetOptions{})
		must(h.t, err)
		binding.SetLabels(map[string]string{"written": "yes"})
		updated, err := bindings.Update(h.t.Context(), binding, metav1.UpdateOptions{})
		must(h.t, err)
		if _, err := bindings.Update(h.t.Context(), binding, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			h.t.Errorf("updating %s from an old version: %v, want a conflict", name, err)
		}
		must(h.t, unstructured.SetNestedSlice(updated.Object, []any{map[string]any{"clusterName": "member1", "applied": true}}, "status", "aggregatedStatus"))
		if _, err := bindings.UpdateStatus(h.t.Context(), updated, metav1.UpdateOptions{}); err != nil {
			h.t.Errorf("updating the status of %s: %v", name, err)
		}
	}
	stored, err := h.direct.Resource(bindingsGVR).Namespace(h.namespace).Get(h.t.Context(), "reader-role", metav1.GetOptions{})
	must(h.t, err)
	if statuses, _, _ := unstructured.NestedSlice(stored.Object, "status", "aggregatedStatus"); len(statuses) != 1 || stored.GetLabels()["written"] != "yes" {
		h.t.Errorf("the hub has %v", stored.Object)
	}
	events := h.client.CoreV1().Events(h.namespace)
	h.event(h.Hub, "brief.17e", corev1.ObjectReference{Kind: "Role", Name: "brief"})
	patched, err := events.Patch(h.t.Context(), "brief.17e", types.StrategicMergePatchType, []byte(`{"count":7}`), metav1.PatchOptions{})
	if err != nil || patched.Count != 7 {
		h.t.Fatalf("got %v: %v", patched, err)
	}
	h.isOfHub(patched.ResourceVersion)
	if err := events.Delete(h.t.Context(), "brief.17e", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1000000000000001")}}); !apierrors.IsConflict(err) {
		h.t.Errorf("deleting another version: %v, want a conflict", err)
	}
	must(h.t, events.Delete(h.t.Context(), "brief.17e", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &patched.ResourceVersion}}))
	if _, err := h.hub.CoreV1().Events(h.namespace).Get(h.t.Context(), "brief.17e", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		h.t.Errorf("the deleted event is still on the hub: %v", err)
	}
}

// testCreate creates a binding of a template that lives on the hub, which has to be there for its engine, and an event, which may be
// anywhere.
func (h *hubKinds) testCreate() {
	bindings := dynamicFor(h.t, h.surface("")).Resource(bindingsGVR).Namespace(h.namespace)
	created, err := bindings.Create(h.t.Context(), h.binding("made-role", "rbac.authorization.k8s.io/v1", "Role", "made"), metav1.CreateOptions{})
	must(h.t, err)
	h.isOfHub(created.GetResourceVersion())
	applied, err := bindings.Apply(h.t.Context(), "applied-role", h.binding("applied-role", "rbac.authorization.k8s.io/v1", "Role", "applied"), metav1.ApplyOptions{FieldManager: "test"})
	must(h.t, err)
	h.isOfHub(applied.GetResourceVersion())
	for _, name := range []string{"made-role", "applied-role"} {
		must(h.t, h.direct.Resource(bindingsGVR).Namespace(h.namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
	}
	event, err := h.client.CoreV1().Events(h.namespace).Create(h.t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "made."}, InvolvedObject: corev1.ObjectReference{Kind: "Role", Namespace: h.namespace, Name: "made"},
	}, metav1.CreateOptions{})
	must(h.t, err)
	if _, err := h.hub.CoreV1().Events(h.namespace).Get(h.t.Context(), event.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		h.t.Errorf("the event is on the hub: %v", err)
	}
	must(h.t, h.client.CoreV1().Events(h.namespace).Delete(h.t.Context(), event.Name, metav1.DeleteOptions{}))
}

// testRights has a tenant read the events of a namespace: those of the hub are included, and other namespaces are not.
func (h *hubKinds) testRights() {
	_, err := h.client.RbacV1().Roles(h.namespace).Create(h.t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "events"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"events"}}},
	}, metav1.CreateOptions{})
	must(h.t, err)
	_, err = h.client.RbacV1().RoleBindings(h.namespace).Create(h.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "events"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "events"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tess"}},
	}, metav1.CreateOptions{})
	must(h.t, err)
	tess := clientFor(h.t, h.gateway.ConfigFor(h.t, "tess")).CoreV1()
	testenv.Eventually(h.t, "tess sees the events of the hub and the cells", func(ctx context.Context) (bool, error) {
		list, err := tess.Events(h.namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1+len(h.Cells), err
	})
	if _, err := tess.Events(h.namespace).Get(h.t.Context(), "reader.17a", metav1.GetOptions{}); err != nil {
		h.t.Error(err)
	}
	stream, err := tess.Events(h.namespace).Watch(h.t.Context(), metav1.ListOptions{})
	must(h.t, err)
	h.await(stream, "reader.17a", 3000)
	stream.Stop()
	for _, namespace := range []string{"", "default", names.SystemNamespace} {
		if _, err := tess.Events(namespace).List(h.t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			h.t.Errorf("events of namespace %q: %v, want them forbidden", namespace, err)
		}
		if _, err := tess.Events(namespace).Watch(h.t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			h.t.Errorf("a watch of the events of namespace %q: %v, want it forbidden", namespace, err)
		}
	}
	if err := tess.Events(h.namespace).Delete(h.t.Context(), "reader.17a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		h.t.Errorf("deleting an event: %v, want it forbidden", err)
	}
}

// testControlPlane checks that lists over all namespaces leave out those of the control plane, which are on the hub.
func (h *hubKinds) testControlPlane() {
	all := h.client.CoreV1().Events("")
	create := func(client kubernetes.Interface, name string) {
		h.t.Helper()
		_, err := client.CoreV1().Events(names.SystemNamespace).Create(h.t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Kind: "Lease", Namespace: names.SystemNamespace, Name: "leader"},
		}, metav1.CreateOptions{})
		must(h.t, err)
	}
	create(h.hub, "system.17f")
	create(clientFor(h.t, adminOf(h.t, h.Cells[0])), "system-of-cell.17f")
	list, err := all.List(h.t.Context(), metav1.ListOptions{})
	must(h.t, err)
	for i := range list.Items {
		if list.Items[i].Namespace == names.SystemNamespace {
			h.t.Errorf("a list over all namespaces shows %s of the control plane", list.Items[i].Name)
		}
	}
	stream, err := all.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(h.t, err)
	defer stream.Stop()
	create(h.hub, "system-later.17f")
	h.count(h.Hub, "reader.17a", 4000)
	for shown := ""; shown != "reader.17a"; { // control planes may store other events in between
		event := next(h.t, stream)
		object, ok := event.Object.(*corev1.Event)
		if !ok || object.Namespace == names.SystemNamespace {
			h.t.Fatalf("a watch over all namespaces shows %v", event)
		}
		shown = object.Name
	}
	named, err := h.client.CoreV1().Events(names.SystemNamespace).List(h.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=leader,involvedObject.kind=Lease"})
	if err != nil || len(named.Items) != 2 {
		h.t.Errorf("%s lists %v: %v", names.SystemNamespace, named.Items, err)
	}
}

// testDeleteCollection deletes all events of the namespace.
func (h *hubKinds) testDeleteCollection() {
	if err := h.client.CoreV1().Events(h.namespace).DeleteCollection(h.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		h.t.Fatal(err)
	}
	left, err := h.hub.CoreV1().Events(h.namespace).List(h.t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		h.t.Errorf("the hub still has %v: %v", left.Items, err)
	}
	if list, err := h.client.CoreV1().Events(h.namespace).List(h.t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		h.t.Errorf("the list still has %v: %v", list.Items, err)
	}
}
