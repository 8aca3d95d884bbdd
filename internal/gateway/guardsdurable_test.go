package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/doors"
)

// recordOldBackups has every cell say that it has received the objects of the others, none of which asks for durability. The records are not renewed, so
// a gateway that starts after that knows of no backup that works, and cannot tell whether an object asks for durability now.
func recordOldBackups(t *testing.T, federation *local.Federation) {
	t.Helper()
	for _, target := range federation.Cells {
		for _, source := range federation.Cells {
			if source == target {
				continue
			}
			record, err := durability.Received{Source: source.Name(), Revision: 1, Epoch: 1, Time: time.Now()}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			rest := clientFor(t, adminOf(t, target)).CoordinationV1().RESTClient()
			if err := rest.Post().Namespace(durability.Namespace).Resource("leases").SetHeader("Content-Type", "application/json").Body(record).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// durableMatrix tries every way to write objects that ask for durability while no backup cell confirms anything: none may be acknowledged.
type durableMatrix struct {
	*guardMatrix
	cells map[string]kubernetes.Interface
	slots *slots.Map
	// durable is a namespace that asks for durability.
	durable string
}

func newDurableMatrix(t *testing.T, m *guardMatrix) *durableMatrix {
	t.Helper()
	d := &durableMatrix{guardMatrix: m, cells: map[string]kubernetes.Interface{}, durable: gatewaytest.Namespace(t, m.Federation, "guards-durable")}
	var members []slots.Cell
	for i, cell := range gatewaytest.Topology(t, m.Federation).Cells {
		connected, err := fence.Connect(cell.Name, cell.Endpoint)
		must(t, err)
		must(t, connected.Raise(t.Context(), 1))
		d.cells[cell.Name] = clientFor(t, adminOf(t, m.Cells[i]))
		members = append(members, slots.Cell{Name: cell.Name, Weight: cell.Weight})
	}
	var err error
	d.slots, err = slots.Compile(1, members)
	must(t, err)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, names.DurabilityAnnotation, names.DurabilityReplicated)
	_, err = clientFor(t, adminOf(t, m.Hub)).CoreV1().Namespaces().Patch(t.Context(), d.durable, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	testenv.Eventually(t, "the gateway knows what the namespace asks for", func(context.Context) (bool, error) {
		code, answer := m.send(t, "", http.MethodPost, "/api/v1/namespaces/"+d.durable+"/configmaps", "", "application/json", []byte(`{"metadata":{"generateName":"probe-"}}`))
		return code == http.StatusServiceUnavailable, fmt.Errorf("%d %s", code, answer)
	})
	return d
}

// test tries all doors of a kind, if its objects are in cells. known is set if all requests are known to be valid.
func (m *durableMatrix) test(t *testing.T, kind doors.Kind, known bool) {
	t.Helper()
	if !kind.Namespaced || placement.OfObject(kind.GroupResource(), m.namespace, "") != placement.ByName {
		return
	}
	asks := map[string]string{names.DurabilityAnnotation: names.DurabilityReplicated}
	m.testWrites(t, m.createInCell(t, kind, m.namespace, "durable", asks), kind, known)
	m.testAdding(t, m.createInCell(t, kind, m.namespace, "plain", nil), kind)
	m.testCreations(t, kind, m.namespace, asks)
	if kind.Resource != "leases" { // which are not backed up
		m.testWrites(t, m.createInCell(t, kind, m.durable, "inside", nil), kind, known)
		m.testCreations(t, kind, m.durable, nil)
	}
}

// testWrites changes and deletes an object that asks for durability.
func (m *durableMatrix) testWrites(t *testing.T, object *unstructured.Unstructured, kind doors.Kind, known bool) {
	t.Helper()
	all, err := kind.Of(object)
	must(t, err)
	for _, d := range all {
		code, answer := m.pass(t, "", d)
		if refused := strings.Contains(string(answer), "the change was not made"); code < 400 || known && !refused {
			t.Errorf("%s of an object that asks for durability: %d %s", d, code, answer)
		}
	}
	if after := m.get(t, kind, object.GetNamespace(), object.GetName()); after == nil || after.GetUID() != object.GetUID() || after.GetResourceVersion() != object.GetResourceVersion() {
		t.Errorf("%s %s was changed or deleted: %v", kind.Kind, object.GetName(), after)
	}
}

// testAdding has an object ask for durability. API servers ignore that in requests for some subresources.
func (m *durableMatrix) testAdding(t *testing.T, object *unstructured.Unstructured, kind doors.Kind) {
	t.Helper()
	all, err := kind.Annotating(object, names.DurabilityAnnotation, names.DurabilityReplicated)
	must(t, err)
	for _, d := range all {
		code, answer := m.pass(t, "", d)
		if after := m.get(t, kind, object.GetNamespace(), object.GetName()); after == nil || after.GetAnnotations()[names.DurabilityAnnotation] != "" {
			t.Fatalf("%s: %d %s; the object is %v", d, code, answer, after)
		}
	}
}

// testCreations creates objects that ask for durability.
func (m *durableMatrix) testCreations(t *testing.T, kind doors.Kind, namespace string, annotations map[string]string) {
	t.Helper()
	object, _, err := kind.Sample(namespace, "created")
	must(t, err)
	object.SetAnnotations(annotations)
	all, err := kind.Creations(object)
	must(t, err)
	for _, d := range all {
		if code, answer := m.pass(t, "", d); code < 400 {
			t.Errorf("%s of an object that asks for durability: %d %s", d, code, answer)
		}
	}
	if created := m.get(t, kind, namespace, "created"); created != nil {
		t.Errorf("it was created: %v", created)
	}
}

// createInCell creates a sample in its cell, past the gateway, and returns it as the gateway shows it.
func (m *durableMatrix) createInCell(t *testing.T, kind doors.Kind, namespace, name string, annotations map[string]string) *unstructured.Unstructured {
	t.Helper()
	name += "-" + kind.Version
	object, _, err := kind.Sample(namespace, name)
	must(t, err)
	object.SetAnnotations(annotations)
	body, err := json.Marshal(object)
	must(t, err)
	cell := m.cells[m.slots.Name(m.slots.Route(slots.Of(namespace, name)).New)]
	err = cell.Discovery().RESTClient().Post().AbsPath(strings.TrimSuffix(kind.Path(namespace, ""), "/")).SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error()
	must(t, err)
	stored := m.get(t, kind, namespace, name)
	if stored == nil {
		t.Fatalf("the gateway does not show %s %s", kind.Kind, name)
	}
	return stored
}
