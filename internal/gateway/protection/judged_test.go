package protection

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv/doors"
)

// builtIn shows some groups of an API server only: tests of other packages define kinds in it.
type builtIn struct{ discovery.DiscoveryInterface }

// ServerGroupsAndResources implements discovery.DiscoveryInterface.
func (b builtIn) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	var lists []*metav1.APIResourceList
	for _, version := range []string{"v1", "apps/v1"} {
		list, err := b.ServerResourcesForGroupVersion(version)
		if err != nil {
			return nil, nil, err
		}
		lists = append(lists, list)
	}
	return nil, lists, nil
}

// TestAnotherVersionIsJudged sends every request that changes or deletes an object, while the guard reads it as it was before: not protected yet, or
// with few replicas. The request names no version, or the one that is stored, which clients can guess. Only what was judged may be changed.
func TestAnotherVersionIsJudged(t *testing.T) {
	s := startServer(t, &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "judged"}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"*"}, Kinds: []string{"*"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{doors.Label: "protected"}}}},
		Deletion:          &cellplanev1alpha1.DeletionProtection{},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: ptr.To(intstr.FromInt32(1))},
	}})
	namespace := newNamespace(t, s.client)
	kinds, err := doors.Discover(builtIn{s.client.Discovery()})
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, kind := range kinds {
		switch kind.Resource {
		case "configmaps", "pods", "deployments":
			tried += s.testJudged(t, namespace, kind)
		}
	}
	if tried < 250 {
		t.Errorf("only %d requests were tried", tried)
	}
}

// testJudged returns how many requests it has tried.
func (s *server) testJudged(t *testing.T, namespace string, kind doors.Kind) (tried int) {
	t.Helper()
	object, _, err := kind.Sample(namespace, "judged")
	if err != nil {
		t.Fatal(err)
	}
	_, scales, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	change := func(label string, replicas int) []byte {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, doors.Label, label)
		if scales {
			patch = fmt.Sprintf(`{"metadata":{"labels":{%q:%q}},"spec":{"replicas":%d}}`, doors.Label, label, replicas)
		}
		return s.raw(t, http.MethodPatch, kind.Path(namespace, object.GetName()), string(types.MergePatchType), []byte(patch))
	}
	body, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	s.raw(t, http.MethodPost, strings.TrimSuffix(kind.Path(namespace, ""), "/"), "application/json", body)
	earlier := map[string][]byte{"not protected": change("other", 10)}
	if scales {
		earlier["with few replicas"] = change("protected", 1)
	}
	stored := &unstructured.Unstructured{}
	if err := stored.UnmarshalJSON(change("protected", 10)); err != nil {
		t.Fatal(err)
	}
	all, err := kind.Of(stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		named, found, err := d.Naming(stored.GetResourceVersion())
		if err != nil {
			t.Fatal(err)
		}
		requests := map[string]doors.Door{"no version": d}
		if found {
			requests["the stored version"] = named
		}
		for judged, data := range earlier {
			for names, request := range requests {
				tried++
				s.stale = data
				code, answer := s.pass(t, request)
				s.stale = nil
				if harm := s.harmed(t, kind, stored); harm != "" || d.Harm == doors.Delete && code != http.StatusForbidden && code != http.StatusConflict {
					t.Fatalf("%s, naming %s, judged as it was %s: %d %s; the object %s", d, names, judged, code, answer, harm)
				}
			}
		}
	}
	return tried
}

// raw sends a request past the guard.
func (s *server) raw(t *testing.T, method, path, contentType string, body []byte) []byte {
	t.Helper()
	answer, err := s.client.Discovery().RESTClient().Verb(method).AbsPath(path).SetHeader("Accept", "application/json").SetHeader("Content-Type", contentType).Body(body).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// pass sends a request through the guard.
func (s *server) pass(t *testing.T, d doors.Door) (int, string) {
	t.Helper()
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[d.Method]
	if strings.Contains(d.Query, "Selector") {
		verb = "deletecollection"
	}
	return s.do(t, verb, d.Method, d.Path+"?"+d.Query, d.ContentType, d.Body)
}

// harmed says what has become of a protected object with ten replicas, "" if nothing has.
func (s *server) harmed(t *testing.T, kind doors.Kind, stored *unstructured.Unstructured) string {
	t.Helper()
	answer, err := s.client.Discovery().RESTClient().Get().AbsPath(kind.Path(stored.GetNamespace(), stored.GetName())).SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		return err.Error()
	}
	now := &unstructured.Unstructured{}
	if err := now.UnmarshalJSON(answer); err != nil {
		t.Fatal(err)
	}
	replicas, scales, _ := unstructured.NestedInt64(now.Object, "spec", "replicas")
	switch {
	case now.GetUID() != stored.GetUID(), now.GetDeletionTimestamp() != nil:
		return "is deleted"
	case now.GetLabels()[doors.Label] != "protected":
		return "is no longer selected"
	case scales && replicas < 10:
		return fmt.Sprintf("has %d replicas", replicas)
	}
	return ""
}
