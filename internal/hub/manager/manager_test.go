package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/replicate"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestManager runs replicas against one federation of two cells. Each part continues from the state that the one before left.
func TestManager(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{Cells: 2})
	f := &fixture{federation: federation, hub: newClient(t, federation.Hub), config: adminConfig(t, federation.Hub)}
	for _, cell := range federation.Cells {
		f.cells = append(f.cells, newClient(t, cell))
	}
	f.run(t, "first")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a cell is connected by its Cell", f.testCell},
		{"policies are labelled, defaulted and copied", f.testPolicy},
		{"policies are deleted after their copies", f.testPolicyDeletion},
		{"another replica takes over", f.testTakeover},
		{"cells are added and removed", f.testCells},
		{"conflicting objects are reported", f.testConflict},
		{"the space of stores is told", f.testStoreSpace},
		{"a cell that hangs", f.testPause},
		{"the lease is lost", f.testLostLease},
	} {
		if !t.Run(part.name, part.run) {
			break // the next part would start from an unknown state
		}
	}
	f.stopAll()
}

func (f *fixture) testCell(t *testing.T) {
	f.createCell(t, 0)
	f.awaitCondition(t, cellNames[0], metav1.ConditionFalse, reasonNotConnecting, "there is no Secret karmada-system/alpha")
	f.createCredentials(t, 0)
	f.awaitCondition(t, cellNames[0], metav1.ConditionTrue, reasonCaughtUp, "")
	var namespace corev1.Namespace
	if err := f.cells[0].Get(t.Context(), types.NamespacedName{Name: names.ClusterNamespace}, &namespace); err != nil {
		t.Errorf("the namespaces of the control plane are not in the cell: %v", err)
	}
	if err := f.cells[0].Get(t.Context(), types.NamespacedName{Name: fleet.AuthorizedGroup}, &rbacv1.ClusterRole{}); err != nil {
		t.Errorf("gateways have no access to the cell: %v", err)
	}
	report := f.report(t)
	if status := report.Cells[cellNames[0]]; !report.Working || status.Phase != replicate.Following || status.UpTo["namespaces"] == "" {
		t.Errorf("the report says %+v", report)
	}
	if text := f.fetch(t, "/metrics"); !strings.Contains(text, `cellplane_replication_following{cell="alpha"} 1`) {
		t.Error("there are no metrics of the cell")
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		f.fetch(t, path)
	}
}

func (f *fixture) testPolicy(t *testing.T) {
	policy := newPolicy("identified")
	f.create(t, policy)
	key := client.ObjectKeyFromObject(policy)
	testenv.Eventually(t, "the policy is copied", func(ctx context.Context) (bool, error) {
		var there policyv1alpha1.PropagationPolicy
		err := f.cells[0].Get(ctx, key, &there)
		return err == nil && there.Labels[names.PropagationPolicyPermanentIDLabel] == string(policy.UID), err
	})
	if err := f.hub.Get(t.Context(), key, policy); err != nil {
		t.Fatal(err)
	}
	if id := policy.Labels[names.PropagationPolicyPermanentIDLabel]; id != string(policy.UID) {
		t.Errorf("the permanent ID is %q", id)
	}
	if !slices.Contains(policy.Finalizers, names.PropagationPolicyFinalizer) || policy.Spec.ResourceSelectors[0].Namespace != "default" {
		t.Errorf("the policy was not completed: %+v", policy)
	}

	restored := &policyv1alpha1.ClusterPropagationPolicy{Spec: policy.Spec}
	restored.Name, restored.Labels = "restored", map[string]string{names.ClusterPropagationPolicyPermanentIDLabel: "of-old"}
	f.create(t, restored)
	testenv.Eventually(t, "the restored policy is copied", func(ctx context.Context) (bool, error) {
		var there policyv1alpha1.ClusterPropagationPolicy
		err := f.cells[0].Get(ctx, client.ObjectKeyFromObject(restored), &there)
		return err == nil && there.Labels[names.ClusterPropagationPolicyPermanentIDLabel] == "of-old", err
	})
}

func (f *fixture) testPolicyDeletion(t *testing.T) {
	for _, policy := range []client.Object{newPolicy("identified"), &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "restored"}}} {
		if err := f.hub.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		f.awaitGone(t, f.hub, policy)
		if err := f.cells[0].Get(t.Context(), client.ObjectKeyFromObject(policy), policy); !apierrors.IsNotFound(err) {
			t.Errorf("the policy was deleted before its copy: %v", err)
		}
	}
}

func (f *fixture) testTakeover(t *testing.T) {
	f.run(t, "second")
	first := f.replicas["first"]
	first.cancel()
	if err := <-first.ended; err != nil {
		t.Errorf("the first replica ended with %v", err)
	}
	delete(f.replicas, "first")
	began := time.Now()
	policy := newPolicy("after-takeover")
	f.create(t, policy)
	testenv.Eventually(t, "the other replica leads", func(ctx context.Context) (bool, error) {
		err := f.cells[0].Get(ctx, client.ObjectKeyFromObject(policy), &policyv1alpha1.PropagationPolicy{})
		return err == nil, err
	})
	t.Logf("the other replica led after %s", time.Since(began).Round(time.Millisecond))
}

func (f *fixture) testCells(t *testing.T) {
	f.createCredentials(t, 1)
	f.createCell(t, 1)
	f.awaitCondition(t, cellNames[1], metav1.ConditionTrue, reasonCaughtUp, "")
	policy := newPolicy("after-takeover")
	if err := f.cells[1].Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Errorf("a cell that was added later lacks a policy: %v", err)
	}
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cellNames[1]}}
	if err := f.hub.Delete(t.Context(), cell); err != nil {
		t.Fatal(err)
	}
	f.awaitGone(t, f.hub, cell)
	testenv.Eventually(t, "the cell is no longer reported", func(context.Context) (bool, error) {
		_, known := f.report(t).Cells[cellNames[1]]
		return !known, nil
	})
	if err := f.cells[1].Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Errorf("a cell that was removed has lost a policy: %v", err)
	}
	f.createCell(t, 1)
	f.awaitCondition(t, cellNames[1], metav1.ConditionTrue, reasonCaughtUp, "")

	// New credentials are used; broken ones are reported.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: cellNames[1]}}
	for _, step := range []struct {
		patch  string
		status metav1.ConditionStatus
		reason string
	}{
		{`{"data":{"tls.key":"bm90aGluZw=="}}`, metav1.ConditionFalse, reasonNotConnecting},
		{fmt.Sprintf(`{"data":{"tls.key":%s}}`, asJSON(t, f.credentials(t, 1)[corev1.TLSPrivateKeyKey])), metav1.ConditionTrue, reasonCaughtUp},
	} {
		if err := f.hub.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(step.patch))); err != nil {
			t.Fatal(err)
		}
		f.awaitCondition(t, cellNames[1], step.status, step.reason, "")
	}
}

func (f *fixture) testConflict(t *testing.T) {
	theirs := newPolicy("contested")
	if err := f.cells[0].Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	f.create(t, newPolicy("contested"))
	f.awaitCondition(t, cellNames[0], metav1.ConditionFalse, reasonObstacles, "PropagationPolicy default/contested: the object in the cell is not a copy of the hub's")
	testenv.Eventually(t, "there is an event", func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		err := f.hub.List(ctx, &events)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "ForeignObject" && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Name == cellNames[0]
		}), err
	})
	if err := f.cells[0].Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	f.awaitCondition(t, cellNames[0], metav1.ConditionTrue, reasonCaughtUp, "")
}

func (f *fixture) testStoreSpace(t *testing.T) {
	told := func(status metav1.ConditionStatus) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("the space of the store is told, with status %s", status), func(ctx context.Context) (bool, error) {
			var cell cellplanev1alpha1.Cell
			err := f.hub.Get(ctx, types.NamespacedName{Name: cellNames[0]}, &cell)
			return meta.IsStatusConditionPresentAndEqual(cell.Status.Conditions, names.CellStoreSpace, status), err
		})
	}
	told(metav1.ConditionUnknown) // there are no credentials
	ca, pair, err := f.federation.Cells[0].EtcdFiles()
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: etcdSecret(0)}, Data: map[string][]byte{}}
	for key, file := range map[string]string{"ca.crt": ca, corev1.TLSCertKey: pair.CertFile, corev1.TLSPrivateKeyKey: pair.KeyFile} {
		if secret.Data[key], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	f.create(t, secret)
	told(metav1.ConditionTrue)
}

// etcdSecret is the name of the Secret with the credentials for the store of a cell.
func etcdSecret(i int) string { return cellNames[i] + "-etcd" }

func (f *fixture) testPause(t *testing.T) {
	server, err := f.federation.Cells[0].Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	policy := newPolicy("while-paused")
	f.create(t, policy)
	testenv.Eventually(t, "the other cell gets copies", func(ctx context.Context) (bool, error) {
		err := f.cells[1].Get(ctx, client.ObjectKeyFromObject(policy), &policyv1alpha1.PropagationPolicy{})
		return err == nil, err
	})
	f.awaitCondition(t, cellNames[0], metav1.ConditionUnknown, reasonOutOfContact, "")
	// A policy can be deleted while a cell is unreachable.
	if err := f.hub.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	f.awaitGone(t, f.hub, policy)
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	f.awaitCondition(t, cellNames[0], metav1.ConditionTrue, reasonCaughtUp, "")
	f.awaitGone(t, f.cells[0], policy)
}

// testLostLease pauses the hub until the leader has to stop.
func (f *fixture) testLostLease(t *testing.T) {
	server, err := f.federation.Hub.Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	second := f.replicas["second"]
	ended := <-second.ended
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if ended == nil || !strings.Contains(ended.Error(), election.ErrLost.Error()) {
		t.Errorf("the replica ended with %v", ended)
	}
	delete(f.replicas, "second")
}

// cellNames are the names of the Cells.
var cellNames = []string{"alpha", "beta"}

// fixture is a federation and its running replicas.
type fixture struct {
	federation *local.Federation
	config     *rest.Config
	hub        client.Client
	cells      []client.Client
	replicas   map[string]*replica
	address    string // of the replica that was started last
}

type replica struct {
	cancel context.CancelFunc
	ended  chan error
}

func (f *fixture) run(t *testing.T, name string) {
	t.Helper()
	port, err := ports.Choose()
	if err != nil {
		t.Fatal(err)
	}
	f.address = fmt.Sprintf("127.0.0.1:%d", port)
	options := NewOptions()
	config := &Config{Hub: f.config, Identity: name, BindAddress: f.address, CopyWorkers: 8, Election: options.Election}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- config.Run(ctx) }()
	if f.replicas == nil {
		f.replicas = map[string]*replica{}
	}
	f.replicas[name] = r
	testenv.Eventually(t, "the replica runs", func(ctx context.Context) (bool, error) {
		select {
		case err := <-r.ended:
			t.Fatalf("the replica ended: %v", err)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+"/healthz", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
}

func (f *fixture) stopAll() {
	for _, r := range f.replicas {
		r.cancel()
		<-r.ended
	}
}

func (f *fixture) report(t *testing.T) Report {
	t.Helper()
	var report Report
	if err := json.Unmarshal([]byte(f.fetch(t, "/replication")), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

func (f *fixture) fetch(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get("http://" + f.address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, response.Status)
	}
	return string(body)
}

func (f *fixture) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := f.hub.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) createCell(t *testing.T, i int) {
	t.Helper()
	ca, err := os.ReadFile(f.federation.Cells[i].CAFile())
	if err != nil {
		t.Fatal(err)
	}
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cellNames[i]}}
	cell.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: f.federation.Cells[i].URL(), CABundle: ca}
	cell.Spec.Credentials.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: cellNames[i]}
	cell.Spec.Etcd.Endpoints = []string{f.federation.Cells[i].EtcdURL()}
	cell.Spec.Etcd.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: etcdSecret(i)}
	f.create(t, cell)
}

func (f *fixture) createCredentials(t *testing.T, i int) {
	t.Helper()
	f.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: cellNames[i]}, Type: corev1.SecretTypeTLS, Data: f.credentials(t, i)})
}

// credentials are those of the authenticating proxy.
func (f *fixture) credentials(t *testing.T, i int) map[string][]byte {
	t.Helper()
	pair, err := f.federation.Cells[i].FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	for key, file := range map[string]string{corev1.TLSCertKey: pair.CertFile, corev1.TLSPrivateKeyKey: pair.KeyFile} {
		if data[key], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func (f *fixture) awaitCondition(t *testing.T, cell string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s is %s by %s", cell, status, reason), func(ctx context.Context) (bool, error) {
		var object cellplanev1alpha1.Cell
		if err := f.hub.Get(ctx, types.NamespacedName{Name: cell}, &object); err != nil {
			return false, err
		}
		condition := meta.FindStatusCondition(object.Status.Conditions, names.CellGlobalsCopied)
		if condition == nil {
			return false, fmt.Errorf("it has no condition %s", names.CellGlobalsCopied)
		}
		return condition.Status == status && condition.Reason == reason && strings.Contains(condition.Message, message), fmt.Errorf("it is %+v", condition)
	})
}

func (f *fixture) awaitGone(t *testing.T, from client.Client, object client.Object) {
	t.Helper()
	testenv.Eventually(t, object.GetName()+" is gone", func(ctx context.Context) (bool, error) {
		err := from.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), err
	})
}

func newPolicy(name string) *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       policyv1alpha1.PropagationSpec{ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}}},
	}
}

func adminConfig(t *testing.T, c *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	config, err := c.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func newClient(t *testing.T, c *controlplane.ControlPlane) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	made, err := client.New(adminConfig(t, c), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
