package membership_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/testenv"
)

// world is a separate hub, because a cluster joins a federation only once, and shared members.
type world struct {
	hub     *rest.Config
	typed   kubernetes.Interface // of the hub
	objects client.Client        // of the hub
	members []*testenv.ControlPlane
}

func TestMembership(t *testing.T) {
	config, err := testenv.StartFederation(t, local.Spec{}).Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{hub: config, typed: newClient(t, config), members: testenv.SharedMembers(t)}
	if w.objects, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	t.Run("join", w.testJoin)
	t.Run("join again", w.testJoinAgain)
	t.Run("join continues", w.testJoinContinues)
	t.Run("refusals", w.testRefusals)
	t.Run("rights", w.testRights)
	t.Run("grant and revoke", w.testGrantAndRevoke)
	t.Run("rotate", w.testRotate)
	t.Run("unjoin", w.testUnjoin)
	t.Run("unjoin waits", w.testUnjoinWaits)
	t.Run("unjoin by force", w.testUnjoinByForce)
}

func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

func (w *world) options(name string) membership.Options {
	return membership.Options{Hub: w.hub, Member: w.members[0].RESTConfig(), Name: name, Cells: []string{"cell-a", "cell-b"}}
}

// join joins the first member and unjoins it when the test ends.
func (w *world) join(t *testing.T, name string) *clusterv1alpha1.Cluster {
	t.Helper()
	cluster, err := membership.Join(t.Context(), w.options(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.forget(t, name) })
	return cluster
}

// forget removes all traces of a cluster. The namespace of the identities stays: other packages may use it.
func (w *world) forget(t *testing.T, name string) {
	t.Helper()
	ctx := context.Background()
	err := membership.Unjoin(ctx, membership.UnjoinOptions{Hub: w.hub, Name: name, Force: true})
	if err != nil && !strings.Contains(err.Error(), "there is no cluster") {
		t.Error(err)
	}
	for _, member := range w.members {
		c, all := member.Client(t), metav1.ListOptions{LabelSelector: names.ClusterLabel + "=" + name}
		err := errors.Join(
			c.CoreV1().ServiceAccounts(names.ClusterNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all),
			c.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
			c.RbacV1().ClusterRoles().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		)
		if err != nil {
			t.Error(err)
		}
	}
}

// cluster returns a Cluster, nil if there is none.
func (w *world) cluster(t *testing.T, name string) *clusterv1alpha1.Cluster {
	t.Helper()
	cluster := &clusterv1alpha1.Cluster{}
	err := w.objects.Get(t.Context(), client.ObjectKey{Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// config returns a configuration for the member with credentials from the hub.
func (w *world) config(t *testing.T, cluster, secret string) *rest.Config {
	t.Helper()
	found, err := w.typed.CoreV1().Secrets("karmada-cluster").Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := fleet.MemberConfig(w.cluster(t, cluster), found)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (w *world) as(t *testing.T, cluster, secret string) kubernetes.Interface {
	t.Helper()
	return newClient(t, w.config(t, cluster, secret))
}

// whoAmI returns the user name that the member authenticates a client as.
func whoAmI(ctx context.Context, c kubernetes.Interface) (string, error) {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

func (w *world) testJoin(t *testing.T) {
	options := w.options("join")
	options.Provider, options.Region, options.Zones, options.Labels = "metal", "north", []string{"n1", "n2"}, map[string]string{"tier": "gold"}
	if _, err := membership.Join(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.forget(t, "join") })
	cluster := w.cluster(t, "join")
	spec := cluster.Spec
	system, err := w.members[0].Client(t).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if spec.ID != string(system.UID) || spec.SyncMode != clusterv1alpha1.Push || spec.APIEndpoint != options.Member.Host+"/" && spec.APIEndpoint != options.Member.Host {
		t.Errorf("the Cluster has id %s, mode %s and endpoint %s", spec.ID, spec.SyncMode, spec.APIEndpoint)
	}
	if spec.Provider != "metal" || spec.Region != "north" || len(spec.Zones) != 2 || cluster.Labels["tier"] != "gold" {
		t.Errorf("the Cluster does not have the options: %+v", cluster)
	}
	if *spec.SecretRef != (clusterv1alpha1.LocalSecretReference{Namespace: "karmada-cluster", Name: "join"}) ||
		*spec.ImpersonatorSecretRef != (clusterv1alpha1.LocalSecretReference{Namespace: "karmada-cluster", Name: "join-impersonator"}) {
		t.Errorf("the Cluster refers to %v and %v", spec.SecretRef, spec.ImpersonatorSecretRef)
	}
	for secret, want := range map[string]struct{ user, cell string }{
		"join":              {"karmada-join", ""},
		"join-impersonator": {"karmada-join-impersonator", ""},
		"join-registrar":    {"karmada-join-registrar", ""},
		"join.hub":          {"karmada-join.hub", "hub"},
		"join.cell-a":       {"karmada-join.cell-a", "cell-a"},
		"join.cell-b":       {"karmada-join.cell-b", "cell-b"},
	} {
		found, err := w.typed.CoreV1().Secrets("karmada-cluster").Get(t.Context(), secret, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if found.Labels[names.CellLabel] != want.cell || found.Labels[names.ClusterLabel] != "join" || len(found.OwnerReferences) != 1 || found.OwnerReferences[0].UID != cluster.UID {
			t.Errorf("Secret %s has labels %v and owners %v", secret, found.Labels, found.OwnerReferences)
		}
		if got, err := whoAmI(t.Context(), w.as(t, "join", secret)); got != "system:serviceaccount:karmada-cluster:"+want.user {
			t.Errorf("with Secret %s we are %s (%v), want %s", secret, got, err, want.user)
		}
	}
}

func (w *world) testJoinAgain(t *testing.T) {
	before := w.join(t, "again")
	token := func() string { return w.config(t, "again", membership.SecretName("again", "cell-a")).BearerToken }
	kept := token()
	// Users' changes stay, damage is repaired.
	edited := before.DeepCopy()
	edited.Spec.Region, edited.Spec.APIEndpoint = "mine", "https://wrong"
	edited.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	if err := w.objects.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	member := w.members[0].Client(t)
	role, err := member.RbacV1().ClusterRoles().Get(t.Context(), "karmada-again:status", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = nil
	if _, err := member.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.typed.CoreV1().Secrets("karmada-cluster").Delete(t.Context(), "again.cell-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := membership.Join(t.Context(), w.options("again"))
	if err != nil {
		t.Fatal(err)
	}
	if after.UID != before.UID || after.Spec.APIEndpoint != before.Spec.APIEndpoint || after.Spec.Region != "mine" || len(after.Spec.Taints) != 1 {
		t.Errorf("after the second join the Cluster is %+v", after.Spec)
	}
	if token() != kept {
		t.Error("a second join replaced a good token")
	}
	testenv.Eventually(t, "the status identity can list nodes again", func(ctx context.Context) (bool, error) {
		_, err := w.as(t, "again", "again").CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	w.as(t, "again", "again.cell-b")
}

func (w *world) testJoinContinues(t *testing.T) {
	// A join that was interrupted before it wrote anything to the hub.
	w.join(t, "half")
	if err := w.objects.Delete(t.Context(), w.cluster(t, "half")); err != nil {
		t.Fatal(err)
	}
	if err := w.typed.CoreV1().Secrets("karmada-cluster").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w.join(t, "half")
	if _, err := w.as(t, "half", "half.cell-a").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Error(err)
	}
	tokens, err := w.members[0].Client(t).CoreV1().Secrets("karmada-cluster").List(t.Context(), metav1.ListOptions{LabelSelector: "cellplane.io/cluster=half"})
	if err != nil || len(tokens.Items) != 6 {
		t.Errorf("%d tokens (%v), want the 6 of the first attempt", len(tokens.Items), err)
	}
}

func (w *world) testRefusals(t *testing.T) {
	w.join(t, "taken")
	other := w.members[1].RESTConfig()
	for name, test := range map[string]struct {
		change func(*membership.Options)
		want   string
	}{
		"the same cluster twice":  {func(o *membership.Options) { o.Name = "twice" }, "already a member, called taken"},
		"a name in use":           {func(o *membership.Options) { o.Member = other }, "another cluster is already called taken"},
		"a bad name":              {func(o *membership.Options) { o.Name = "Not_A_Name" }, "cannot be called"},
		"a long name":             {func(o *membership.Options) { o.Name = strings.Repeat("x", 49) }, "cannot be called"},
		"a name of a Secret":      {func(o *membership.Options) { o.Name = "x-impersonator" }, "cannot be called"},
		"a bad cell":              {func(o *membership.Options) { o.Cells = []string{"a.b"} }, "cannot be the name of a cell"},
		"an endpoint without TLS": {func(o *membership.Options) { o.Member, o.Name, o.APIEndpoint = other, "plain", "http://member" }, "must be an https URL"},
		"the hub itself":          {func(o *membership.Options) { o.Member, o.Name = w.hub, "self" }, "the hub cannot be a member"},
	} {
		t.Run(name, func(t *testing.T) {
			options := w.options("taken")
			test.change(&options)
			_, err := membership.Join(t.Context(), options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
		})
	}
	for _, name := range []string{"twice", "plain", "self"} {
		if w.cluster(t, name) != nil {
			t.Errorf("a refused join left cluster %s behind", name)
		}
	}
	t.Run("another federation", func(t *testing.T) {
		c := w.members[1].Client(t)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "karmada-cluster"}}
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "karmada-foreign", Labels: map[string]string{names.ClusterLabel: "foreign", "cellplane.io/federation": "another"}}}
		if _, err := c.CoreV1().ServiceAccounts("karmada-cluster").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.forget(t, "foreign") })
		options := w.options("foreign")
		options.Member = other
		if _, err := membership.Join(t.Context(), options); err == nil || !strings.Contains(err.Error(), "member of another federation") {
			t.Errorf("got %v, want a refusal", err)
		}
	})
}

func (w *world) testRights(t *testing.T) {
	w.join(t, "rights")
	namespace := w.members[0].Namespace(t)
	status, impersonator := w.as(t, "rights", "rights"), w.as(t, "rights", "rights-impersonator")
	cell, registrar := w.as(t, "rights", "rights.cell-a"), w.as(t, "rights", "rights-registrar")
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	ctx := t.Context()
	listNodes := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}
	createConfigMap := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{})
		return err
	}
	listSecrets := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
	impersonate := func(secret string) error {
		config := w.config(t, "rights", secret)
		config.Impersonate = rest.ImpersonationConfig{UserName: "somebody", Groups: []string{"system:masters"}}
		return listNodes(newClient(t, config))
	}
	for name, test := range map[string]struct {
		err     error
		allowed bool
	}{
		"status lists nodes":                         {listNodes(status), true},
		"status reads the version":                   {version(status), true},
		"status reads secrets":                       {listSecrets(status), false},
		"status writes":                              {createConfigMap(status), false},
		"status impersonates":                        {impersonate("rights"), false},
		"impersonator impersonates":                  {impersonate("rights-impersonator"), true},
		"impersonator acts by itself":                {listNodes(impersonator), false},
		"engine writes":                              {createConfigMap(cell), true},
		"engine propagates roles beyond its own":     {create(ctx, cell, namespace, role), true},
		"engine impersonates":                        {impersonate("rights.cell-a"), false},
		"registrar reads secrets of others":          {listSecrets(registrar), false},
		"registrar writes elsewhere":                 {createConfigMap(registrar), false},
		"registrar makes itself an administrator":    {createBinding(ctx, registrar, binding), false},
		"registrar makes roles in its own namespace": {create(ctx, registrar, names.ClusterNamespace, role), false},
	} {
		if test.allowed && test.err != nil {
			t.Errorf("%s: %v", name, test.err)
		}
		if !test.allowed && !apierrors.IsForbidden(test.err) {
			t.Errorf("%s: %v, want it to be forbidden", name, test.err)
		}
	}
}

func version(c kubernetes.Interface) error {
	_, err := c.Discovery().ServerVersion()
	return err
}

func create(ctx context.Context, c kubernetes.Interface, namespace string, role *rbacv1.Role) error {
	_, err := c.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{})
	return err
}

func createBinding(ctx context.Context, c kubernetes.Interface, binding *rbacv1.ClusterRoleBinding) error {
	_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

func (w *world) testGrantAndRevoke(t *testing.T) {
	w.join(t, "revoke")
	namespace := w.members[0].Namespace(t)
	write := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		return err
	}
	// A later cell, without an administrator of the member.
	if err := membership.Grant(t.Context(), w.hub, "revoke", "cell-c"); err != nil {
		t.Fatal(err)
	}
	a, c := w.as(t, "revoke", "revoke.cell-a"), w.as(t, "revoke", "revoke.cell-c")
	for name, client := range map[string]kubernetes.Interface{"cell-a": a, "cell-c": c} {
		testenv.Eventually(t, name+" can write", func(context.Context) (bool, error) {
			err := write(client)
			return err == nil, err
		})
	}
	registrar, err := membership.Registrar(t.Context(), w.hub, "revoke")
	if err != nil {
		t.Fatal(err)
	}
	if err := membership.Revoke(t.Context(), registrar, "revoke", "cell-c"); err != nil {
		t.Fatal(err)
	}
	if err := write(c); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("right after its identity was revoked cell-c gets %v, want a refusal", err)
	}
	if err := write(a); err != nil {
		t.Errorf("the identity of cell-a was revoked with that of cell-c: %v", err)
	}
	testenv.Eventually(t, "the token itself is forgotten", func(context.Context) (bool, error) {
		err := write(c)
		return apierrors.IsUnauthorized(err), err
	})
	for range 2 { // repeating does no harm
		if err := membership.Revoke(t.Context(), registrar, "revoke", "cell-c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := membership.Withdraw(t.Context(), w.hub, "revoke", "cell-c"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.typed.CoreV1().Secrets("karmada-cluster").Get(t.Context(), "revoke.cell-c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the credentials of cell-c are still on the hub (%v)", err)
	}
	w.as(t, "revoke", "revoke.cell-a")
	if err := membership.Grant(t.Context(), w.hub, "revoke", "cell-c"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "cell-c can write again", func(context.Context) (bool, error) {
		err := write(w.as(t, "revoke", "revoke.cell-c"))
		return err == nil, err
	})
}

func (w *world) testRotate(t *testing.T) {
	w.join(t, "rotate")
	all := []string{"rotate", "rotate-impersonator", "rotate-registrar", "rotate.hub", "rotate.cell-a", "rotate.cell-b"}
	former := map[string]kubernetes.Interface{}
	for _, secret := range all {
		former[secret] = w.as(t, "rotate", secret)
	}
	who := func(c kubernetes.Interface) error {
		_, err := whoAmI(t.Context(), c)
		return err
	}
	expectForgotten := func(secret string) {
		t.Helper()
		testenv.Eventually(t, "the former token of "+secret+" is forgotten", func(context.Context) (bool, error) {
			err := who(former[secret])
			return apierrors.IsUnauthorized(err), err
		})
		if err := who(w.as(t, "rotate", secret)); err != nil {
			t.Errorf("the new token of %s: %v", secret, err)
		}
	}
	if err := membership.Rotate(t.Context(), membership.RotateOptions{Hub: w.hub, Cluster: "rotate", Cells: []string{"cell-a"}}); err != nil {
		t.Fatal(err)
	}
	expectForgotten("rotate.cell-a")
	if err := who(former["rotate.cell-b"]); err != nil {
		t.Errorf("the token of cell-b was replaced, too: %v", err)
	}
	if err := membership.Rotate(t.Context(), membership.RotateOptions{Hub: w.hub, Cluster: "rotate", Grace: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range all {
		expectForgotten(secret)
	}
	if err := membership.Rotate(t.Context(), membership.RotateOptions{Hub: w.hub, Cluster: "rotate", Cells: []string{"nobody"}}); err == nil {
		t.Error("the token of a cell that has none was replaced")
	}
}

func (w *world) testUnjoin(t *testing.T) {
	w.join(t, "leave")
	// By the registrar only; then again, as after an interruption.
	if err := membership.Unjoin(t.Context(), membership.UnjoinOptions{Hub: w.hub, Name: "leave"}); err != nil {
		t.Fatal(err)
	}
	w.expectNothing(t, "leave")
	if err := membership.Unjoin(t.Context(), membership.UnjoinOptions{Hub: w.hub, Name: "leave"}); err == nil || !strings.Contains(err.Error(), "there is no cluster called leave") {
		t.Errorf("unjoining a cluster that is no member: %v", err)
	}
	w.join(t, "leave")
	if err := membership.Unjoin(t.Context(), membership.UnjoinOptions{Hub: w.hub, Name: "leave", Member: w.members[1].RESTConfig()}); err == nil || !strings.Contains(err.Error(), "leads to another cluster") {
		t.Errorf("unjoining with a kubeconfig of another cluster: %v", err)
	}
	w.join(t, "leave")
}

// expectNothing waits until no trace of a cluster is left in the member and on the hub; the member's garbage collector
// removes some of it.
func (w *world) expectNothing(t *testing.T, name string) {
	t.Helper()
	member := w.members[0].Client(t)
	selector := metav1.ListOptions{LabelSelector: names.ClusterLabel + "=" + name}
	testenv.Eventually(t, "nothing is left of "+name, func(ctx context.Context) (bool, error) {
		left := 0
		roles, err := member.RbacV1().ClusterRoles().List(ctx, selector)
		if err != nil {
			return false, err
		}
		bindings, err := member.RbacV1().ClusterRoleBindings().List(ctx, selector)
		if err != nil {
			return false, err
		}
		accounts, err := member.CoreV1().ServiceAccounts(names.ClusterNamespace).List(ctx, selector)
		if err != nil {
			return false, err
		}
		tokens, err := member.CoreV1().Secrets(names.ClusterNamespace).List(ctx, selector)
		if err != nil {
			return false, err
		}
		namespaced, err := member.RbacV1().Roles(names.ClusterNamespace).List(ctx, selector)
		if err != nil {
			return false, err
		}
		secrets, err := w.typed.CoreV1().Secrets(names.ClusterNamespace).List(ctx, selector)
		if err != nil {
			return false, err
		}
		left += len(roles.Items) + len(bindings.Items) + len(accounts.Items) + len(tokens.Items) + len(namespaced.Items) + len(secrets.Items)
		return left == 0, nil
	})
}

// counter counts the requests for a path.
type counter struct {
	next  http.RoundTripper
	path  string
	count *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, c.path) {
		c.count.Add(1)
	}
	return c.next.RoundTrip(r)
}

func (w *world) testUnjoinWaits(t *testing.T) {
	cluster := w.join(t, "waits")
	controllerutil.AddFinalizer(cluster, names.ClusterFinalizer)
	if err := w.objects.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	ended, hub := make(chan error, 1), rest.CopyConfig(w.hub)
	var looked atomic.Int64
	hub.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, "/clusters/waits", &looked} })
	go func() {
		ended <- membership.Unjoin(context.Background(), membership.UnjoinOptions{Hub: hub, Name: "waits"})
	}()
	testenv.Eventually(t, "the cluster is leaving", func(context.Context) (bool, error) {
		return w.cluster(t, "waits").DeletionTimestamp != nil, nil
	})
	since := looked.Load()
	testenv.Eventually(t, "it was looked at some times whether it has left", func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			t.Fatalf("the command did not wait for the cluster to be drained: %v", err)
		default:
		}
		return looked.Load() >= since+3, nil
	})
	impatient := membership.UnjoinOptions{Hub: w.hub, Name: "waits", Timeout: time.Millisecond}
	if err := membership.Unjoin(t.Context(), impatient); err == nil || !strings.Contains(err.Error(), "still has objects") {
		t.Fatalf("got %v, want a refusal while the cluster is not drained", err)
	}
	// The engines still need access, to remove what they propagated.
	if err := version(w.as(t, "waits", "waits.cell-a")); err != nil {
		t.Errorf("the identity of cell-a was revoked before the cluster was drained: %v", err)
	}
	if _, err := membership.Join(t.Context(), w.options("waits")); err == nil || !strings.Contains(err.Error(), "is leaving the federation") {
		t.Errorf("joining a cluster that is leaving: %v", err)
	}
	left := w.cluster(t, "waits")
	before := left.DeepCopy()
	controllerutil.RemoveFinalizer(left, names.ClusterFinalizer)
	if err := w.objects.Patch(t.Context(), left, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.expectNothing(t, "waits")
}

func (w *world) testUnjoinByForce(t *testing.T) {
	cluster := w.join(t, "gone")
	cluster.Spec.APIEndpoint = "https://127.0.0.1:1" // no server listens there
	controllerutil.AddFinalizer(cluster, names.ClusterFinalizer)
	if err := w.objects.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	namespace := names.ExecutionNamespace("gone")
	if _, err := w.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace, Finalizers: []string{names.ExecutionFinalizer}}}
	if err := w.objects.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if err := membership.Unjoin(t.Context(), membership.UnjoinOptions{Hub: w.hub, Name: "gone", Timeout: time.Second}); err == nil {
		t.Error("an unreachable cluster was removed without force")
	}
	if err := membership.Unjoin(t.Context(), membership.UnjoinOptions{Hub: w.hub, Name: "gone", Force: true}); err != nil {
		t.Fatal(err)
	}
	if w.cluster(t, "gone") != nil {
		t.Error("the Cluster still exists")
	}
	if err := w.objects.Get(t.Context(), client.ObjectKeyFromObject(work), work); !apierrors.IsNotFound(err) {
		t.Errorf("its Work still exists (%v)", err)
	}
}
