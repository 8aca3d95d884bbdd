package doctor

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// patient is a federation of a hub and a cell without parts.
type patient struct {
	*Doctor
	federation *local.Federation
	cell       client.Client
}

// TestDoctor examines a hub and a cell on which each finding is caused, and then removed.
func TestDoctor(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{Cells: 1})
	hub, err := federation.Hub.AdminConfig()
	must(t, err)
	d, err := Open(hub)
	must(t, err)
	t.Cleanup(d.Close)
	if _, err := d.Examine(t.Context()); err == nil || !strings.Contains(err.Error(), "no CellTopology") {
		t.Errorf("a hub without a topology: %v", err)
	}
	p := &patient{Doctor: d, federation: federation}
	p.prepare(t)
	p.healthy(t)
	t.Run("Certificates", p.testCertificates)
	t.Run("Parts", p.testParts)
	t.Run("Cells", p.testCells)
	t.Run("Stores", p.testStores)
	t.Run("Quotas", p.testQuotas)
	t.Run("Clusters", p.testClusters)
	t.Run("Orphans", p.testOrphans)
	t.Run("Identities", p.testIdentities)
	p.healthy(t)
	t.Run("Rights", p.testRights)
	t.Run("Unreachable", p.testUnreachable)
}

// prepare registers the cell, and writes what parts would.
func (p *patient) prepare(t *testing.T) {
	plane := p.federation.Cells[0]
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}})
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}})
	proxy, err := plane.FrontProxy()
	must(t, err)
	p.secret(t, "credentials", plane.CAFile(), proxy.CertFile, proxy.KeyFile)
	ca, pair, err := plane.EtcdFiles()
	must(t, err)
	p.secret(t, "etcd", ca, pair.CertFile, pair.KeyFile)
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: plane.Name()}}
	cell.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: plane.URL(), CABundle: read(t, plane.CAFile())}
	cell.Spec.Credentials.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: "credentials"}
	cell.Spec.Etcd.Endpoints = []string{plane.EtcdURL()}
	cell.Spec.Etcd.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: "etcd"}
	p.create(t, cell)
	p.condition(t, names.CellReady, metav1.ConditionTrue)
	first, err := cells.First(plane.Name())
	must(t, err)
	p.create(t, &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}, Spec: first})
	p.create(t, p.lease(manager.LeaseName, 0))
	p.create(t, p.lease("gateway-a", 0))
	config, err := plane.AdminConfig()
	must(t, err)
	p.cell, err = client.New(config, client.Options{Scheme: p.hub.client.Scheme()})
	must(t, err)
}

func (p *patient) testCertificates(t *testing.T) {
	now := p.now
	defer func() { p.now = now }()
	p.now = func() time.Time { return now().Add(350 * 24 * time.Hour) }
	found := p.examine(t, "certificates")
	for _, object := range []string{"API server of the hub", "API server of cell cell-a", "Secret " + names.SystemNamespace + "/credentials", "Secret " + names.SystemNamespace + "/etcd", "etcd of cell cell-a at " + p.federation.Cells[0].EtcdURL()} {
		has(t, found, CertificateExpires, Warning, object)
	}
	p.now = func() time.Time { return now().Add(366 * 24 * time.Hour) }
	has(t, p.examine(t, "certificates"), CertificateExpires, Error, "API server of the hub")

	p.now = now
	ended := now().Add(-time.Hour).UTC().Format(time.RFC3339)
	p.create(t, &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "ended", Annotations: map[string]string{names.AgentKeysAnnotation: "abc=" + ended}}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull},
	})
	has(t, p.examine(t, "certificates"), CertificateExpires, Error, "Cluster ended")
}

func (p *patient) testParts(t *testing.T) {
	lease := p.lease(manager.LeaseName, 0)
	must(t, p.hub.client.Delete(t.Context(), lease))
	has(t, p.examine(t, "parts"), HubManagerSilent, Error, "hub manager")
	must(t, p.hub.client.Create(t.Context(), p.lease(manager.LeaseName, time.Hour)))
	has(t, p.examine(t, "parts"), HubManagerSilent, Error, "hub manager")
	must(t, p.hub.client.Delete(t.Context(), lease))
	must(t, p.hub.client.Create(t.Context(), lease))

	gateway := p.lease("gateway-a", 0)
	must(t, p.hub.client.Delete(t.Context(), gateway))
	has(t, p.examine(t, "parts"), GatewaySilent, Error, "gateways")
	must(t, p.hub.client.Create(t.Context(), gateway))
	p.create(t, p.lease("gateway-b", time.Hour))
	has(t, p.examine(t, "parts"), GatewaySilent, Warning, "Lease gateway-b")
}

func (p *patient) testCells(t *testing.T) {
	p.condition(t, names.CellReady, metav1.ConditionFalse)
	p.condition(t, names.CellBackedUp, metav1.ConditionFalse)
	found := p.examine(t, "cells")
	has(t, found, CellNotReady, Error, "Cell cell-a")
	has(t, found, BackupBehind, Error, "Cell cell-a")
	p.condition(t, names.CellReady, metav1.ConditionTrue)
	p.condition(t, names.CellBackedUp, metav1.ConditionUnknown)
	has(t, p.examine(t, "cells"), BackupBehind, Warning, "Cell cell-a")
	p.condition(t, names.CellBackedUp, metav1.ConditionTrue)

	p.topology.Spec.Cells = append(p.topology.Spec.Cells, cellplanev1alpha1.TopologyCell{Name: "lost", State: cellplanev1alpha1.CellStateNormal})
	p.topology.Spec.Cells[0].State = cellplanev1alpha1.CellStateFailed
	found, err := p.checkCells(t.Context())
	must(t, err)
	has(t, found, CellNotReady, Error, "Cell lost")
	has(t, found, CellFailed, Warning, "Cell cell-a")

	old := metav1.NewTime(p.now().Add(-time.Hour))
	p.cells[0].Status.Backup = &cellplanev1alpha1.CellBackup{UpToDateAt: &old}
	has(t, p.Doctor.cell(&p.cells[0]), BackupBehind, Warning, "Cell cell-a")
}

func (p *patient) testStores(t *testing.T) {
	store, err := p.pool.Store(t.Context(), "cell-a")
	must(t, err)
	members, err := store.Client().MemberList(t.Context())
	must(t, err)
	alarm := &clientv3.AlarmMember{MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	maintenance := etcdserverpb.NewMaintenanceClient(store.Client().ActiveConnection())
	_, err = maintenance.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm})
	must(t, err)
	has(t, p.examine(t, "stores"), EtcdAlarm, Error, "etcd of cell cell-a")
	_, err = store.Client().AlarmDisarm(t.Context(), alarm)
	must(t, err)

	full := &clientv3.StatusResponse{DbSize: 90, DbSizeQuota: 100}
	has(t, space("cell-a", "https://etcd", full), EtcdSpace, Warning, "etcd of cell cell-a")
}

func (p *patient) testQuotas(t *testing.T) {
	five := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: five}}
	p.create(t, quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: five, Used: five}
	must(t, p.hub.client.Status().Update(t.Context(), quota))
	federated := &policyv1alpha1.FederatedResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "full"}, Spec: policyv1alpha1.FederatedResourceQuotaSpec{Overall: five}}
	p.create(t, federated)
	federated.Status = policyv1alpha1.FederatedResourceQuotaStatus{Overall: five, OverallUsed: five}
	must(t, p.hub.client.Status().Update(t.Context(), federated))
	found := p.examine(t, "quotas")
	has(t, found, QuotaNearlyUsed, Warning, "ResourceQuota default/full")
	has(t, found, QuotaNearlyUsed, Warning, "FederatedResourceQuota default/full")
}

func (p *patient) testClusters(t *testing.T) {
	p.create(t, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "pushed"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push}})
	p.create(t, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "pulling"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull}})
	if found := p.examine(t, "clusters"); len(found) > 0 {
		t.Errorf("about clusters that were just created: %v", found)
	}
	found := p.later(t, "clusters")
	has(t, found, ClusterNotReady, Error, "Cluster pushed")
	has(t, found, AgentSilent, Error, "Cluster pulling")
}

func (p *patient) testOrphans(t *testing.T) {
	space := names.ExecutionNamespace("gone")
	for _, api := range []client.Client{p.hub.client, p.cell} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}
		must(t, api.Create(t.Context(), namespace))
		t.Cleanup(func() { _ = api.Delete(context.Background(), namespace) })
	}
	for name, annotations := range map[string]map[string]string{
		"bound":  {names.ResourceBindingNamespaceAnnotation: "default", names.ResourceBindingNameAnnotation: "web-deployment"},
		"global": {names.ClusterResourceBindingNameAnnotation: "role"},
		"free":   nil,
	} {
		work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name, Annotations: annotations}}
		must(t, p.cell.Create(t.Context(), work))
		t.Cleanup(func() { _ = p.cell.Delete(context.Background(), work) })
	}
	if found := p.examine(t, "orphans"); len(found) > 0 {
		t.Errorf("about objects that were just created: %v", found)
	}
	found := p.later(t, "orphans")
	has(t, found, OrphanedWork, Warning, "Work "+space+"/bound in cell-a")
	has(t, found, OrphanedWork, Warning, "Work "+space+"/global in cell-a")
	has(t, found, OrphanedNamespace, Warning, "Namespace "+space+" in hub")
	has(t, found, OrphanedNamespace, Warning, "Namespace "+space+" in cell-a")
	if len(found) != 4 {
		t.Errorf("found %v", found)
	}
	now := p.now
	defer func() { p.now = now }()
	p.now = func() time.Time { return now().Add(time.Hour) }
	p.topology.Spec.Cells[0].State = cellplanev1alpha1.CellStateOut // the binding may be on its way
	found, err := p.checkOrphans(t.Context())
	must(t, err)
	for _, f := range found {
		if f.Kind == OrphanedWork {
			t.Errorf("while workloads move: %v", f)
		}
	}
}

func (p *patient) testIdentities(t *testing.T) {
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: names.EngineUser("gone")},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: names.EngineUser("cell-a")},
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	p.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "leftover"}, RoleRef: role, Subjects: subjects})
	p.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leftover"}, RoleRef: role,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: names.AgentUser("gone")}},
	})
	p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: "gone", Labels: map[string]string{names.ClusterLabel: "gone"}}})
	found := p.examine(t, "identities")
	has(t, found, LeftoverIdentity, Warning, "ClusterRoleBinding leftover")
	has(t, found, LeftoverIdentity, Warning, "RoleBinding default/leftover")
	has(t, found, LeftoverIdentity, Warning, "Secret "+names.ClusterNamespace+"/gone")
	if len(found) != 3 {
		t.Errorf("found %v", found)
	}
}

// testRights examines as a user who may read only part of the hub: what cannot be checked is told.
func (p *patient) testRights(t *testing.T) {
	config := *p.hub.config
	config.Impersonate.UserName = "limited"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "limited"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cellplane.io", "cluster.karmada.io", ""}, Resources: []string{"cells", "celltopologies", "clusters", "secrets"}, Verbs: []string{"get", "list"}},
	}}
	p.create(t, role)
	p.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "limited"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "limited"}},
	})
	limited, err := Open(&config)
	must(t, err)
	defer limited.Close()
	testenv.Eventually(t, "the rights are in force", func(ctx context.Context) (bool, error) {
		err := limited.read(ctx)
		return err == nil, err
	})
	report, err := limited.Examine(t.Context())
	must(t, err)
	has(t, report.Findings, CheckFailed, Error, "identities")
	if report.Worst() != Error {
		t.Errorf("the worst is %q", report.Worst())
	}
}

func (p *patient) testUnreachable(t *testing.T) {
	server, err := p.federation.Process("cell-a/kube-apiserver")
	must(t, err)
	must(t, server.Halt())
	report, err := p.Examine(t.Context())
	must(t, err)
	has(t, report.Findings, ControlPlaneUnreachable, Error, "Cell cell-a")
	if len(report.Findings) != 1 {
		t.Errorf("an API server that is down leads to %v", report.Findings)
	}
}

// TestSkew compares versions and clocks, which are the same for all control planes of this machine.
func TestSkew(t *testing.T) {
	v := version.MustParseGeneric
	found := differing(map[string]*version.Version{"hub": v("1.36.1"), "a": v("1.36.3"), "b": v("1.35.0"), "c": v("1.34.9")})
	has(t, found, VersionSkew, Warning, "API server of b")
	has(t, found, VersionSkew, Error, "API server of c")
	if len(found) != 2 {
		t.Errorf("versions: %v", found)
	}
	found = clocks(map[string]time.Duration{"hub": 4 * time.Second, "a": 5 * time.Second, "b": -time.Second, "c": time.Minute})
	has(t, found, ClockSkew, Warning, "API server of b")
	has(t, found, ClockSkew, Error, "API server of c")
	has(t, found, ClockSkew, Warning, "this machine")
	if len(found) != 3 {
		t.Errorf("clocks: %v", found)
	}
}

func TestSaturated(t *testing.T) {
	before := map[string]level{"a": {0, 5}, "b": {2, 0}, "c": {0, 1}, "d": {7, 0}}
	found := saturated(before, map[string]level{"a": {0, 5}, "b": {3, 0}, "c": {4, 3}, "d": {0, 0}})
	has(t, found, FlowControlSaturated, Warning, "b")
	has(t, found, FlowControlSaturated, Error, "c")
	if len(found) != 2 {
		t.Errorf("found %v", found)
	}
	if _, err := parseLevels("PriorityLevelName, Other\nsystem, 1\n"); err == nil {
		t.Error("a table with other columns was read")
	}
}

// TestRunbooks expects advice and a section of docs/operations.md for each kind of finding.
func TestRunbooks(t *testing.T) {
	headings := map[string]bool{}
	for line := range strings.Lines(string(read(t, "../../docs/operations.md"))) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			headings[strings.TrimSpace(title)] = true
		}
	}
	source := string(read(t, "finding.go"))
	if kinds := strings.Count(source, " Kind = "); kinds != len(advice) {
		t.Errorf("there are %d kinds of findings, and advice for %d", kinds, len(advice))
	}
	for kind := range advice {
		if !headings[string(kind)] {
			t.Errorf("docs/operations.md has no section %q", kind)
		}
	}
}

// healthy expects that nothing is found.
func (p *patient) healthy(t *testing.T) {
	t.Helper()
	report, err := p.Examine(t.Context())
	must(t, err)
	if len(report.Findings) > 0 || report.Worst() != "" || len(report.Checks) != len(checks)+1 {
		t.Errorf("a healthy federation has %v (checks: %v)", report.Findings, report.Checks)
	}
}

// examine makes one check.
func (p *patient) examine(t *testing.T, name string) []Finding {
	t.Helper()
	must(t, p.read(t.Context()))
	if found := p.reach(t.Context()); len(found) > 0 {
		t.Fatal(found)
	}
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	found, err := checks[i].run(p.Doctor, t.Context())
	must(t, err)
	return found
}

// later makes a check an hour later.
func (p *patient) later(t *testing.T, name string) []Finding {
	t.Helper()
	now := p.now
	defer func() { p.now = now }()
	p.now = func() time.Time { return now().Add(time.Hour) }
	return p.examine(t, name)
}

func (p *patient) create(t *testing.T, object client.Object) {
	t.Helper()
	must(t, p.hub.client.Create(t.Context(), object))
	if !strings.Contains(t.Name(), "/") {
		return
	}
	t.Cleanup(func() { _ = p.hub.client.Delete(context.Background(), object) })
}

func (p *patient) secret(t *testing.T, name, ca, cert, key string) {
	t.Helper()
	p.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"ca.crt": read(t, ca), corev1.TLSCertKey: read(t, cert), corev1.TLSPrivateKeyKey: read(t, key)},
	})
}

func (p *patient) lease(name string, age time.Duration) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(time.Now().Add(-age))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	if name != manager.LeaseName {
		lease.Labels = map[string]string{names.GatewayLeaseLabel: "true"}
	}
	return lease
}

// condition writes a condition of the cell.
func (p *patient) condition(t *testing.T, kind string, status metav1.ConditionStatus) {
	t.Helper()
	cell := &cellplanev1alpha1.Cell{}
	must(t, p.hub.client.Get(t.Context(), client.ObjectKey{Name: "cell-a"}, cell))
	cell.Status.Conditions = slices.DeleteFunc(cell.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	cell.Status.Conditions = append(cell.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test", Message: "for the test", LastTransitionTime: metav1.Now()})
	must(t, p.hub.client.Status().Update(t.Context(), cell))
}

func has(t *testing.T, found []Finding, kind Kind, severity Severity, object string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f Finding) bool {
		return f.Kind == kind && f.Severity == severity && f.Object == object && f.Message != "" && f.Advice != "" && strings.HasSuffix(f.Runbook, "#"+string(kind))
	}) {
		t.Errorf("there is no %s %s about %s, but %v", severity, kind, object, found)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
