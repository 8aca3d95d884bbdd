package gateway_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// world is a federation with three cells and a member, and a gateway in front of it.
type world struct {
	*local.Federation
	gateway *gatewaytest.Gateway
	client  kubernetes.Interface
	kubectl kubectltest.Kubectl
}

// TestGateway runs all tests that need control planes against one federation. The last ones stop control planes and raise the fences
// of cells, so their order matters.
func TestGateway(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{Cells: 3, Members: 1, Nodes: 1})
	gatewaytest.Namespace(t, federation, names.SystemNamespace)
	recordOldBackups(t, federation)
	w := &world{Federation: federation, gateway: gatewaytest.Start(t, federation, nil)}
	w.client, w.kubectl = w.gateway.Client(t), kubectltest.Kubectl(w.gateway.Kubeconfig(t))
	bookmarks := beginBookmarks(t, w)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"OneObject", testOneObject},
		{"GenerateName", testGenerateName},
		{"List", testList},
		{"Pages", testPages},
		{"ListVersions", testListVersions},
		{"Forms", testForms},
		{"Watch", testWatch},
		{"InitialEvents", testInitialEvents},
		{"ExpiredWatch", testExpiredWatch},
		{"Informers", testInformers},
		{"InformersOfOld", testInformersOfOld},
		{"RetryWatcher", testRetryWatcher},
		{"Expectations", testExpectations},
		{"ObjectVersions", testObjectVersions},
		{"SharedWatch", testSharedWatch},
		{"VersionsIn", testVersionsIn},
		{"Users", testUsers},
		{"Hostile", testHostile},
		{"OneName", testOneName},
		{"NewNamespace", testNewNamespace},
		{"NewKind", testNewKind},
		{"LateKind", testLateKind},
		{"Descriptions", testDescriptions},
		{"DeletionProtection", testDeletionProtection},
		{"ScaleDownProtection", testScaleDownProtection},
		{"Guards", testGuards},
		{"UserPolicies", testUserPolicies},
		{"ServedAPI", testServedAPI},
		{"ControllerRuntime", testControllerRuntime},
		{"Replicas", testReplicas},
		{"Goaway", testGoaway},
		{"Audit", testAudit},
		{"AuditWebhook", testAuditWebhook},
		{"Login", testLogin},
		{"OwnTokens", testOwnTokens},
		{"BootstrapToken", testBootstrapToken},
		{"HubSource", testHubSource},
		{"NotReady", testNotReady},
		{"RenewedCertificates", testRenewedCertificates},
		{"CellNotReady", testCellNotReady},
		{"DeleteCollection", testDeleteCollection},
		{"Events", testEvents},
		{"HubKinds", testHubKinds},
		{"ControlPlaneNamespaces", testControlPlaneNamespaces},
		{"Surfaces", testSurfaces},
		{"Discovery", testDiscovery},
		{"Kubectl", testKubectl},
		{"KubectlWatch", testKubectlWatch},
		{"WebSocketWatch", testWebSocketWatch},
		{"OtherSites", testOtherSites},
		{"StreamHeaders", testStreamHeaders},
		{"WatchSeats", testWatchSeats},
		{"StreamLimit", testStreamLimit},
		{"IdleWatches", testIdleWatches},
		{"Overload", testOverload},
		{"FlowSchemas", testFlowSchemas},
		{"ExpiredPage", testExpiredPage},
		{"UnknownPage", testUnknownPage},
		{"Helm", testHelm},
		{"Bookmarks", bookmarks}, // before controllers publish the CA in its namespace
		{"Controllers", testControllers},
		{"MemberProxy", testMemberProxy},
		{"WriterLease", testWriterLease},
		{"Outages", testOutages},
		{"Moving", testMoving},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

func testOneObject(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "one-object")
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config := w.gateway.Config(t)
		config.ContentType = contentType
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		maps := client.CoreV1().ConfigMaps(namespace)
		for i := range 20 {
			name := fmt.Sprintf("map-%d", i)
			created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			created.Data["a"] = "2"
			if _, err := maps.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := maps.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Fatalf("updating from an old version: %v, want a conflict", err)
			}
			if _, err := maps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"a":"3"}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			got, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || got.Data["a"] != "3" {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		if used := cellsHolding(t, w, namespace); used != len(w.Cells) {
			t.Errorf("%d cells hold objects, want all %d", used, len(w.Cells))
		}
		for i := range 20 {
			if err := maps.Delete(t.Context(), fmt.Sprintf("map-%d", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cellsHolding counts the cells that hold config maps of a namespace.
func cellsHolding(t *testing.T, w *world, namespace string) int {
	t.Helper()
	used := 0
	for _, cell := range w.Cells {
		config, err := cell.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		list, err := clientFor(t, config).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 {
			used++
		}
	}
	return used
}

func testGenerateName(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "generate-name")
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config := w.gateway.Config(t)
		config.ContentType = contentType
		maps := clientFor(t, config).CoreV1().ConfigMaps(namespace)
		for range 10 {
			created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := maps.Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
				t.Fatalf("the cell of a generated name is not that of the name: %v", err)
			}
		}
	}
}

func clientFor(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
