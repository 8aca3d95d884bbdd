package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testHubSource runs a gateway that gets its topology from the hub.
func testHubSource(t *testing.T, w *world) {
	objects, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	create := func(resource, kind string, object any) {
		t.Helper()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(cellplanev1alpha1.GroupVersion.String())
		u.SetKind(kind)
		if _, err := objects.Resource(cellplanev1alpha1.GroupVersion.WithResource(resource)).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}}
	for i, cell := range gatewaytest.Topology(t, w.Federation).Cells {
		if _, err := w.client.CoreV1().Secrets(names.SystemNamespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: cell.Name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: cell.Endpoint.Cert, corev1.TLSPrivateKeyKey: cell.Endpoint.Key},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		secret := cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: cell.Name}
		create("cells", "Cell", &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}, Spec: cellplanev1alpha1.CellSpec{
			Endpoint:    cellplanev1alpha1.CellEndpoint{Server: cell.Endpoint.Server, CABundle: cell.Endpoint.CA},
			Credentials: cellplanev1alpha1.CellCredentials{SecretRef: secret},
			Etcd:        cellplanev1alpha1.CellEtcd{Endpoints: []string{w.Cells[i].EtcdURL()}, SecretRef: secret},
		}})
		list.Spec.Cells = append(list.Spec.Cells, cellplanev1alpha1.TopologyCell{Name: cell.Name, Weight: 1, State: cellplanev1alpha1.CellStateNormal})
	}
	create("celltopologies", "CellTopology", list)

	namespace := gatewaytest.Namespace(t, w.Federation, "hub-source")
	fill(t, w.client, namespace, 12)
	state := t.TempDir()
	followed := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.Source, o.StateDir = nil, state })
	got, err := followed.Client(t).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(got.Items) != 12 {
		t.Errorf("listed %d: %v", len(got.Items), err)
	}
	testPublishedOwners(t, w, followed, namespace)
	info, err := os.Stat(state + "/topology.json")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kept topology has %v: %v", info, err)
	}
	tracker := topology.NewTracker(silent{}, &fleet.Cells{}, state)
	go func() { _ = tracker.Run(t.Context()) }()
	<-tracker.Known()
	if names := tracker.View().Names(); len(names) != 3 {
		t.Errorf("the kept topology has %v, want 3 cells", names)
	}
}

// testPublishedOwners checks that a gateway shows the resourceVersions of cells until the hub manager has published the owners of
// slots, and then the versions that all gateways show.
func testPublishedOwners(t *testing.T, w *world, followed *gatewaytest.Gateway, namespace string) {
	maps := followed.Client(t).CoreV1().ConfigMaps(namespace)
	before, err := maps.Get(t.Context(), "map-001", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kind, err := position.Classify(before.ResourceVersion); err != nil || kind != position.Plain {
		t.Errorf("without owners the version is %q: %v", before.ResourceVersion, err)
	}
	published, _, err := topology.Topology(gatewaytest.Topology(t, w.Federation)).WithOwners(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().Secrets(names.SystemNamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: names.SlotOwnersSecret}, Type: names.SlotOwnersType, Data: map[string][]byte{slots.PublishedKey(1): published.Owners},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "map-001", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the gateway shows versions", func(ctx context.Context) (bool, error) {
		got, err := maps.Get(ctx, "map-001", metav1.GetOptions{})
		return err == nil && got.ResourceVersion == want.ResourceVersion, err
	})
	// A version from before is understood.
	before.Data["value"] = "changed"
	if _, err := maps.Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Errorf("with the version %s from before: %v", before.ResourceVersion, err)
	}
	if _, err := maps.Update(t.Context(), before, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("with an old version from before: %v, want a conflict", err)
	}
}

// silent is a source that never delivers a topology.
type silent struct{}

// Run implements topology.Source.
func (silent) Run(ctx context.Context, _ func(topology.Topology)) error {
	<-ctx.Done()
	return nil
}

// testNotReady asks a gateway that does not know its cells: it must answer 503, not 404 or an empty list.
func testNotReady(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "not-ready")
	fill(t, w.client, namespace, 3)
	options := gatewaytest.Options(t, w.Federation)
	options.Source = silent{}
	config := gatewaytest.Launch(t, w.Federation, options).Config(t)
	testenv.Eventually(t, "everything but the topology is known", func(context.Context) (bool, error) {
		response := send(t, config, http.MethodGet, "/readyz?verbose", nil, "")
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		if response.StatusCode == http.StatusOK {
			t.Fatalf("the gateway is ready: %s", body)
		}
		return strings.Count(string(body), "[-]") == 1 && strings.Contains(string(body), "[-]topology"), fmt.Errorf("%s", body)
	})
	for _, name := range []string{"", "/map-001", "/absent"} {
		if response := send(t, config, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps"+name, nil, ""); response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%q: %s, want 503", name, response.Status)
		}
	}
}
