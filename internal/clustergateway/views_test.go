package clustergateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/testenv"
)

// TestMemberViews runs all tests against one federation. Those that disturb members come last.
func TestMemberViews(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Selectors", testSelectors},
		{"Forms", testForms},
		{"Pages", testPages},
		{"Versions", testVersions},
		{"VersionsOfReplicas", testVersionsOfReplicas},
		{"Events", testEvents},
		{"Informers", testInformers},
		{"InformersOfOld", testInformersOfOld},
		{"ControllerRuntime", testControllerRuntime},
		{"Trust", testTrust},
		{"RBAC", testRBAC},
		{"Concurrency", testConcurrency},
		{"OneVersion", testOneVersion},
		{"LastApplied", testLastApplied},
		{"Templates", testTemplates},
		{"EventsOnHub", testEventsOnHub},
		{"Collision", testCollision},
		{"Kubectl", testKubectl},
		{"Streams", testStreams},
		{"Subresources", testSubresources},
		{"WebSocketWatch", testWebSocketWatch},
		{"Drain", testDrain},
		{"DeleteCollection", testDeleteCollection},
		{"Metrics", testMetrics},
		{"WorkloadMetrics", testWorkloadMetrics},
		{"Search", testSearch},
		{"Shares", testShares},
		{"ReplicaSwitch", testReplicaSwitch},
		{"MemberRestart", testMemberRestart},
		{"Partition", testPartition},
		{"Reregistration", testReregistration},
		{"Tunnels", testTunnels},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

func testSelectors(t *testing.T, w *world) {
	namespace := w.namespace(t, "selectors")
	w.run(t, 0, namespace, "one", map[string]string{"app": "web"})
	w.run(t, 1, namespace, "two", map[string]string{"app": "db"})
	w.eventuallyPod(t, "the first pod runs", namespace, "one", running)
	two := w.eventuallyPod(t, "the second pod runs", namespace, "two", running)
	for selector, want := range map[string]string{
		"cellplane.io/cluster=member2":           "two",
		"cellplane.io/cluster!=member2":          "one",
		"cellplane.io/cluster in (member1,none)": "one",
		"app=web":                                "one",
		"app":                                    "one two",
		"app=web,cellplane.io/cluster=member2":   "",
		"app notin (web)":                        "two",
	} {
		if got := w.podNames(t, namespace, metav1.ListOptions{LabelSelector: selector}); got != want {
			t.Errorf("-l %q selects %q, want %q", selector, got, want)
		}
	}
	for selector, want := range map[string]string{
		"metadata.name=two": "two",
		"metadata.namespace=" + namespace + ",spec.nodeName=" + two.Spec.NodeName: "two",
		"spec.nodeName!=" + two.Spec.NodeName:                                     "one",
		"spec.restartPolicy=Always":                                               "one two",
		"spec.schedulerName=default-scheduler":                                    "one two",
		"spec.serviceAccountName=default":                                         "one two",
		"spec.hostNetwork=true":                                                   "",
		"status.phase=Running":                                                    "one two",
		"status.phase!=Running":                                                   "",
		"status.podIP=" + two.Status.PodIP:                                        "two",
		"status.nominatedNodeName=":                                               "one two",
	} {
		if got := w.podNames(t, namespace, metav1.ListOptions{FieldSelector: selector}); got != want && !(strings.Contains(selector, "podIP") && strings.Contains(got, want)) {
			t.Errorf("--field-selector %q selects %q, want %q", selector, got, want)
		}
	}
	_, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.colour=red"})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "field label not supported") {
		t.Errorf("an unknown field: %v", err)
	}
}

func running(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodRunning }

func (w *world) podNames(t testing.TB, namespace string, options metav1.ListOptions) string {
	t.Helper()
	list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), options)
	check(t, err)
	var all []string
	for _, pod := range list.Items {
		all = append(all, pod.Name)
	}
	return strings.Join(all, " ")
}

// testForms reads a pod in every encoding and compares it with the member's.
func testForms(t *testing.T, w *world) {
	namespace := w.namespace(t, "forms")
	w.run(t, 0, namespace, "one", map[string]string{"app": "web"})
	w.eventuallyPod(t, "the pod runs", namespace, "one", running)
	shown := w.settle(t, namespace, "one")
	path := "/api/v1/namespaces/" + namespace + "/pods"
	raw := func(path, accept string) []byte {
		t.Helper()
		body, err := w.client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(t.Context())
		if err != nil {
			t.Fatalf("%s as %s: %v", path, accept, err)
		}
		return body
	}
	all := runtime.NewScheme()
	check(t, scheme.AddToScheme(all))
	check(t, metav1.AddMetaToScheme(all))
	decoder := serializer.NewCodecFactory(all).UniversalDeserializer()
	for _, accept := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
		one, _, err := decoder.Decode(raw(path+"/one", accept), nil, nil)
		check(t, err)
		all, _, err := decoder.Decode(raw(path, accept), nil, nil)
		check(t, err)
		list, ok := all.(*corev1.PodList)
		if !ok || len(list.Items) != 1 {
			t.Fatalf("as %s the list is %T: %v", accept, all, all)
		}
		for _, pod := range []*corev1.Pod{one.(*corev1.Pod), &list.Items[0]} {
			if pod.ResourceVersion != shown.ResourceVersion || pod.UID != shown.UID || pod.Spec.NodeName != shown.Spec.NodeName || pod.Annotations["cellplane.io/cluster"] != "member1" || len(pod.ManagedFields) > 0 {
				t.Errorf("as %s the pod is %v", accept, pod)
			}
		}
	}
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		one, _, err := decoder.Decode(raw(path+"/one", encoding+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), nil, nil)
		check(t, err)
		all, _, err := decoder.Decode(raw(path, encoding+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), nil, nil)
		check(t, err)
		list := all.(*metav1.PartialObjectMetadataList)
		if one.(*metav1.PartialObjectMetadata).UID != shown.UID || len(list.Items) != 1 || list.Items[0].UID != shown.UID || list.ResourceVersion == "" {
			t.Errorf("the metadata as %s are %v and %v", encoding, one, list)
		}
	}
	var table metav1.Table
	check(t, json.Unmarshal(raw(path, "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"), &table))
	if len(table.Rows) != 1 || table.ColumnDefinitions[1].Name != "Cluster" || fmt.Sprint(table.Rows[0].Cells[:5]) != "[one member1 1/1 Running 0]" {
		t.Errorf("the Table is %v", table)
	}
	stream, err := w.client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Param("watch", "1").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Stream(t.Context())
	check(t, err)
	defer stream.Close()
	var event struct {
		Type   string
		Object metav1.Table
	}
	check(t, json.NewDecoder(stream).Decode(&event))
	if event.Type != "ADDED" || len(event.Object.Rows) != 1 || len(event.Object.ColumnDefinitions) != len(table.ColumnDefinitions) {
		t.Errorf("the first row is %v", event)
	}
}

func testPages(t *testing.T, w *world) {
	namespace := w.namespace(t, "pages")
	for i := range 7 {
		w.run(t, i%2, namespace, fmt.Sprintf("pod-%d", i), nil)
	}
	testenv.Eventually(t, "all pods are shown", func(ctx context.Context) (bool, error) {
		list, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 7, err
	})
	pods := w.client.CoreV1().Pods(namespace)
	first, err := pods.List(t.Context(), metav1.ListOptions{Limit: 3})
	check(t, err)
	w.run(t, 0, namespace, "pod-2-later", nil)
	w.eventuallyPod(t, "the pod between the pages is shown", namespace, "pod-2-later", in("member1"))
	seen, page := len(first.Items), first
	for page.Continue != "" {
		token := page.Continue
		page, err = pods.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: token})
		check(t, err)
		seen += len(page.Items)
		if page.ResourceVersion != first.ResourceVersion {
			t.Errorf("pages have the versions %s and %s", first.ResourceVersion, page.ResourceVersion)
		}
		if _, err := pods.List(t.Context(), metav1.ListOptions{Continue: token, ResourceVersion: first.ResourceVersion}); !apierrors.IsBadRequest(err) {
			t.Errorf("a version together with a token: %v", err)
		}
	}
	if seen != 7 {
		t.Errorf("the pages show %d pods, want 7", seen)
	}
	exact, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil || len(exact.Items) != 7 {
		t.Errorf("at the exact version the list is %v, %v", exact, err)
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an invalid token: %v", err)
	}
}

// testVersionsOfReplicas continues at the gateway from versions of each replica, as clients do when a replica that they prefer becomes ready.
func testVersionsOfReplicas(t *testing.T, w *world) {
	namespace := w.namespace(t, "versions-of-replicas")
	for i := range 3 {
		w.run(t, 0, namespace, fmt.Sprintf("pod-%d", i), nil)
	}
	pods := w.client.CoreV1().Pods(namespace)
	for _, r := range w.replicas {
		direct := w.direct(t, r).CoreV1().Pods(namespace)
		testenv.Eventually(t, "replica "+r.name+" and the gateway show the pods", func(ctx context.Context) (bool, error) {
			list, err := direct.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != 3 {
				return false, err
			}
			// The gateway asks this replica only once it has found it ready.
			list, err = pods.List(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			return err == nil && len(list.Items) == 3, err
		})
	}
	for _, r := range w.replicas {
		first, err := w.direct(t, r).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 2})
		check(t, err)
		second, err := pods.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.Continue})
		if err != nil || len(second.Items) == 0 || second.ResourceVersion != first.ResourceVersion {
			t.Errorf("the second page of replica %s is %v, %v", r.name, second, err)
		}
		watcher, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		check(t, err)
		later := w.run(t, 0, namespace, "later-"+r.name, nil)
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Errorf("a watch from a version of replica %s sends %v", r.name, event)
				break
			}
			if pod.UID == later.UID {
				break
			}
		}
		watcher.Stop()
	}
}

// testVersions lists and watches with all kinds of resourceVersions.
func testVersions(t *testing.T, w *world) {
	namespace := w.namespace(t, "versions")
	w.run(t, 0, namespace, "one", nil)
	w.eventuallyPod(t, "the pod is shown", namespace, "one", in("member1"))
	pods := w.client.CoreV1().Pods(namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	check(t, err)
	for _, foreign := range []string{"12345", "1000000000000000001", strings.Repeat("9", 40)} {
		if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: foreign}); !apierrors.IsResourceExpired(err) {
			t.Errorf("listing at %s: %v, want 410", foreign, err)
		}
		watcher, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: foreign})
		if err != nil {
			t.Errorf("watching from %s: %v, want an event", foreign, err)
			continue
		}
		event := <-watcher.ResultChan()
		if event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			t.Errorf("watching from %s: %v", foreign, event)
		}
		watcher.Stop()
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsInvalid(err) {
		t.Errorf("conflicting options: %v, want 422", err)
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "no number"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a version that is not a number: %v", err)
	}
	seconds := int64(2)
	watcher, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	check(t, err)
	bookmarks := 0
	for event := range watcher.ResultChan() {
		if event.Type == watch.Bookmark {
			bookmarks++
		}
	}
	if bookmarks == 0 {
		t.Error("an idle watch ended without a bookmark")
	}
	initial := true
	watcher, err = pods.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	check(t, err)
	defer watcher.Stop()
	added, ended := 0, false
	for !ended {
		switch event := <-watcher.ResultChan(); event.Type {
		case watch.Added:
			added++
		case watch.Bookmark:
			ended = event.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey] == "true"
		case "", watch.Error:
			t.Fatalf("a watch with initial events ends with %v", event)
		}
	}
	if added != 1 {
		t.Errorf("a watch with initial events begins with %d objects, want 1", added)
	}
}

func testEvents(t *testing.T, w *world) {
	namespace := w.namespace(t, "events")
	pod := w.run(t, 0, namespace, "one", nil)
	create(t, w.members[0].CoreV1().Events(namespace).Create, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "it"}, Reason: "Testing", Message: "hello", Type: "Normal",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID},
		Source:         corev1.EventSource{Component: "test"},
	})
	selector := fmt.Sprintf("involvedObject.name=%s,involvedObject.uid=%s,involvedObject.kind=Pod,involvedObject.namespace=%s,reason=Testing,type=Normal,source=test", pod.Name, pod.UID, namespace)
	testenv.Eventually(t, "the event is shown", func(ctx context.Context) (bool, error) {
		events, err := w.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		return err == nil && len(events.Items) == 1 && events.Items[0].Message == "hello", err
	})
	for _, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		client := clientFor(t, config).EventsV1().Events(namespace)
		events, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=one,reason=Testing"})
		if err != nil || len(events.Items) != 1 || events.Items[0].Note != "hello" || events.Items[0].Regarding.UID != pod.UID {
			t.Errorf("events.k8s.io/v1 as %s has %v, %v", encoding, events, err)
		}
		watcher, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: "reason=Testing"})
		check(t, err)
		if event := <-watcher.ResultChan(); event.Type != watch.Added {
			t.Errorf("watching events.k8s.io/v1 as %s: %v", encoding, event)
		}
		watcher.Stop()
	}
	if _, err := w.client.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=one"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field of the other version: %v", err)
	}
	// Events about templates are shown too.
	create(t, w.client.CoreV1().Events(namespace).Create, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "template"}, Reason: "Testing", InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Namespace: namespace, Name: "web"},
	})
	testenv.Eventually(t, "both events are shown", func(ctx context.Context) (bool, error) {
		events, err := w.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Testing"})
		return err == nil && len(events.Items) == 2, err
	})
}

// testTrust checks that a cluster-gateway serves gateways only.
func testTrust(t *testing.T, w *world) {
	config := w.config(t, w.Hub) // not the identity of a gateway
	config.Host = w.replicas[0].url()
	if _, err := clientFor(t, config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("an administrator of the hub: %v, want 401", err)
	}
	config = rest.AnonymousClientConfig(config)
	if _, err := clientFor(t, config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("an anonymous client: %v, want 401", err)
	}
	if _, err := w.direct(t, w.replicas[0]).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a gateway: %v", err)
	}
}

func testRBAC(t *testing.T, w *world) {
	namespace := w.namespace(t, "rbac")
	w.run(t, 0, namespace, "one", nil)
	w.eventuallyPod(t, "the pod is shown", namespace, "one", in("member1"))
	hub := clientFor(t, w.config(t, w.Hub))
	create(t, hub.RbacV1().Roles(namespace).Create, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}})
	create(t, hub.RbacV1().RoleBindings(namespace).Create, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "frank"}}})
	frank := clientFor(t, w.gateway.ConfigFor(t, "frank"))
	testenv.Eventually(t, "frank may read", func(ctx context.Context) (bool, error) {
		list, err := frank.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1, err
	})
	for what, err := range map[string]error{
		"pods everywhere":    second(frank.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})),
		"pods elsewhere":     second(frank.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})),
		"watching elsewhere": second(frank.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})),
		"nodes":              second(frank.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})),
		"events":             second(frank.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})),
		"new events":         second(frank.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})),
		"replica sets":       second(frank.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{})),
		"deleting":           frank.CoreV1().Pods(namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}),
		"logs":               second(frank.CoreV1().Pods(namespace).GetLogs("one", &corev1.PodLogOptions{}).DoRaw(t.Context())),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want 403", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
