package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// ownerOf returns the index of the cell that owns an object.
func ownerOf(t *testing.T, w *world, namespace, name string) int {
	t.Helper()
	var cells []slots.Cell
	for _, cell := range w.Cells {
		cells = append(cells, slots.Cell{Name: cell.Name(), Weight: 1})
	}
	compiled, err := slots.Compile(1, cells)
	if err != nil {
		t.Fatal(err)
	}
	return int(compiled.Route(slots.Of(namespace, name)).New)
}

// testOutages stops a cell, pauses it, and stops the hub.
func testOutages(t *testing.T, shared *world) {
	state := t.TempDir()
	options := func(o *gateway.Options) { o.StateDir = state }
	w := &world{Federation: shared.Federation, gateway: gatewaytest.Start(t, shared.Federation, options)}
	w.client = w.gateway.Client(t)
	namespace := gatewaytest.Namespace(t, w.Federation, "outages")
	fill(t, w.client, namespace, 30)
	giveRights(t, w, namespace)
	t.Run("Cell", func(t *testing.T) { testCellOutage(t, w, namespace) })
	t.Run("HungCell", func(t *testing.T) { testHungCell(t, w, namespace) })
	t.Run("Hub", func(t *testing.T) { testHubOutage(t, w, namespace, state, options) })
}

// giveRights lets erin read, so that there is a right to keep across a restart.
func giveRights(t *testing.T, w *world, namespace string) {
	t.Helper()
	if _, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "erin"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "erin"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testCellOutage(t *testing.T, w *world, namespace string) {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	server, err := w.Cells[1].Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for i := range 30 {
		name := fmt.Sprintf("map-%03d", i)
		response := send(t, w.gateway.Config(t), http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps/"+name, nil, "")
		down := ownerOf(t, w, namespace, name) == 1
		if down != (response.StatusCode == http.StatusServiceUnavailable) {
			t.Errorf("%s, with its cell down: %v: %s", name, down, response.Status)
		}
		if down {
			lost++
		}
	}
	if lost == 0 || lost == 30 {
		t.Fatalf("%d of 30 objects are in the cell that is down", lost)
	}
	response := send(t, w.gateway.Config(t), http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", nil, "")
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a list without a cell: %s, want 503", response.Status)
	}
	response = send(t, w.gateway.Config(t), http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", http.Header{"Cellplane-Partial": {"true"}}, "")
	if warnings := response.Header.Values("Warning"); response.StatusCode != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], "cell-b") {
		t.Errorf("a partial list: %s with warnings %q", response.Status, warnings)
	}
	testScaleDownInOutage(t, w, namespace, 1)
	// The watch continues with the other cells. When the cell is back it catches up, or tells that it cannot.
	change(t, w, namespace, 0)
	if event := next(t, stream); event.Type != watch.Modified {
		t.Errorf("got %v", event)
	}
	if err := server.Resurrect(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cell serves again", func(ctx context.Context) (bool, error) {
		list, err := maps.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 30, err
	})
	changed := change(t, w, namespace, 1)
	event := next(t, stream)
	if apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		// The cell stored something else, such as a lease, after the list and before its API server stopped. An API server that has been restarted cannot
		// continue a watch from before that: the client is told, and lists again.
		object, err := maps.Get(t.Context(), changed, metav1.GetOptions{})
		if err != nil || object.Data["cell"] != "1" {
			t.Errorf("after the watch has expired, %s is %v, %v", changed, object, err)
		}
		return
	}
	if event.Type != watch.Modified || event.Object.(*corev1.ConfigMap).Name != changed {
		t.Errorf("got %v, want a change of %s", event, changed)
	}
}

// testHungCell pauses the API server of a cell: its connections stay open without data. Requests for its objects must get 503 before their
// deadline, and other cells must not be affected.
func testHungCell(t *testing.T, w *world, namespace string) {
	server, err := w.Cells[1].Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	defer func() {
		if !resumed {
			_ = server.Resume() // the test has failed
		}
	}()
	var hung, well string
	for i := range 30 {
		name := fmt.Sprintf("map-%03d", i)
		if ownerOf(t, w, namespace, name) == 1 {
			hung = name
		} else {
			well = name
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second) // a request may take a minute
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answered <- clientFor(t, w.gateway.Config(t)).CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").Name(hung).MaxRetries(0).Do(ctx).Error()
	}()
	maps := w.client.CoreV1().ConfigMaps(namespace)
	for done := false; !done; {
		select {
		case err := <-answered:
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cell-b") {
				t.Errorf("an object of the paused cell: %v, want 503 with the cell's name", err)
			}
			done = true
		default:
			if _, err := maps.Get(t.Context(), well, metav1.GetOptions{}); err != nil {
				t.Fatalf("an object of another cell: %v", err)
			}
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed = true
	testenv.Eventually(t, "objects of the cell are served again", func(ctx context.Context) (bool, error) {
		_, err := maps.Get(ctx, hung, metav1.GetOptions{})
		return err == nil, err
	})
}

// change changes an object of a cell.
func change(t *testing.T, w *world, namespace string, cell int) string {
	t.Helper()
	for i := range 30 {
		name := fmt.Sprintf("map-%03d", i)
		if ownerOf(t, w, namespace, name) != cell {
			continue
		}
		if _, err := w.client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"cell":"%d"}}`, cell), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Fatalf("no object is in cell %d", cell)
	return ""
}

func testHubOutage(t *testing.T, w *world, namespace, state string, options func(*gateway.Options)) {
	erin := w.gateway.ConfigFor(t, "erin")
	testenv.Eventually(t, "erin is authorized", func(ctx context.Context) (bool, error) {
		_, err := clientFor(t, erin).CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	testenv.Eventually(t, "the RBAC objects are kept", func(context.Context) (bool, error) {
		kept, err := os.ReadFile(filepath.Join(state, "rbac.json"))
		return bytes.Contains(kept, []byte("erin")), err
	})
	keepLimit(t, w, state)
	documents := []string{"/version", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/api/v1"}
	testenv.Eventually(t, "the hub's documents are kept", func(context.Context) (bool, error) {
		return keptIndex(filepath.Join(state, "documents"))
	})
	inCell, err := w.client.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "in-cell.17a"}, InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Namespace: namespace, Name: "web"},
	}, metav1.CreateOptions{})
	must(t, err)
	hub, err := w.Hub.Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Halt(); err != nil {
		t.Fatal(err)
	}
	check := func(w *world, name string) {
		t.Helper()
		maps := w.client.CoreV1().ConfigMaps(namespace)
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Errorf("creating while the hub is down: %v", err)
		}
		if list, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) < 31 {
			t.Errorf("listing while the hub is down: %v", err)
		}
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting while the hub is down: %v", err)
		}
		erin := clientFor(t, w.gateway.ConfigFor(t, "erin"))
		if _, err := erin.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("erin listing while the hub is down: %v", err)
		}
		if _, err := erin.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("erin listing secrets while the hub is down: %v, want it forbidden", err)
		}
		checkKeptLimit(t, w, namespace)
		checkEventsWithoutHub(t, w, namespace, inCell.Name)
		if _, err := w.client.Discovery().ServerPreferredResources(); err != nil {
			t.Errorf("discovery while the hub is down: %v", err)
		}
		for _, path := range documents {
			for _, accept := range []string{"application/json", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/json"} {
				response := send(t, w.gateway.Config(t), http.MethodGet, path, http.Header{"Accept": {accept}}, "")
				if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") == "" {
					t.Errorf("%s while the hub is down: %s", path, response.Status)
				}
			}
		}
		if _, err := w.client.Discovery().ServerVersion(); err != nil {
			t.Errorf("the version while the hub is down: %v", err)
		}
		response := send(t, w.gateway.Config(t), http.MethodGet, "/api/v1/namespaces", nil, "")
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("listing namespaces while the hub is down: %s", response.Status)
		}
	}
	check(w, "hub-down")
	w.gateway.Stop()
	again := &world{Federation: w.Federation, gateway: gatewaytest.Start(t, w.Federation, options)}
	again.client = again.gateway.Client(t)
	check(again, "hub-down-again")
	restartHub(t, w)
	testenv.Eventually(t, "the gateway reaches the hub again", func(ctx context.Context) (bool, error) {
		_, err := again.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}

// keptIndex reports whether the index of the hub's documents is kept, which comes after the documents.
func keptIndex(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || bytes.Contains(content, []byte(`"serverRelativeURL"`)) {
			return err == nil, err
		}
	}
	return false, err
}

// checkEventsWithoutHub reads events while the hub, which has some too, is down: as with a cell that is down.
func checkEventsWithoutHub(t *testing.T, w *world, namespace, inCell string) {
	t.Helper()
	if _, err := w.client.CoreV1().Events(namespace).Get(t.Context(), inCell, metav1.GetOptions{}); err != nil {
		t.Errorf("an event in a cell while the hub is down: %v", err)
	}
	path := "/api/v1/namespaces/" + namespace + "/events"
	for _, absent := range []string{path, path + "/not-in-a-cell.17a"} {
		if response := send(t, w.gateway.Config(t), http.MethodGet, absent, nil, ""); response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s while the hub is down: %s", absent, response.Status)
		}
	}
	response := send(t, w.gateway.Config(t), http.MethodGet, path, http.Header{"Cellplane-Partial": {"true"}}, "")
	if warnings := response.Header.Values("Warning"); response.StatusCode != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], "hub") {
		t.Errorf("a partial list while the hub is down: %s with warnings %q", response.Status, warnings)
	}
}

// restartHub starts the hub's API server after a test has stopped it, and waits until it serves.
func restartHub(t *testing.T, w *world) {
	t.Helper()
	hub, err := w.Hub.Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Resurrect(); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, adminOf(t, w.Hub))
	testenv.Eventually(t, "the hub serves again", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}
