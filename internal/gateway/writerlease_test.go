package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testWriterLease cuts a gateway off from two of three cells. It must not write to the third any more: a failover may have replaced its
// topology without its knowledge. Reads are served with a warning, and writes again as soon as the cells are back.
func testWriterLease(t *testing.T, w *world) {
	own := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.WriterLease = time.Second })
	namespace := gatewaytest.Namespace(t, w.Federation, "writer-lease")
	maps := own.Client(t).CoreV1().ConfigMaps(namespace)
	var name string
	for i := range 30 {
		if name = fmt.Sprintf("map-%03d", i); ownerOf(t, w, namespace, name) == 0 {
			break
		}
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating with all cells: %v", err)
	}
	path := "/api/v1/namespaces/" + namespace + "/configmaps/" + name
	testenv.Eventually(t, "a read has no warning", func(context.Context) (bool, error) { // busy cells may confirm the lease late
		response := send(t, own.Config(t), http.MethodGet, path, nil, "")
		return response.StatusCode == http.StatusOK && response.Header.Get("Warning") == "", fmt.Errorf("%s with the warning %q", response.Status, response.Header.Get("Warning"))
	})
	reports := clientFor(t, adminOf(t, w.Hub)).CoordinationV1().Leases(names.SystemNamespace)
	reported := func(annotation, cell string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			leases, err := reports.List(ctx, metav1.ListOptions{LabelSelector: names.GatewayLeaseLabel})
			if err != nil {
				return false, err
			}
			for _, lease := range leases.Items {
				if lease.Annotations[names.WriterLeaseAnnotation] == "1s" && strings.Contains(lease.Annotations[annotation], cell) {
					return true, nil
				}
			}
			return false, fmt.Errorf("of %d reports, none says so", len(leases.Items))
		}
	}
	testenv.Eventually(t, "the gateway reports that it reaches the cells", reported(names.ReachedCellsAnnotation, w.Cells[1].Name()))

	for _, cell := range w.Cells[1:] {
		server, err := cell.Process(kubebin.KubeAPIServer)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Resume() }() // it runs already, unless the test has failed
	}
	patch := func(ctx context.Context) error {
		return clientFor(t, own.Config(t)).CoreV1().RESTClient().Put().AbsPath(path).MaxRetries(0).
			SetHeader("Content-Type", "application/json").Body(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)).Do(ctx).Error()
	}
	testenv.Eventually(t, "writes are refused", func(ctx context.Context) (bool, error) {
		err := patch(ctx)
		return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "must not write"), err
	})
	response := send(t, own.Config(t), http.MethodGet, path, nil, "")
	if response.StatusCode != http.StatusOK || !strings.Contains(response.Header.Get("Warning"), "may be outdated") {
		t.Errorf("a read without the lease: %s with the warning %q", response.Status, response.Header.Get("Warning"))
	}
	if response := send(t, own.Config(t), http.MethodGet, "/readyz", nil, ""); response.StatusCode != http.StatusOK {
		t.Errorf("a gateway without the lease is %s, want ready: it serves reads", response.Status)
	}
	testenv.Eventually(t, "the gateway reports the cells that it does not reach", reported(names.UnreachedCellsAnnotation, w.Cells[1].Name()+"="))

	for _, cell := range w.Cells[1:] {
		server, err := cell.Process(kubebin.KubeAPIServer)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "writes are accepted again", func(ctx context.Context) (bool, error) { err := patch(ctx); return err == nil, err })
	own.Stop()
	testenv.Eventually(t, "the report of a gateway that has stopped is gone", func(ctx context.Context) (bool, error) {
		found, _ := reported(names.ReachedCellsAnnotation, "cell")(ctx)
		return !found, nil
	})
}
