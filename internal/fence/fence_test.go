package fence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

const namespace = "default"

// site is a cell with a fence.
type site struct {
	object      *cellplanev1alpha1.Cell
	credentials *corev1.Secret
	admin       kubernetes.Interface
	store       *cellstore.Store
	cell        *fence.Cell
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newSite(t *testing.T) *site {
	t.Helper()
	plane := testenv.StartFederation(t, local.Spec{WithoutHub: true, Cells: 1}).Cells[0]
	proxy, err := plane.FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no rate limit
	s := &site{
		object: &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: "cell-a"}, Spec: cellplanev1alpha1.CellSpec{
			Endpoint: cellplanev1alpha1.CellEndpoint{Server: plane.URL(), CABundle: read(t, plane.CAFile())},
			Etcd:     cellplanev1alpha1.CellEtcd{Endpoints: []string{plane.EtcdURL()}},
		}},
		credentials: &corev1.Secret{Data: map[string][]byte{"tls.crt": read(t, proxy.CertFile), "tls.key": read(t, proxy.KeyFile)}},
	}
	if s.admin, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	s.store = storetest.For(t, plane)
	if err := s.store.RaiseTerm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if s.cell, err = fence.Connect(s.object.Name, fleet.CellEndpoint(s.object, s.credentials)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be repeated
		if err := errors.Join(fence.Install(t.Context(), s.admin), fleet.GrantGateways(t.Context(), s.admin)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// as returns a client of the cell for somebody. Extras are key and value in turn.
func (s *site) as(t *testing.T, user string, groups []string, extras ...string) kubernetes.Interface {
	t.Helper()
	extra := map[string][]string{}
	for i := 0; i < len(extras); i += 2 {
		extra[extras[i]] = []string{extras[i+1]}
	}
	client, err := kubernetes.NewForConfig(fleet.CellEndpoint(s.object, s.credentials).Config(user, groups, extra))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// gateway returns a client for a user behind a gateway that routes by an epoch.
func (s *site) gateway(t *testing.T, epoch int64, extras ...string) kubernetes.Interface {
	t.Helper()
	return s.as(t, "alice", []string{"system:authenticated", fleet.AuthorizedGroup}, append([]string{names.EpochExtra, strconv.FormatInt(epoch, 10)}, extras...)...)
}

// mark writes the label beneath the API server, as the mover does.
func (s *site) mark(t *testing.T, key, status string) {
	t.Helper()
	ctx := t.Context()
	kv, _, err := s.store.Get(ctx, s.store.Key(key))
	if err != nil {
		t.Fatal(err)
	}
	marked, err := cellstore.WithMark(kv.Value, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: status}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Txn(ctx, 1, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, marked)); err != nil {
		t.Fatal(err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

// expect checks which refusal an error is about; "" expects success.
func expect(t *testing.T, what string, err error, refusal string) {
	t.Helper()
	if got := fence.Refusal(err); got != refusal || (refusal == "" && err != nil) {
		t.Errorf("%s: got %v, want refusal %q", what, err, refusal)
	}
}

func TestFence(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	if err := s.cell.Raise(ctx, 7); err != nil {
		t.Fatal(err)
	}
	t.Run("an old epoch is refused", func(t *testing.T) { testEpoch(t, s) })
	t.Run("existing only", func(t *testing.T) { testExisting(t, s) })
	t.Run("frozen", func(t *testing.T) { testFrozen(t, s) })
	t.Run("the label is reserved", func(t *testing.T) { testReserved(t, s) })
	t.Run("former policies", func(t *testing.T) { testFormer(t, s) })
	t.Run("doors", func(t *testing.T) { testDoors(t, s) })
	t.Run("late writes", func(t *testing.T) { testLate(t, s) })
	t.Run("declared API servers", func(t *testing.T) { testDeclared(t, s) })
	t.Run("closed", func(t *testing.T) { testClosed(t, s) })
}

// testDeclared checks that the fence does not count as raised while an API server is unknown: a paused one is not published.
func testDeclared(t *testing.T, s *site) {
	for declared, want := range map[int32]string{0: "", 1: "", 2: "declares 2 API servers and 1 are known"} {
		object := s.object.DeepCopy()
		object.Spec.Endpoint.APIServers = declared
		cell, err := fence.Connect(object.Name, fleet.CellEndpoint(object, s.credentials))
		if err != nil {
			t.Fatal(err)
		}
		if err := cell.Raise(t.Context(), 7); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("raising the fence of a cell that declares %d API servers: %v", declared, err)
		}
	}
}

func testEpoch(t *testing.T, s *site) {
	ctx := t.Context()
	current, old := s.gateway(t, 7).CoreV1().ConfigMaps(namespace), s.gateway(t, 6).CoreV1().ConfigMaps(namespace)
	_, err := current.Create(ctx, configMap("epoch"), metav1.CreateOptions{})
	expect(t, "create with the current epoch", err, "")
	_, err = old.Create(ctx, configMap("other"), metav1.CreateOptions{})
	expect(t, "create", err, fence.StaleEpoch)
	_, err = old.Update(ctx, configMap("epoch"), metav1.UpdateOptions{})
	expect(t, "update", err, fence.StaleEpoch)
	_, err = old.Patch(ctx, "epoch", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
	expect(t, "patch", err, fence.StaleEpoch)
	expect(t, "delete", old.Delete(ctx, "epoch", metav1.DeleteOptions{}), fence.StaleEpoch)
	expect(t, "delete all", old.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), fence.StaleEpoch)
	unversioned := s.as(t, "alice", []string{fleet.AuthorizedGroup}).CoreV1().ConfigMaps(namespace)
	expect(t, "delete without an epoch", unversioned.Delete(ctx, "epoch", metav1.DeleteOptions{}), fence.StaleEpoch)
	odd := s.as(t, "alice", []string{fleet.AuthorizedGroup}, names.EpochExtra, "x").CoreV1().ConfigMaps(namespace)
	if err := odd.Delete(ctx, "epoch", metav1.DeleteOptions{}); err == nil {
		t.Error("an epoch that is no number was accepted")
	}
	pretender := s.as(t, fence.Mover, []string{fleet.AuthorizedGroup}, names.EpochExtra, "6").CoreV1().ConfigMaps(namespace)
	expect(t, "delete by somebody called like the hub manager", pretender.Delete(ctx, "epoch", metav1.DeleteOptions{}), fence.StaleEpoch)

	confirm := func(client kubernetes.Interface) error {
		return client.CoreV1().RESTClient().Post().AbsPath(fence.ConfirmPath[:len(fence.ConfirmPath)-len("?dryRun=All")]).Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body([]byte(fence.ConfirmBody)).Do(ctx).Error()
	}
	expect(t, "confirmation with the current epoch", confirm(s.gateway(t, 7)), "")
	expect(t, "confirmation with an old epoch", confirm(s.gateway(t, 6)), fence.StaleEpoch)
	if floor, err := s.cell.Floor(ctx); err != nil || floor != 7 {
		t.Errorf("the floor is %d (%v)", floor, err)
	}
	if err := s.cell.Raise(ctx, 3); err != nil {
		t.Error(err)
	}
	if floor, err := s.cell.Floor(ctx); err != nil || floor != 7 {
		t.Errorf("the floor was lowered to %d (%v)", floor, err)
	}
}

func testExisting(t *testing.T, s *site) {
	ctx := t.Context()
	maps := s.gateway(t, 7, names.ExistingExtra, "true").CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, configMap("absent"), metav1.CreateOptions{})
	expect(t, "create", err, fence.Absent)
	_, err = maps.Apply(ctx, coreapply.ConfigMap("absent", namespace).WithData(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "test"})
	expect(t, "apply", err, fence.Absent)
	leases := s.gateway(t, 7, names.ExistingExtra, "true").CoreV1().RESTClient()
	// Leases are made by a PUT of an absent name, as few kinds are.
	err = leases.Put().AbsPath("/apis/coordination.k8s.io/v1/namespaces/default/leases/absent").SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"absent"}}`)).Do(ctx).Error()
	expect(t, "put", err, fence.Absent)
	if _, err := s.admin.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("present"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = maps.Apply(ctx, coreapply.ConfigMap("present", namespace).WithData(map[string]string{"c": "d"}), metav1.ApplyOptions{FieldManager: "test"})
	expect(t, "apply to what is there", err, "")
	expect(t, "delete of what is there", maps.Delete(ctx, "present", metav1.DeleteOptions{}), "")
	if _, err := s.admin.AppsV1().Deployments(namespace).Create(ctx, deployment("scaled"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "scaled", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	_, err = s.gateway(t, 7, names.ExistingExtra, "true").AppsV1().Deployments(namespace).UpdateScale(ctx, "scaled", scale, metav1.UpdateOptions{})
	expect(t, "scale, which does not show whether the object is frozen", err, fence.Frozen)
	_, err = s.gateway(t, 7).AppsV1().Deployments(namespace).UpdateScale(ctx, "scaled", scale, metav1.UpdateOptions{})
	expect(t, "scale where nothing moves", err, "")
}

func testFrozen(t *testing.T, s *site) {
	ctx := t.Context()
	if _, err := s.admin.AppsV1().Deployments(namespace).Create(ctx, deployment("web"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{names.RebalanceMigrating, names.RebalanceMigrated} {
		s.mark(t, "deployments/default/web", status)
		for user, client := range map[string]kubernetes.Interface{
			"a user":                            s.gateway(t, 7),
			"a user who names what exists":      s.gateway(t, 7, names.ExistingExtra, "true"),
			"the engine":                        s.as(t, "system:cellplane:engine", []string{"system:masters"}),
			"an administrator":                  s.admin,
			"a user called like the mover":      s.as(t, fence.Mover, []string{fleet.AuthorizedGroup}, names.EpochExtra, "7"),
			"an engine that names an old epoch": s.as(t, "system:cellplane:engine", []string{"system:masters"}, names.EpochExtra, "1"),
		} {
			what := func(action string) string { return fmt.Sprintf("%s by %s while %s", action, user, status) }
			deployments := client.AppsV1().Deployments(namespace)
			object, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			object.Spec.Paused = true
			_, err = deployments.Update(ctx, object, metav1.UpdateOptions{})
			expect(t, what("update"), err, fence.Frozen)
			object.Status.Replicas = 5
			_, err = deployments.UpdateStatus(ctx, object, metav1.UpdateOptions{})
			expect(t, what("status"), err, fence.Frozen)
			for _, patch := range []string{`{"spec":{"paused":true}}`, `{"metadata":{"labels":{"cellplane.io/rebalance-status":null}}}`, `{"metadata":{"finalizers":["x.io/y"]}}`} {
				_, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				expect(t, what("patch "+patch), err, fence.Frozen)
			}
			expect(t, what("delete"), deployments.Delete(ctx, "web", metav1.DeleteOptions{}), fence.Frozen)
			expect(t, what("delete in the background"), deployments.Delete(ctx, "web", *metav1.NewPreconditionDeleteOptions(string(object.UID))), fence.Frozen)
			if err := deployments.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=web"}); fence.Refusal(err) != fence.Frozen {
				t.Errorf("%s: %v", what("delete all"), err)
			}
		}
	}
	mover := s.as(t, fence.Mover, []string{"system:masters"})
	expect(t, "delete by the mover", mover.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{}), "")
}

func testReserved(t *testing.T, s *site) {
	ctx := t.Context()
	if _, err := s.admin.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("plain"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, client := range []kubernetes.Interface{s.gateway(t, 7), s.admin} {
		forged := configMap("forged")
		forged.Labels = map[string]string{names.RebalanceStatusLabel: "x"}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, forged, metav1.CreateOptions{})
		expect(t, "create with the label", err, fence.Reserved)
		_, err = client.CoreV1().ConfigMaps(namespace).Patch(ctx, "plain", types.MergePatchType, []byte(`{"metadata":{"labels":{"cellplane.io/rebalance-status":"migrated"}}}`), metav1.PatchOptions{})
		expect(t, "adding the label", err, fence.Reserved)
		_, err = client.CoordinationV1().Leases("kube-system").Patch(ctx, "cellplane-fence", types.MergePatchType, []byte(`{"metadata":{"annotations":{"cellplane.io/epoch":"0"}}}`), metav1.PatchOptions{})
		expect(t, "lowering the fence", err, fence.Reserved)
		expect(t, "removing the fence", client.CoordinationV1().Leases("kube-system").Delete(ctx, "cellplane-fence", metav1.DeleteOptions{}), fence.Reserved)
		expect(t, "removing the fence with others", client.CoordinationV1().Leases("kube-system").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=cellplane-fence"}), fence.Reserved)
		if _, err := s.admin.CoordinationV1().Leases("kube-system").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, "removing other Leases", client.CoordinationV1().Leases("kube-system").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=other"}), "")
	}
}

// testFormer has the policies of an earlier version beside those of this one. They go when the hub manager starts the next time.
func testFormer(t *testing.T, s *site) {
	ctx := t.Context()
	policies, bindings := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for _, name := range []string{"cellplane-epoch", "of-a-user"} {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"none.example.com"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		}}
		if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}}
		if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// One of this version's is missing, as in the first start after an upgrade.
	if err := bindings.Delete(ctx, "cellplane-reserved", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mover := s.as(t, fence.Mover, []string{"system:masters"})
	for start, want := range []bool{true, false} {
		if err := fence.Install(ctx, mover); err != nil {
			t.Fatal(err)
		}
		_, policy := policies.Get(ctx, "cellplane-epoch", metav1.GetOptions{})
		_, binding := bindings.Get(ctx, "cellplane-epoch", metav1.GetOptions{})
		if (policy == nil) != want || (binding == nil) != want {
			t.Errorf("after start %d the former policy exists: %v, %v; want %v", start+1, policy, binding, want)
		}
	}
	if _, err := policies.Get(ctx, "of-a-user", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := s.cell.Raise(ctx, 7); err != nil {
		t.Error(err)
	}
}

// testLate lets writers that have read an object before the freeze write after it. The API server may have the object in its cache
// from before: it then begins with that, fails in the transaction, and has to judge the object as it is.
func testLate(t *testing.T, s *site) {
	ctx := t.Context()
	for i := range 20 {
		name := fmt.Sprintf("late-%d", i)
		object, err := s.admin.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		user := s.gateway(t, 7).CoreV1().ConfigMaps(namespace)
		results := make(chan error, 8)
		start := make(chan struct{})
		writes := []func() error{
			func() error {
				object.ResourceVersion = ""
				_, err := user.Update(ctx, object.DeepCopy(), metav1.UpdateOptions{})
				return err
			},
			func() error {
				_, err := user.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"late":"yes"}}`), metav1.PatchOptions{})
				return err
			},
			func() error { return user.Delete(ctx, name, metav1.DeleteOptions{}) },
		}
		s.mark(t, "configmaps/default/"+name, names.RebalanceMigrating)
		for _, write := range writes {
			go func() { <-start; results <- write() }()
		}
		close(start)
		for range writes {
			expect(t, "a write after the freeze", <-results, fence.Frozen)
		}
		kv, _, err := s.store.Get(ctx, s.store.Key("configmaps/default/"+name))
		if err != nil || kv.ModRevision == 0 {
			t.Errorf("the object went: %v", err)
		}
	}
	testRace(t, s)
}

// testRace freezes an object while it is being written. Whatever was acknowledged is in the frozen object; nothing comes after.
func testRace(t *testing.T, s *site) {
	ctx := t.Context()
	object, err := s.admin.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("race"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := object.ResourceVersion
	done := make(chan error, 1)
	acknowledged := make(chan string, 1)
	go func() {
		user := s.gateway(t, 7).CoreV1().ConfigMaps(namespace)
		for i := 0; ; i++ {
			written, err := user.Patch(ctx, "race", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{})
			if err != nil {
				acknowledged <- last
				done <- err
				return
			}
			last = written.ResourceVersion
		}
	}()
	var frozenFrom int64
	testenv.Eventually(t, "the object is frozen", func(ctx context.Context) (bool, error) {
		kv, _, err := s.store.Get(ctx, s.store.Key("configmaps/default/race"))
		if err != nil {
			return false, err
		}
		marked, err := cellstore.WithMark(kv.Value, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}})
		if err != nil {
			return false, err
		}
		frozenFrom = kv.ModRevision
		_, err = s.store.Txn(ctx, 1, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, marked))
		return err == nil, err
	})
	expect(t, "the writer's last write", <-done, fence.Frozen)
	if got := <-acknowledged; got != strconv.FormatInt(frozenFrom, 10) {
		t.Errorf("version %s was acknowledged, and version %d was frozen", got, frozenFrom)
	}
}

// testClosed closes and reopens a cell. A leader of an earlier term comes too late for both.
func testClosed(t *testing.T, s *site) {
	ctx := t.Context()
	if err := s.cell.Close(ctx, 1); err != nil {
		t.Fatal(err)
	}
	_, err := s.gateway(t, 1<<40).CoreV1().ConfigMaps(namespace).Create(ctx, configMap("closed"), metav1.CreateOptions{})
	expect(t, "create in a closed cell", err, fence.StaleEpoch)
	if err := s.cell.Reopen(ctx, 8, 2); err != nil {
		t.Fatal(err)
	}
	if err := s.cell.Close(ctx, 1); !errors.Is(err, fence.ErrDeposed) {
		t.Errorf("closing a cell that a later leader has reopened: %v, want it refused", err)
	}
	if err := s.cell.Reopen(ctx, 7, 1); !errors.Is(err, fence.ErrDeposed) {
		t.Errorf("reopening a cell that a later leader has reopened: %v, want it refused", err)
	}
	if floor, err := s.cell.Floor(ctx); err != nil || floor != 8 {
		t.Errorf("the floor is %d (%v), want 8", floor, err)
	}
	testenv.Eventually(t, "the cell is open", func(ctx context.Context) (bool, error) {
		_, err := s.gateway(t, 8).CoreV1().ConfigMaps(namespace).Create(ctx, configMap("opened"), metav1.CreateOptions{})
		return err == nil, err
	})
	// It fails again.
	if err := s.cell.Close(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.cell.Reopen(ctx, 8, 2); !errors.Is(err, fence.ErrDeposed) {
		t.Errorf("reopening a cell that a later leader has closed: %v, want it refused", err)
	}
	if err := s.cell.Reopen(ctx, 8, 3); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cell is open again", func(ctx context.Context) (bool, error) {
		_, err := s.gateway(t, 8).CoreV1().ConfigMaps(namespace).Create(ctx, configMap("opened-again"), metav1.CreateOptions{})
		return err == nil, err
	})
}
