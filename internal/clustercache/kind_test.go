package clustercache_test

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

// count returns how many objects a filter selects.
func count(t *testing.T, store *clustercache.Store, filter clustercache.Filter) int {
	t.Helper()
	list, err := store.List(clustercache.ListOptions{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	return list.Len()
}

func fieldFilter(t *testing.T, selector string) clustercache.Filter {
	t.Helper()
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return clustercache.Filter{Fields: parsed}
}

func TestFieldsOfTheKinds(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u", ResourceVersion: "1"}
	bare := metav1.ObjectMeta{Namespace: "ns", Name: "bare", UID: "b", ResourceVersion: "2"}
	reference := corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0", UID: "pod-uid", APIVersion: "v1", ResourceVersion: "77", FieldPath: "spec.containers{app}"}
	for _, test := range []struct {
		kind         clustercache.Kind
		full, bare   runtime.Object
		of           []string // match only full
		ofBare, none []string
	}{
		{
			kind: clustercache.Pods(),
			full: &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n1", RestartPolicy: "Never", SchedulerName: "s", ServiceAccountName: "sa", HostNetwork: true},
				Status: corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1", NominatedNodeName: "n2"}},
			bare: &corev1.Pod{ObjectMeta: bare},
			of: []string{"spec.nodeName=n1", "spec.restartPolicy=Never", "spec.schedulerName=s", "spec.serviceAccountName=sa", "spec.hostNetwork=true", "status.phase=Running",
				"status.podIP=10.0.0.1", "status.nominatedNodeName=n2", "metadata.name=x", "metadata.namespace=ns,metadata.name!=bare", "spec.nodeName!="},
			ofBare: []string{"spec.nodeName=", "spec.hostNetwork=false", "status.phase!=Running", "status.podIP!=10.0.0.1"},
			none:   []string{"spec.nodeName=n2", "metadata.namespace=other", "metadata.name=x,metadata.name=bare"},
		},
		{
			kind: clustercache.Events(),
			full: &corev1.Event{ObjectMeta: meta, InvolvedObject: reference, Reason: "Pulled", Type: "Normal", Source: corev1.EventSource{Component: "kubelet"}, ReportingController: "kubelet-2"},
			bare: &corev1.Event{ObjectMeta: bare, ReportingController: "other"},
			of: []string{"involvedObject.kind=Pod", "involvedObject.namespace=ns", "involvedObject.name=web-0", "involvedObject.uid=pod-uid", "involvedObject.apiVersion=v1",
				"involvedObject.resourceVersion=77", "involvedObject.fieldPath=spec.containers{app}", "reason=Pulled", "type=Normal", "source=kubelet", "reportingComponent=kubelet-2"},
			ofBare: []string{"source=other", "reportingComponent=other", "involvedObject.uid="},
			none:   []string{"source=kubelet-2"},
		},
		{
			kind:   clustercache.Nodes(),
			full:   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "1"}, Spec: corev1.NodeSpec{Unschedulable: true}},
			bare:   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", UID: "b", ResourceVersion: "1"}},
			of:     []string{"spec.unschedulable=true", "metadata.name=x"},
			ofBare: []string{"spec.unschedulable=false", "metadata.name!=x", "metadata.namespace=,metadata.name=bare"},
			none:   []string{"metadata.namespace=default"},
		},
		{
			kind:   clustercache.ReplicaSets(),
			full:   &appsv1.ReplicaSet{ObjectMeta: meta, Status: appsv1.ReplicaSetStatus{Replicas: 3}},
			bare:   &appsv1.ReplicaSet{ObjectMeta: bare},
			of:     []string{"status.replicas=3"},
			ofBare: []string{"status.replicas=0"},
		},
	} {
		t.Run(test.kind.Resource, func(t *testing.T) {
			store := newStore(t, clustercache.Options{Kind: test.kind})
			feed := store.Feed("m1")
			for _, object := range []runtime.Object{test.full, test.bare} {
				if err := feed.ApplyObject(object); err != nil {
					t.Fatal(err)
				}
			}
			for name, selectors := range map[string][]string{"x": test.of, "bare": test.ofBare, "": test.none} {
				for _, selector := range selectors {
					list, err := store.List(clustercache.ListOptions{Filter: fieldFilter(t, selector)})
					if err != nil {
						t.Fatal(err)
					}
					got := ""
					for object, err := range list.Objects() {
						if err != nil {
							t.Fatal(err)
						}
						got += object.Name
					}
					list.Close()
					if got != name {
						t.Errorf("%s selects %q, want %q", selector, got, name)
					}
				}
			}
			if _, err := store.List(clustercache.ListOptions{Filter: fieldFilter(t, "spec.nothing=1")}); !apierrors.IsBadRequest(err) {
				t.Errorf("an unknown field: got %v", err)
			}
			if got := count(t, store, clustercache.Filter{}); got != 2 {
				t.Errorf("%d objects, want 2", got)
			}
		})
	}
}

func TestWhatIsDropped(t *testing.T) {
	pod := simplePod("p", 1, func(pod *corev1.Pod) {
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}}
		pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kept": "yes", names.ClusterAnnotation: "forged", names.MemberVersionAnnotation: "forged"}
		pod.Labels = map[string]string{names.ClusterLabel: "forged", "app": "web"}
	})
	for name, test := range map[string]struct {
		options    clustercache.Options
		managed    int
		annotation int
	}{
		"by default":  {clustercache.Options{}, 0, 3},
		"when kept":   {clustercache.Options{KeepManagedFields: true, KeepLastApplied: true}, 1, 4},
		"one of them": {clustercache.Options{KeepManagedFields: true}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, test.options)
			apply(t, store.Feed("m1"), pod)
			object, err := store.Get("", "default", "p")
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.Pod
			if err := got.Unmarshal(object.Raw); err != nil {
				t.Fatal(err)
			}
			if len(got.ManagedFields) != test.managed || len(got.Annotations) != test.annotation || got.Annotations[names.ClusterAnnotation] != "m1" || got.Annotations[names.MemberVersionAnnotation] != "1" {
				t.Errorf("got %v", got.ObjectMeta)
			}
			for selector, want := range map[string]int{names.ClusterLabel + "=forged": 0, names.ClusterLabel + "=m1": 1, names.ClusterLabel: 1, "!" + names.ClusterLabel: 0} {
				parsed, err := labels.Parse(selector)
				if err != nil {
					t.Fatal(err)
				}
				if got := count(t, store, clustercache.Filter{Labels: parsed}); got != want {
					t.Errorf("%s selects %d, want %d", selector, got, want)
				}
			}
		})
	}
}

func TestObjectsThatAreRefused(t *testing.T) {
	pods, nodes := newStore(t, clustercache.Options{}), newStore(t, clustercache.Options{Kind: clustercache.Nodes()})
	for name, err := range map[string]error{
		"garbage":                 pods.Feed("m1").Apply([]byte("garbage")),
		"garbage to delete":       pods.Feed("m1").Delete([]byte("garbage")),
		"a pod outside":           pods.Feed("m1").ApplyObject(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}),
		"a node inside":           nodes.Feed("m1").ApplyObject(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}}),
		"a value with separators": pods.Feed("m1").ApplyObject(simplePod("p", 1, func(p *corev1.Pod) { p.Spec.SchedulerName = "a\x00b" })),
		"something enormous": pods.Feed("m1").ApplyObject(simplePod("p", 1, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"a": strings.Repeat("x", 9<<20)}
		})),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if stats := pods.Stats(); stats.Objects != 0 {
		t.Errorf("%d objects", stats.Objects)
	}
	for _, token := range []string{"x", "eyJ2IjoxfQ", "e30"} {
		if _, err := pods.List(clustercache.ListOptions{Continue: token}); !apierrors.IsBadRequest(err) {
			t.Errorf("the token %s: got %v", token, err)
		}
	}
}

func TestLargeObjects(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	noise := func(seed byte, size int) string {
		b := bytes.Repeat([]byte{0}, size)
		x := uint32(seed) + 1
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = 'a' + byte(x>>24)%26
		}
		return string(b)
	}
	for i, size := range []int{10, 40_000, 70_000, 1 << 20} {
		for version := range 3 {
			want := noise(byte(version), size)
			apply(t, feed, simplePod("p", 1+i*10+version, func(p *corev1.Pod) { p.Annotations = map[string]string{"a": want} }))
			object, err := store.Get("", "default", "p")
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.Pod
			if err := got.Unmarshal(object.Raw); err != nil || got.Annotations["a"] != want {
				t.Fatalf("an annotation of %d bytes changed, %v", size, err)
			}
		}
	}
}

func TestAListThatContinuesAnywhere(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	for _, name := range []string{"a", "b", "c"} {
		apply(t, feed, simplePod(name, 1))
	}
	at := store.Version()
	feed.DeleteObject("default", "c")
	for version, want := range map[uint64]string{0: "b", at: "bc"} {
		list, err := store.List(clustercache.ListOptions{Continue: clustercache.ContinueAfter(version, "default", "a")})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for object, err := range list.Objects() {
			if err != nil {
				t.Fatal(err)
			}
			got += object.Name
		}
		if _, remaining := list.Continue(); got != want || remaining != nil {
			t.Errorf("after a at version %d: got %q, %v remaining, want %q", version, got, remaining, want)
		}
		list.Close()
	}
}
