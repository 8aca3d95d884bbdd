package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/doors"
)

// guardMatrix tries every way to change or delete objects that are protected by their label, and by a policy that selects them by a label.
type guardMatrix struct {
	*world
	namespace string
	http      *http.Client
	host      string
}

const widgetDefinition = "widgets.guards.example.io"

// testGuards tries every verb of every resource and subresource, in every content type, on both surfaces. An object that nothing
// protects shows that each of these requests is valid.
func testGuards(t *testing.T, w *world) {
	m := newGuardMatrix(t, w)
	durable := newDurableMatrix(t, m)
	kinds, err := doors.Discover(w.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	// These kinds show that the requests are valid, and are tried on both surfaces.
	thorough := map[string]bool{"configmaps": true, "pods": true, "deployments": true, "statefulsets": true, "widgets": true, "roles": true}
	found := map[string]bool{}
	for _, kind := range kinds {
		if _, sampled, err := kind.Sample(m.namespace, "any"); err != nil || !sampled {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		found[kind.Resource] = true
		t.Run(kind.Resource+"."+kind.Version, func(t *testing.T) {
			t.Parallel()
			surfaces := []string{""}
			if thorough[kind.Resource] {
				surfaces = append(surfaces, "/federation")
				m.testDoorsAreOpen(t, kind)
			}
			for _, surface := range surfaces {
				m.testProtected(t, surface, kind, thorough[kind.Resource] && surface == "")
			}
			durable.test(t, kind, thorough[kind.Resource])
		})
	}
	for resource := range thorough {
		if !found[resource] {
			t.Errorf("discovery does not list %s", resource)
		}
	}
	t.Run("Forms", func(t *testing.T) { t.Parallel(); durable.testForms(t) })
	t.Run("Namespace", func(t *testing.T) { t.Parallel(); m.testNamespaceDoors(t) })
	t.Run("Finalize", func(t *testing.T) { t.Parallel(); m.testFinalize(t) })
	t.Run("Definition", func(t *testing.T) { t.Parallel(); m.testDefinitionDoors(t) })
	t.Run("Replicas", func(t *testing.T) { t.Parallel(); m.testReplicasElsewhere(t) })
	t.Run("Versions", func(t *testing.T) { t.Parallel(); m.testReplicasOfVersions(t) })
	t.Run("ScaledToZero", func(t *testing.T) { t.Parallel(); m.testScaledToZero(t) })
	t.Run("Groups", func(t *testing.T) { t.Parallel(); m.testGroups(t) })
	t.Run("NamespaceLabels", func(t *testing.T) { t.Parallel(); m.testNamespaceLabels(t) })
}

func newGuardMatrix(t *testing.T, w *world) *guardMatrix {
	t.Helper()
	m := &guardMatrix{world: w, namespace: gatewaytest.Namespace(t, w.Federation, "guards")}
	config := w.gateway.Config(t)
	var err error
	if m.http, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	m.host = config.Host
	for _, plane := range []*rest.Config{adminOf(t, w.Hub), adminOf(t, w.Cells[0]), adminOf(t, w.Cells[1]), adminOf(t, w.Cells[2])} {
		m.define(t, plane, "widget", "spec.replicas")
		m.define(t, plane, "gadget", "spec.size.wanted")
		m.define(t, plane, "gizmo", "spec.replicas")
	}
	testenv.Eventually(t, "discovery lists the widgets", func(context.Context) (bool, error) {
		list, err := w.client.Discovery().ServerResourcesForGroupVersion("guards.example.io/v1")
		return err == nil && len(list.APIResources) == 9, err
	})
	labelled := newDeployment(t, w.client, m.namespace)
	if _, err := w.client.AppsV1().Deployments(m.namespace).Patch(t.Context(), labelled, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"protected"}}}`, doors.Label), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.protect(t, "guards", cellplanev1alpha1.ProtectionPolicySpec{
		Deletion:  &cellplanev1alpha1.DeletionProtection{},
		ScaleDown: &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: ptr.To(intstr.FromInt32(1))},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{
			{APIGroups: []string{"*"}, Kinds: []string{"*"}, Namespaces: []string{m.namespace}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{doors.Label: "protected"}}},
			{APIGroups: []string{"*"}, Kinds: []string{"*"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{doors.Label: "inside"}}},
		},
	}, func(ctx context.Context) error { return scaleTo(ctx, w.client, m.namespace, labelled, 1, true) })
	return m
}

// define defines a kind of the group guards.example.io with the replicas in a field. Gadgets have a second version, without a scale. That of
// gizmos scales another field, and lacks the first.
func (m *guardMatrix) define(t *testing.T, plane *rest.Config, singular, replicas string) {
	t.Helper()
	name, kind := singular+"s.guards.example.io", strings.ToUpper(singular[:1])+singular[1:]
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{doors.Label: name}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "guards.example.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: "." + replicas, StatusReplicasPath: ".status.replicas"},
				},
			}},
		},
	}
	if singular == "gadget" {
		old := definition.Spec.Versions[0].DeepCopy()
		old.Name, old.Storage, old.Subresources = "v1beta1", false, nil
		definition.Spec.Versions = append(definition.Spec.Versions, *old)
	}
	if singular == "gizmo" {
		next := definition.Spec.Versions[0].DeepCopy()
		next.Name, next.Storage, next.Subresources.Scale.SpecReplicasPath = "v2", false, ".spec.size"
		next.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
		}}
		definition.Spec.Versions = append(definition.Spec.Versions, *next)
	}
	definitions := clientset.NewForConfigOrDie(plane).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = definitions.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// send sends a request to the gateway and returns status code and body. Like all clients it repeats a request that is answered with
// Retry-After: an API server asks for that while it initializes the storage of a new kind.
func (m *guardMatrix) send(t *testing.T, surface, method, path, query, contentType string, body []byte) (code int, answer []byte) {
	t.Helper()
	testenv.Eventually(t, method+" "+path+" is answered", func(context.Context) (bool, error) {
		code, answer = m.sendOnce(t, surface, method, path, query, contentType, body)
		return code != http.StatusTooManyRequests, fmt.Errorf("%s", answer)
	})
	return code, answer
}

func (m *guardMatrix) sendOnce(t *testing.T, surface, method, path, query, contentType string, body []byte) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, m.host+surface+path+"?"+query, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Accept", "application/json")
	response, err := m.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

func (m *guardMatrix) pass(t *testing.T, surface string, d doors.Door) (int, []byte) {
	t.Helper()
	return m.send(t, surface, d.Method, d.Path, d.Query, d.ContentType, d.Body)
}

// create creates a sample with labels, and returns it as it is stored.
func (m *guardMatrix) create(t *testing.T, kind doors.Kind, namespace, name string, labels map[string]string) *unstructured.Unstructured {
	t.Helper()
	object, _, err := kind.Sample(namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	all := object.GetLabels()
	maps.Copy(all, labels)
	object.SetLabels(all)
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(kind.Path(namespace, ""), "/"), "", "application/json", body)
	if code != http.StatusCreated {
		t.Fatalf("creating %s %s: %d %s", kind.Kind, name, code, answer)
	}
	return decoded(t, answer)
}

func decoded(t *testing.T, data []byte) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &object.Object); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return object
}

// get returns an object as it is stored, nil if it is gone.
func (m *guardMatrix) get(t *testing.T, kind doors.Kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	code, answer := m.send(t, "/federation", http.MethodGet, kind.Path(namespace, name), "", "", nil)
	if code == http.StatusNotFound {
		return nil
	}
	if code != http.StatusOK {
		t.Fatalf("reading %s %s: %d %s", kind.Kind, name, code, answer)
	}
	return decoded(t, answer)
}

// testDoorsAreOpen sends every request for an object that nothing protects.
func (m *guardMatrix) testDoorsAreOpen(t *testing.T, kind doors.Kind) {
	t.Helper()
	count := 1
	for i := 0; i < count; i++ {
		object := m.create(t, kind, m.namespace, fmt.Sprintf("twin-%d", i), nil)
		list, err := kind.Of(object)
		if err != nil {
			t.Fatal(err)
		}
		count = len(list)
		d := list[i]
		code, answer := m.pass(t, "", d)
		if code >= 300 {
			t.Errorf("%s of an object that is not protected: %d %s", d, code, answer)
		}
		after := m.get(t, kind, m.namespace, object.GetName())
		if d.Harm == doors.Delete && after != nil && after.GetDeletionTimestamp() == nil {
			t.Errorf("%s did not delete anything", d)
		}
		if replicas, found, _ := unstructured.NestedInt64(objectOf(after), "spec", "replicas"); d.Harm == doors.Scale && !strings.Contains(d.Path, "/status") && found && replicas > 1 {
			t.Errorf("%s did not scale anything", d)
		}
	}
}

func objectOf(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	return object.Object
}

// testProtected sends every request for an object that a policy protects, and every deletion for one that its label protects. If naming is set,
// requests also name the version of the object, and the next one, as clients may guess it.
func (m *guardMatrix) testProtected(t *testing.T, surface string, kind doors.Kind, naming bool) {
	t.Helper()
	for name, labels := range map[string]map[string]string{
		"protected-" + kind.Version: {doors.Label: "protected"},
		"labelled-" + kind.Version:  {names.DeletionProtectedLabel: names.DeletionProtectedAlways},
	} {
		if labels[doors.Label] != "" && !kind.Namespaced {
			continue // the policy selects objects in namespaces
		}
		object := m.get(t, kind, m.namespace, name)
		if object == nil {
			object = m.create(t, kind, m.namespace, name, labels)
			m.removeAtLast(t, kind, name)
		}
		list, err := kind.Of(object)
		if err != nil {
			t.Fatal(err)
		}
		if naming {
			version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			must(t, err)
			list, err = doors.AlsoNaming(list, object.GetResourceVersion(), strconv.FormatUint(version+1, 10))
			must(t, err)
		}
		for _, d := range list {
			if labels[doors.Label] == "" && d.Harm != doors.Delete {
				continue
			}
			code, answer := m.pass(t, surface, d)
			after := m.get(t, kind, m.namespace, name)
			if (code == http.StatusForbidden && strings.Contains(string(answer), "rotect") || code == http.StatusConflict && naming) && harmDone(object, after) == "" {
				continue // refused
			}
			if d.Harm == doors.Delete || code == http.StatusForbidden || code >= 500 {
				t.Errorf("%s %s: %d %s; want it refused", surface, d, code, answer)
			}
			if harm := harmDone(object, after); harm != "" {
				t.Fatalf("%s %s: %d, and the object %s", surface, d, code, harm)
			}
		}
		if code, answer := m.send(t, surface, http.MethodDelete, kind.Path(m.namespace, name), "dryRun=All", "", nil); code != http.StatusForbidden {
			t.Errorf("a dry run of deleting %s %s: %d %s; want it refused", kind.Kind, name, code, answer)
		}
	}
}

// removeAtLast removes a protected object without a namespace on the hub, past the gateway.
func (m *guardMatrix) removeAtLast(t *testing.T, kind doors.Kind, name string) {
	t.Helper()
	if kind.Namespaced {
		return
	}
	hub := clientFor(t, adminOf(t, m.Hub)).Discovery().RESTClient()
	t.Cleanup(func() { _ = hub.Delete().AbsPath(kind.Path("", name)).Do(context.Background()).Error() })
}

// harmDone says what has become of a protected object; "" means nothing.
func harmDone(before, after *unstructured.Unstructured) string {
	switch {
	case after == nil:
		return "is gone"
	case after.GetUID() != before.GetUID():
		return "is another"
	case after.GetDeletionTimestamp() != nil:
		return "is being deleted"
	case after.GetLabels()[doors.Label] != before.GetLabels()[doors.Label]:
		return "is no longer selected"
	}
	was, _, _ := unstructured.NestedInt64(before.Object, "spec", "replicas")
	if is, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas"); is < was {
		return fmt.Sprintf("has %d replicas instead of %d", is, was)
	}
	return ""
}

// testNamespaceDoors deletes the namespace of a protected object in every way.
func (m *guardMatrix) testNamespaceDoors(t *testing.T) {
	namespaces := m.kind(t, "", "namespaces")
	name := gatewaytest.Namespace(t, m.Federation, "guards-namespace")
	m.create(t, m.kind(t, "guards.example.io", "widgets"), name, "labelled", map[string]string{names.DeletionProtectedLabel: names.DeletionProtectedAlways})
	m.testRefused(t, namespaces, name, doors.Delete)
}

// testRefused sends every request of a harm for an object, on both surfaces: all are refused for what the object contains.
func (m *guardMatrix) testRefused(t *testing.T, kind doors.Kind, name string, harm doors.Harm) {
	t.Helper()
	for _, surface := range []string{"", "/federation"} {
		object := m.get(t, kind, "", name)
		list, err := kind.Of(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Harm != harm {
				continue
			}
			code, answer := m.pass(t, surface, d)
			if code == http.StatusForbidden {
				continue
			}
			if harm == doors.Delete || code >= 500 {
				t.Errorf("%s %s: %d %s; want it refused", surface, d, code, answer)
			}
			if harm := harmDone(object, m.get(t, kind, "", name)); harm != "" {
				t.Fatalf("%s %s: %d, and %s %s", surface, d, code, name, harm)
			}
		}
	}
}

// kind returns a kind of the gateway's discovery, in its version v1.
func (m *guardMatrix) kind(t *testing.T, group, resource string) doors.Kind {
	t.Helper()
	kinds, err := doors.Discover(m.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if kind.Group == group && kind.Resource == resource && kind.Version == "v1" {
			return kind
		}
	}
	t.Fatalf("discovery does not list %s of group %q", resource, group)
	return doors.Kind{}
}

// testFinalize removes the finalizers of a namespace that is being deleted while it has a protected object.
func (m *guardMatrix) testFinalize(t *testing.T) {
	name := gatewaytest.Namespace(t, m.Federation, "guards-finalize")
	if err := m.client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := m.kind(t, "guards.example.io", "widgets")
	m.create(t, widgets, name, "labelled", map[string]string{names.DeletionProtectedLabel: names.DeletionProtectedAlways})
	finalize := func() error {
		object, err := m.client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.Spec.Finalizers = nil
		_, err = m.client.CoreV1().Namespaces().Finalize(t.Context(), object, metav1.UpdateOptions{})
		return err
	}
	if err := finalize(); !apierrors.IsForbidden(err) {
		t.Errorf("finalizing a namespace with a protected object: %v, want it refused", err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, names.DeletionProtectedLabel)
	if code, answer := m.send(t, "", http.MethodPatch, widgets.Path(name, "labelled"), "", string(types.MergePatchType), patch); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	if err := finalize(); err != nil {
		t.Errorf("finalizing a namespace without a protected object: %v", err)
	}
}

// testDefinitionDoors deletes the definition of protected objects in every way, and stops serving it.
func (m *guardMatrix) testDefinitionDoors(t *testing.T) {
	definitions := m.kind(t, "apiextensions.k8s.io", "customresourcedefinitions")
	namespace := gatewaytest.Namespace(t, m.Federation, "guards-definition")
	widgets := m.kind(t, "guards.example.io", "widgets")
	m.create(t, widgets, namespace, "labelled", map[string]string{names.DeletionProtectedLabel: names.DeletionProtectedAlways})
	m.testRefused(t, definitions, widgetDefinition, doors.Delete)
	for contentType, patch := range map[types.PatchType]string{
		types.JSONPatchType:  `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`,
		types.ApplyPatchType: "",
	} {
		if patch == "" {
			object := m.get(t, definitions, "", widgetDefinition)
			unserve(t, object)
			object.SetManagedFields(nil)
			object.SetResourceVersion("")
			unstructured.RemoveNestedField(object.Object, "status")
			body, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			patch = string(body)
		}
		query := "fieldManager=test"
		if contentType == types.ApplyPatchType {
			query += "&force=true"
		}
		if code, answer := m.send(t, "", http.MethodPatch, definitions.Path("", widgetDefinition), query, string(contentType), []byte(patch)); code != http.StatusForbidden {
			t.Errorf("serving no version by %s: %d %s; want it refused", contentType, code, answer)
		}
	}
	object := m.get(t, definitions, "", widgetDefinition)
	unserve(t, object)
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := m.send(t, "", http.MethodPut, definitions.Path("", widgetDefinition), "", "application/json", body); code != http.StatusForbidden {
		t.Errorf("serving no version by PUT: %d %s; want it refused", code, answer)
	}
	m.testUnservedDefinition(t, definitions)
	if code, answer := m.send(t, "", http.MethodDelete, definitions.Path("", "protectionpolicies.cellplane.io"), "dryRun=All", "", nil); code != http.StatusForbidden {
		t.Errorf("deleting the definition of ProtectionPolicies: %d %s; want it refused", code, answer)
	}
}

func unserve(t *testing.T, definition *unstructured.Unstructured) {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		version.(map[string]any)["served"] = false
	}
	if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
}

// testUnservedDefinition deletes a definition whose objects cannot be read, and then one without any protected object.
func (m *guardMatrix) testUnservedDefinition(t *testing.T, definitions doors.Kind) {
	t.Helper()
	object := m.get(t, definitions, "", widgetDefinition)
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "status")
	object.SetName("gears.guards.example.io")
	if err := unstructured.SetNestedMap(object.Object, map[string]any{"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"}, "spec", "names"); err != nil {
		t.Fatal(err)
	}
	object.SetLabels(nil)
	served := object.DeepCopy()
	unserve(t, object)
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	path := definitions.Path("", object.GetName())
	if code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(definitions.Path("", ""), "/"), "", "application/json", body); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	if code, answer := m.send(t, "", http.MethodDelete, path, "", "", nil); code != http.StatusForbidden {
		t.Errorf("deleting a definition that is not served: %d %s; want it refused", code, answer)
	}
	versions, _, _ := unstructured.NestedSlice(served.Object, "spec", "versions")
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": versions}})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := m.send(t, "", http.MethodPatch, path, "", string(types.MergePatchType), patch); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	if code, answer := m.send(t, "", http.MethodDelete, path, "", "", nil); code != http.StatusOK {
		t.Errorf("deleting a definition without protected objects: %d %s", code, answer)
	}
}

// testReplicasElsewhere scales an object whose replicas are not in spec.replicas.
func (m *guardMatrix) testReplicasElsewhere(t *testing.T) {
	gadgets := m.kind(t, "guards.example.io", "gadgets")
	body := fmt.Appendf(nil, `{"apiVersion":"guards.example.io/v1","kind":"Gadget","metadata":{"name":"sized","labels":{%q:"protected"}},"spec":{"size":{"wanted":10}}}`, doors.Label)
	if code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(gadgets.Path(m.namespace, ""), "/"), "", "application/json", body); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	path := gadgets.Path(m.namespace, "sized")
	patch := func(suffix string, kind types.PatchType, patch string) (int, []byte) {
		return m.send(t, "", http.MethodPatch, path+suffix, "", string(kind), []byte(patch))
	}
	for _, test := range []struct {
		suffix string
		kind   types.PatchType
		patch  string
		want   int
	}{
		{"", types.MergePatchType, `{"spec":{"size":{"wanted":0}}}`, http.StatusForbidden},
		{"", types.MergePatchType, `{"spec":{"size":null}}`, http.StatusForbidden},
		{"", types.JSONPatchType, `[{"op":"remove","path":"/spec/size/wanted"}]`, http.StatusForbidden},
		{"/scale", types.MergePatchType, `{"spec":{"replicas":0}}`, http.StatusForbidden},
		{"", types.MergePatchType, `{"spec":{"replicas":3}}`, http.StatusOK},
		{"", types.MergePatchType, `{"spec":{"size":{"wanted":9}}}`, http.StatusOK},
		{"/scale", types.MergePatchType, `{"spec":{"replicas":8}}`, http.StatusOK},
	} {
		if code, answer := patch(test.suffix, test.kind, test.patch); code != test.want {
			t.Errorf("%s %s: %d %s, want %d", test.suffix, test.patch, code, answer, test.want)
		}
	}
}

// testReplicasOfVersions changes objects whose versions scale different fields. What is written in v2 loses the field of v1.
func (m *guardMatrix) testReplicasOfVersions(t *testing.T) {
	v1 := m.kind(t, "guards.example.io", "gizmos")
	v2 := v1
	v2.Version = "v2"
	create := func(namespace, name, labels, spec string) {
		body := fmt.Appendf(nil, `{"apiVersion":"guards.example.io/v1","kind":"Gizmo","metadata":{"name":%q,"labels":%s},"spec":%s}`, name, labels, spec)
		if code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(v1.Path(namespace, ""), "/"), "", "application/json", body); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
	}
	labels := fmt.Sprintf(`{%q:"protected"}`, doors.Label)
	create(m.namespace, "both", labels, `{"replicas":10,"size":10}`)
	create(m.namespace, "second", labels, `{"size":10}`)
	namespace := gatewaytest.Namespace(t, m.Federation, "guards-versions")
	create(namespace, "left", `{}`, `{"replicas":10,"size":0}`)
	create(namespace, "zero", `{}`, `{"replicas":0,"size":0}`)
	m.protect(t, "guards-versions", cellplanev1alpha1.ProtectionPolicySpec{
		Deletion:          &cellplanev1alpha1.DeletionProtection{AllowScaledToZero: true},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"guards.example.io"}, Kinds: []string{"Gizmo"}, Namespaces: []string{namespace}}},
	}, func(ctx context.Context) error {
		return m.client.CoreV1().RESTClient().Delete().AbsPath(v1.Path(namespace, "left")).Param("dryRun", "All").Do(ctx).Error()
	})
	annotate := `{"metadata":{"annotations":{"some":"change"}}}`
	for _, test := range []struct {
		method, path, patch string
		want                int
	}{
		{http.MethodPatch, v1.Path(m.namespace, "both"), `{"spec":{"replicas":0}}`, http.StatusForbidden},
		{http.MethodPatch, v1.Path(m.namespace, "both"), `{"spec":{"size":0}}`, http.StatusForbidden},
		{http.MethodPatch, v1.Path(m.namespace, "both"), `{"spec":{"size":null}}`, http.StatusForbidden},
		{http.MethodPatch, v2.Path(m.namespace, "both"), `{"spec":{"size":0}}`, http.StatusForbidden},
		{http.MethodPatch, v2.Path(m.namespace, "both"), annotate, http.StatusForbidden},
		{http.MethodPatch, v2.Path(m.namespace, "both") + "/scale", `{"spec":{"replicas":11}}`, http.StatusForbidden},
		{http.MethodPatch, v2.Path(m.namespace, "both") + "/status", annotate, http.StatusForbidden},
		{http.MethodPatch, v1.Path(m.namespace, "both"), `{"spec":{"replicas":9,"size":9}}`, http.StatusOK},
		{http.MethodPatch, v1.Path(m.namespace, "both") + "/scale", `{"spec":{"replicas":9}}`, http.StatusOK},
		{http.MethodPatch, v1.Path(m.namespace, "second"), `{"spec":{"size":0}}`, http.StatusForbidden},
		{http.MethodPatch, v2.Path(m.namespace, "second"), annotate, http.StatusOK},
		{http.MethodPatch, v2.Path(m.namespace, "second") + "/scale", `{"spec":{"replicas":9}}`, http.StatusOK},
		{http.MethodDelete, v1.Path(namespace, "left"), "", http.StatusForbidden},
		{http.MethodDelete, v2.Path(namespace, "left"), "", http.StatusForbidden},
		{http.MethodDelete, strings.TrimSuffix(v2.Path(namespace, ""), "/"), "", http.StatusForbidden},
		{http.MethodDelete, "/api/v1/namespaces/" + namespace, "", http.StatusForbidden},
		{http.MethodDelete, v2.Path(namespace, "zero"), "", http.StatusOK},
	} {
		contentType := ""
		if test.patch != "" {
			contentType = string(types.MergePatchType)
		}
		if code, answer := m.send(t, "", test.method, test.path, "dryRun=All", contentType, []byte(test.patch)); code != test.want {
			t.Errorf("%s %s %s: %d %s, want %d", test.method, test.path, test.patch, code, answer, test.want)
		}
	}
}

// testScaledToZero deletes objects of which only those without replicas may be deleted. The replicas are not in spec.replicas, and a version of the kind
// does not say where they are.
func (m *guardMatrix) testScaledToZero(t *testing.T) {
	gadgets := m.kind(t, "guards.example.io", "gadgets")
	namespace := gatewaytest.Namespace(t, m.Federation, "guards-zero")
	create := func(name, spec string) {
		body := fmt.Appendf(nil, `{"apiVersion":"guards.example.io/v1","kind":"Gadget","metadata":{"name":%q},"spec":%s}`, name, spec)
		if code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(gadgets.Path(namespace, ""), "/"), "", "application/json", body); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
	}
	create("large", `{"replicas":0,"size":{"wanted":10}}`)
	create("zero", `{"replicas":10,"size":{"wanted":0}}`)
	m.protect(t, "guards-zero", cellplanev1alpha1.ProtectionPolicySpec{
		Deletion:          &cellplanev1alpha1.DeletionProtection{AllowScaledToZero: true},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: ptr.To(intstr.FromInt32(1))},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"guards.example.io"}, Kinds: []string{"Gadget"}, Namespaces: []string{namespace}}},
	}, func(ctx context.Context) error {
		return m.client.CoreV1().RESTClient().Delete().AbsPath(gadgets.Path(namespace, "large")).Param("dryRun", "All").Do(ctx).Error()
	})
	old := gadgets
	old.Version = "v1beta1"
	for _, test := range []struct {
		method, path, patch string
		want                int
	}{
		{http.MethodDelete, strings.TrimSuffix(gadgets.Path(namespace, ""), "/"), "", http.StatusForbidden},
		{http.MethodDelete, "/api/v1/namespaces/" + namespace, "", http.StatusForbidden},
		{http.MethodDelete, old.Path(namespace, "large"), "", http.StatusForbidden},
		{http.MethodPatch, old.Path(namespace, "large"), `{"spec":{"size":{"wanted":0}}}`, http.StatusForbidden},
		{http.MethodPatch, old.Path(namespace, "large"), `{"spec":{"size":{"wanted":9}}}`, http.StatusOK},
		{http.MethodDelete, gadgets.Path(namespace, "zero"), "", http.StatusOK},
	} {
		contentType := ""
		if test.patch != "" {
			contentType = string(types.MergePatchType)
		}
		if code, answer := m.send(t, "", test.method, test.path, "dryRun=All", contentType, []byte(test.patch)); code != test.want {
			t.Errorf("%s %s %s: %d %s, want %d", test.method, test.path, test.patch, code, answer, test.want)
		}
	}
}

// testGroups deletes an Event in each of its groups. A policy names the other one.
func (m *guardMatrix) testGroups(t *testing.T) {
	for group, other := range map[string]string{"": "events.k8s.io", "events.k8s.io": ""} {
		namespace := gatewaytest.Namespace(t, m.Federation, "guards-groups-"+strconv.Itoa(len(group)))
		events := m.kind(t, "", "events")
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Event","metadata":{"name":"some"},"involvedObject":{"namespace":%q},"reason":"Some","type":"Normal"}`, namespace)
		if code, answer := m.send(t, "", http.MethodPost, strings.TrimSuffix(events.Path(namespace, ""), "/"), "", "application/json", body); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
		named, asked := m.kind(t, group, "events"), m.kind(t, other, "events")
		m.protect(t, namespace, cellplanev1alpha1.ProtectionPolicySpec{
			Deletion:          &cellplanev1alpha1.DeletionProtection{},
			ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{group}, Kinds: []string{"Event"}, Namespaces: []string{namespace}}},
		}, func(ctx context.Context) error {
			return m.client.CoreV1().RESTClient().Delete().AbsPath(named.Path(namespace, "some")).Param("dryRun", "All").Do(ctx).Error()
		})
		for _, path := range []string{asked.Path(namespace, "some"), strings.TrimSuffix(asked.Path(namespace, ""), "/"), "/api/v1/namespaces/" + namespace} {
			if code, answer := m.send(t, "", http.MethodDelete, path, "dryRun=All", "", nil); code != http.StatusForbidden {
				t.Errorf("DELETE %s with a policy for group %q: %d %s, want it refused", path, group, code, answer)
			}
		}
	}
}

// testNamespaceLabels changes the labels of a namespace by which a policy selects its objects.
func (m *guardMatrix) testNamespaceLabels(t *testing.T) {
	name := gatewaytest.Namespace(t, m.Federation, "inside")
	if _, err := m.client.CoreV1().Namespaces().Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"inside"}}}`, doors.Label), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	m.testRefused(t, m.kind(t, "", "namespaces"), name, doors.Unlabel)
}
