package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testScaleDownInOutage scales objects down that never moved, in a window, while another cell is down: its port is closed, it refuses, and
// it hangs. Nothing that these requests need is asked of that cell.
func testScaleDownInOutage(t *testing.T, w *world, namespace string, down int) {
	t.Helper()
	w.protectWindowed(t, namespace, down)
	w.scaleDownInOutage(t, namespace, "closed", down)
	for mode, answer := range map[string]func(*http.Request){"refusing": func(*http.Request) {}, "hanging": func(r *http.Request) { <-r.Context().Done() }} {
		instead := standInFor(t, w.Cells[down], answer)
		lost := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s", namespace, ownedBy(t, w, namespace, "lost-"+mode, down))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.client.CoreV1().RESTClient().Get().AbsPath(lost).MaxRetries(0).Do(ctx).Error() }()
		testenv.Eventually(t, "the cell that is "+mode+" is asked for an object of its own", func(context.Context) (bool, error) {
			return slices.Contains(instead.asked(namespace), lost), nil
		})
		w.scaleDownInOutage(t, namespace, mode, down)
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("an object of a cell that is %s was read", mode)
		}
		for _, path := range instead.asked(namespace) {
			if path != lost {
				t.Errorf("a scale-down elsewhere asked the cell that is %s for %s", mode, path)
			}
		}
		instead.close()
	}
}

// protectWindowed limits how many replicas of Deployments may be removed within an hour.
func (w *world) protectWindowed(t *testing.T, namespace string, down int) {
	t.Helper()
	probe := w.createElsewhere(t, namespace, "probe", down)
	w.protect(t, "windowed", cellplanev1alpha1.ProtectionPolicySpec{
		ScaleDown: &cellplanev1alpha1.ScaleDownProtection{
			MaxDecrease: ptr.To(intstr.FromInt32(3)), Window: &cellplanev1alpha1.ScaleDownWindow{Seconds: 3600, MaxDecrease: intstr.FromInt32(3)},
		},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, Namespaces: []string{namespace}}},
	}, func(ctx context.Context) error {
		_, err := w.client.AppsV1().Deployments(namespace).UpdateScale(ctx, probe, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: probe, Namespace: namespace}}, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// scaleDownInOutage scales a Deployment of another cell down, as far as the window allows and further.
func (w *world) scaleDownInOutage(t *testing.T, namespace, mode string, down int) {
	t.Helper()
	deployment := w.createElsewhere(t, namespace, "scaled-"+mode, down)
	if err := scaleTo(t.Context(), w.client, namespace, deployment, 8, false); err != nil {
		t.Errorf("from 10 to 8 replicas while a cell is %s: %v", mode, err)
	}
	if err := scaleTo(t.Context(), w.client, namespace, deployment, 6, false); !apierrors.IsForbidden(err) {
		t.Errorf("from 8 to 6 replicas while a cell is %s: %v, want it refused", mode, err)
	}
}

// createElsewhere creates a Deployment of ten replicas in a cell that is not down.
func (w *world) createElsewhere(t *testing.T, namespace, prefix string, down int) string {
	t.Helper()
	object := newMovable(ownedBy(t, w, namespace, prefix, (down+1)%len(w.Cells)), "0")
	object.Spec.Replicas = ptr.To[int32](10)
	if _, err := w.client.AppsV1().Deployments(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return object.Name
}

// ownedBy returns a name that a cell owns.
func ownedBy(t *testing.T, w *world, namespace, prefix string, cell int) string {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", prefix, i); ownerOf(t, w, namespace, name) == cell {
			return name
		}
	}
}

// standIn serves instead of the API server of a cell, which is down, with a certificate of the cell.
type standIn struct {
	server *httptest.Server
	stop   context.CancelFunc

	mu    sync.Mutex
	paths []string
}

// standInFor has a stand-in answer 503 to every request after it has done something.
func standInFor(t *testing.T, cell *controlplane.ControlPlane, first func(*http.Request)) *standIn {
	t.Helper()
	address, err := url.Parse(cell.URL())
	must(t, err)
	pair, err := cell.Serving("stand-in")
	must(t, err)
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address.Host)
	must(t, err)
	serving, stop := context.WithCancel(t.Context())
	s := &standIn{stop: stop}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.paths = append(s.paths, r.URL.Path)
		s.mu.Unlock()
		first(r)
		http.Error(writer, "the cell is down", http.StatusServiceUnavailable)
	}))
	_ = s.server.Listener.Close()
	s.server.Listener = listener
	s.server.Config.BaseContext = func(net.Listener) context.Context { return serving }
	s.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(s.close)
	return s
}

// asked returns the requests for records of scale-downs, and for single objects in a namespace. Gateways also send others all the time.
func (s *standIn) asked(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked []string
	for _, path := range s.paths {
		if strings.Contains(path, names.ScaleDownRecordPrefix) || strings.Contains(path, "/namespaces/"+namespace+"/deployments/") ||
			strings.Contains(path, "/namespaces/"+namespace+"/configmaps/") {
			asked = append(asked, path)
		}
	}
	return asked
}

func (s *standIn) close() {
	s.stop()
	s.server.CloseClientConnections()
	s.server.Close()
}
