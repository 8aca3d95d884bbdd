package registration_test

import (
	"context"
	"crypto/ecdsa"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/hub/agentcertificates"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/registration"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestRegistration follows a cluster from a bootstrap token to its removal. Each part continues from the state that the one before left.
func TestRegistration(t *testing.T) {
	f := start(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Anonymous", f.testAnonymous},
		{"Discovery", f.testDiscovery},
		{"Tokens", f.testTokens},
		{"Interrupted", f.testInterrupted},
		{"Register", f.testRegister},
		{"OnlyToRegister", f.testOnlyToRegister},
		{"Requests", f.testRequests},
		{"Takeover", f.testTakeover},
		{"Issued", f.testIssued},
		{"Agent", f.testAgent},
		{"Renewal", f.testRenewal},
		{"Unregister", f.testUnregister},
	} {
		if !t.Run(part.name, part.run) {
			break // the next part would start from an unknown state
		}
	}
}

// testTokens refuses tokens that are not valid, or not for what they are used for.
func (f *fixture) testTokens(t *testing.T) {
	expired, err := registration.CreateToken(t.Context(), f.hub, registration.Token{
		Usages: []string{"signing", "authentication"}, Groups: []string{names.AgentBootstrapGroup}, Expires: time.Now().Add(-time.Minute),
	}, time.Now().Add(-time.Hour))
	check(t, err)
	for what, test := range map[string]struct {
		token, want string
		timeout     time.Duration
	}{
		"expired":             {expired.Text, "has expired, was deleted, or is not for signing", time.Second},
		"unknown":             {"zzzzzz.0123456789abcdef", "has expired, was deleted, or is not for signing", time.Second},
		"not for signing":     {f.token(t, "authentication"), "not for signing", time.Second},
		"only for signing":    {f.token(t, "signing"), "not for authentication", 3 * time.Minute},
		"of the wrong form":   {"abc", "--token is missing, or not of the form", time.Second},
		"with another secret": {f.withOtherSecret(t), "has another secret", time.Second},
	} {
		options := f.options("tokens", test.token)
		options.Timeout = test.timeout
		if err := registration.Register(t.Context(), options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("a token that is %s: %v, want %q", what, err, test.want)
		}
	}
	for what, token := range map[string]string{"expired": expired.Text, "unknown": "zzzzzz.0123456789abcdef", "only for signing": f.token(t, "signing")} {
		if _, err := whoIs(t.Context(), f.withToken(t, token)); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token that is %s logs in: %v, want 401", what, err)
		}
	}
	check(t, f.secret.Delete(t.Context())) // of the attempts

	// The gateway shows those of the hub, and deletes them there.
	through, present := f.asKarmadactl(t), f.token(t)
	listed, err := registration.ListTokens(t.Context(), through)
	if err != nil || !slices.ContainsFunc(listed, func(known registration.Token) bool { return known.Text == present }) {
		t.Errorf("the gateway lists %v, %v; want that of the hub among them", listed, err)
	}
	id, err := registration.DeleteToken(t.Context(), through, present)
	check(t, err)
	if _, err := registration.DeleteToken(t.Context(), f.hub, id); err == nil || !strings.Contains(err.Error(), "there is no token") {
		t.Errorf("the hub still has a token that was deleted through the gateway: %v", err)
	}
}

// withOtherSecret returns a token with the ID of a valid one, which the hub has signed with.
func (f *fixture) withOtherSecret(t *testing.T) string {
	t.Helper()
	token := f.token(t)
	check(t, f.discovered(t, token))
	id, _, _ := strings.Cut(token, ".")
	return id + ".0000000000000000"
}

func (f *fixture) discovered(t *testing.T, token string) error {
	t.Helper()
	discovery := f.options("", token).Discovery
	_, err := discovery.Discover(t.Context())
	return err
}

// testInterrupted registers again after an attempt that ended when the certificate was requested: with the same key.
func (f *fixture) testInterrupted(t *testing.T) {
	token := f.token(t)
	options := f.options("interrupted", token)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- registration.Register(ctx, options) }()
	id, _, _ := strings.Cut(token, ".")
	testenv.Eventually(t, "the certificate is requested", func(ctx context.Context) (bool, error) {
		list, err := f.hub.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(r certificatesv1.CertificateSigningRequest) bool {
			return strings.HasPrefix(r.Name, identity.RequestPrefix(id))
		}), err
	})
	cancel()
	<-ended // it may have been faster
	check(t, registration.Register(t.Context(), options))
	check(t, registration.Unregister(t.Context(), registration.UnregisterOptions{Hub: f.hubConfig, Member: f.memberConf, Name: options.Name}))
}

// testRegister registers the member.
func (f *fixture) testRegister(t *testing.T) {
	token := f.token(t)
	check(t, registration.Register(t.Context(), f.options("m1", token)))
	namespace, err := f.member.CoreV1().Namespaces().Get(t.Context(), names.ClusterNamespace, metav1.GetOptions{})
	if err != nil || namespace.Labels[names.SystemLabel] != "true" {
		t.Errorf("the namespace of the federation is %v: %v", namespace, err)
	}
	who, err := whoIs(t.Context(), f.agent(t))
	check(t, err)
	if who.Username != names.AgentUser("m1") || !slices.Contains(who.Groups, names.AgentsGroup) {
		t.Errorf("the gateway takes the agent for %+v", who)
	}
	system, err := f.member.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	check(t, err)
	spec := f.cluster(t, "m1").Spec
	if spec.SyncMode != clusterv1alpha1.Pull || spec.ID != string(system.UID) || spec.Provider != "acme" || spec.Region != "north" || !slices.Equal(spec.Zones, []string{"north-1"}) {
		t.Errorf("the Cluster is %+v", spec)
	}
	if err := registration.Register(t.Context(), f.options("m1", token)); err != nil {
		t.Errorf("registering once more: %v", err)
	}
	if err := registration.Register(t.Context(), f.options("m2", token)); err == nil || !strings.Contains(err.Error(), "has credentials of "+names.AgentUser("m1")) {
		t.Errorf("registering under another name: %v", err)
	}
}

// testIssued gives the agent of a cluster in push mode credentials, twice. Its Cluster lists the key, so that no other is accepted.
func (f *fixture) testIssued(t *testing.T) {
	options := f.options("pushed", "")
	options.Namespace = "of-pushed"
	for range 2 {
		check(t, registration.Issue(t.Context(), f.hub, options))
	}
	agent, err := credentials.Open(t.Context(), credentials.Secret{Member: f.member, Namespace: options.Namespace})
	check(t, err)
	who, err := whoIs(t.Context(), clientFor(t, agent.Config()))
	check(t, err)
	if who.Username != names.AgentUser("pushed") || !slices.Contains(who.Groups, names.AgentsGroup) {
		t.Errorf("the gateway takes the agent for %+v", who)
	}
	testenv.Eventually(t, "the Cluster lists the key", func(context.Context) (bool, error) {
		return strings.Count(f.cluster(t, "pushed").Annotations[names.AgentKeysAnnotation], "=") == 1, nil
	})
	if mode := f.cluster(t, "pushed").Spec.SyncMode; mode != clusterv1alpha1.Push {
		t.Errorf("the Cluster is in mode %s", mode)
	}
	options.Name = "m1"
	if err := registration.Issue(t.Context(), f.hub, options); err == nil || !strings.Contains(err.Error(), "has credentials of "+names.AgentUser("pushed")) {
		t.Errorf("credentials of another cluster: %v", err)
	}
}

// testOnlyToRegister uses a token for other things. Nothing is allowed even if RBAC grants everything.
func (f *fixture) testOnlyToRegister(t *testing.T) {
	_, err := f.hub.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	}, metav1.CreateOptions{})
	check(t, err)
	defer func() {
		check(t, f.hub.RbacV1().ClusterRoleBindings().Delete(context.Background(), "too-much", metav1.DeleteOptions{}))
	}()
	other := clientFor(t, f.gateway.ConfigFor(t, "somebody"))
	testenv.Eventually(t, "RBAC grants everything", func(ctx context.Context) (bool, error) {
		_, err := other.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	token := f.withToken(t, f.token(t))
	requests, ctx := token.CertificatesV1().CertificateSigningRequests(), t.Context()
	for what, attempt := range map[string]func() error{
		"lists Secrets": func() error {
			_, err := token.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
			return err
		},
		"lists requests":               func() error { _, err := requests.List(ctx, metav1.ListOptions{}); return err },
		"reads the request of another": func() error { _, err := requests.Get(ctx, "agent-fedcba-x", metav1.GetOptions{}); return err },
		"approves a request": func() error {
			_, err := requests.UpdateApproval(ctx, "agent-x", &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "agent-x"}}, metav1.UpdateOptions{})
			return err
		},
		"creates a ConfigMap": func() error {
			_, err := token.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		},
		"deletes cluster-info": func() error {
			return token.CoreV1().ConfigMaps("kube-public").Delete(ctx, "cluster-info", metav1.DeleteOptions{})
		},
		"reads a member": func() error {
			return token.Discovery().RESTClient().Get().AbsPath("/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/version").Do(ctx).Error()
		},
	} {
		if err := attempt(); !apierrors.IsForbidden(err) {
			t.Errorf("a token %s: %v, want 403", what, err)
		}
	}
	config := f.anonymous()
	config.BearerToken = f.token(t)
	config.Impersonate.UserName = "somebody"
	if _, err := clientFor(t, config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a token impersonates: %v, want 403", err)
	}
}

// testRequests refuses what is not the certificate of an agent.
func (f *fixture) testRequests(t *testing.T) {
	text := f.token(t)
	id, _, _ := strings.Cut(text, ".")
	token := f.withToken(t, text)
	for what, change := range map[string]func(*request){
		"another user":        func(r *request) { r.template.Subject.CommonName = "system:admin" },
		"another group":       func(r *request) { r.template.Subject.Organization = []string{"system:nodes"} },
		"one more group":      func(r *request) { r.template.Subject.Organization = append(r.template.Subject.Organization, "team-a") },
		"no group":            func(r *request) { r.template.Subject.Organization = nil },
		"one more attribute":  func(r *request) { r.template.Subject.Country = []string{"XX"} },
		"Karmada's own name":  func(r *request) { r.template.Subject.CommonName = names.AgentUser(names.AgentRBACGenerator) },
		"a name that is none": func(r *request) { r.template.Subject.CommonName = names.AgentUser("../x") },
		"a DNS name":          func(r *request) { r.template.DNSNames = []string{"gateway.example.com"} },
		"an address":          func(r *request) { r.template.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} },
		"server auth":         func(r *request) { r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth) },
		"any usage":           func(r *request) { r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageAny} },
		"another signer":      func(r *request) { r.Spec.SignerName = "example.com/signer" },
		"a long validity":     func(r *request) { r.Spec.ExpirationSeconds = ptr.To(int32(2 * 365 * 24 * 3600)) },
	} {
		decided := f.ask(t, token, identity.RequestPrefix(id), "requests", change)
		if got := decided.Status.Conditions[0]; got.Type != certificatesv1.CertificateDenied || got.Reason != agentcertificates.ReasonNotAgent {
			t.Errorf("a request with %s: %v (%s: %s)", what, got.Type, got.Reason, got.Message)
		}
	}
	for what, test := range map[string]struct {
		change func(*request)
		reason string
	}{
		"without an ID":        {func(r *request) { r.about.ID = "" }, agentcertificates.ReasonInvalidCluster},
		"the ID of a member":   {func(r *request) { r.about.ID = f.cluster(t, "m1").Spec.ID }, agentcertificates.ReasonClusterExists},
		"an impossible region": {func(r *request) { r.about.Region = strings.Repeat("x", 300) }, agentcertificates.ReasonInvalidCluster},
	} {
		decided := f.ask(t, token, identity.RequestPrefix(id), "requests", test.change)
		if got := decided.Status.Conditions[0]; got.Type != certificatesv1.CertificateDenied || got.Reason != test.reason {
			t.Errorf("a cluster %s: %v (%s: %s)", what, got.Type, got.Reason, got.Message)
		}
	}
}

// testTakeover asks with a token for the certificate of clusters that exist, or that somebody else has asked for.
func (f *fixture) testTakeover(t *testing.T) {
	check(t, f.objects.Create(t.Context(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "pushed"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push}}))
	first, second := f.token(t), f.token(t)
	asked := func(text, cluster string, key *ecdsa.PrivateKey) certificatesv1.CertificateSigningRequestCondition {
		id, _, _ := strings.Cut(text, ".")
		return f.ask(t, f.withToken(t, text), identity.RequestPrefix(id), cluster, func(r *request) {
			if key != nil {
				r.key = key
			}
		}).Status.Conditions[0]
	}
	for _, cluster := range []string{"m1", "pushed"} {
		if got := asked(first, cluster, nil); got.Type != certificatesv1.CertificateDenied || got.Reason != agentcertificates.ReasonClusterExists {
			t.Errorf("the certificate of %s: %v (%s)", cluster, got.Type, got.Reason)
		}
	}
	key := newKey(t)
	if got := asked(first, "claimed", key); got.Type != certificatesv1.CertificateApproved || got.Reason != agentcertificates.ReasonRegistered {
		t.Fatalf("the certificate of a new cluster: %v (%s: %s)", got.Type, got.Reason, got.Message)
	}
	for what, text := range map[string]string{"another token": second, "the same token": first} {
		if got := asked(text, "claimed", nil); got.Type != certificatesv1.CertificateDenied || got.Reason != agentcertificates.ReasonClusterExists {
			t.Errorf("the same name with %s and another key: %v (%s)", what, got.Type, got.Reason)
		}
	}
	if got := asked(second, "claimed", key); got.Type != certificatesv1.CertificateApproved {
		t.Errorf("the same name with the same key: %v (%s: %s)", got.Type, got.Reason, got.Message)
	}
}

// testAgent tries what an agent may not do, and certificates of the hub's CA whose key is not registered.
func (f *fixture) testAgent(t *testing.T) {
	agent := f.agent(t)
	if got := f.ask(t, agent, "csr-", "claimed", nil).Status.Conditions[0]; got.Type != certificatesv1.CertificateDenied || got.Reason != agentcertificates.ReasonOtherAgent {
		t.Errorf("an agent asks for the certificate of another: %v (%s)", got.Type, got.Reason)
	}
	if _, err := agent.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an agent lists all requests: %v, want 403", err)
	}
	hour := time.Now().Add(time.Hour)
	for what, cluster := range map[string]string{"a key that is not registered": "m1", "a cluster that does not exist": "nowhere"} {
		cert, key := f.sign(t, cluster, newKey(t), time.Now().Add(-time.Hour), hour)
		if _, err := whoIs(t.Context(), f.withCertificate(t, cert, key)); !apierrors.IsUnauthorized(err) {
			t.Errorf("the certificate of %s: %v, want 401", what, err)
		}
	}
	if _, err := whoIs(t.Context(), clientFor(t, f.gateway.ConfigFor(t, "mallory", names.AgentsGroup))); !apierrors.IsUnauthorized(err) {
		t.Errorf("a user in the group of agents: %v, want 401", err)
	}
}

// testRenewal gives the agent a certificate that ends soon, and expects that it gets another and keeps it.
func (f *fixture) testRenewal(t *testing.T) {
	content, err := f.secret.Read(t.Context())
	check(t, err)
	pair, err := content.Pair()
	check(t, err)
	cert, key := f.sign(t, "m1", pair.PrivateKey.(*ecdsa.PrivateKey), time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour))
	check(t, f.secret.Write(t.Context(), credentials.Content{Cluster: f.gatewayCluster(), Certificate: cert, Key: key}))

	agent, err := credentials.Open(t.Context(), f.secret)
	check(t, err)
	if agent.Cluster() != "m1" {
		t.Errorf("the agent is that of %q", agent.Cluster())
	}
	standby, err := credentials.Open(t.Context(), f.secret)
	check(t, err)
	client := clientFor(t, agent.Config())
	before, err := whoIs(t.Context(), client)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go standby.Follow(ctx, 100*time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	testenv.Eventually(t, "the certificate in the member is renewed", func(ctx context.Context) (bool, error) {
		content, err := f.secret.Read(ctx)
		if err != nil {
			return false, err
		}
		pair, err := content.Pair()
		return err == nil && time.Until(pair.Leaf.NotAfter) > 2*time.Hour, err
	})
	after, err := whoIs(t.Context(), client)
	check(t, err)
	if after.Username != before.Username || slices.Equal(after.Extra["authentication.kubernetes.io/credential-id"], before.Extra["authentication.kubernetes.io/credential-id"]) {
		t.Errorf("the client was %v and is %v after the renewal", before, after)
	}
	if who, err := whoIs(t.Context(), f.agent(t)); err != nil || who.Username != names.AgentUser("m1") {
		t.Errorf("logging in with the renewed certificate: %v, %v", who, err)
	}
	other := clientFor(t, standby.Config())
	testenv.Eventually(t, "the standby uses the renewed certificate", func(ctx context.Context) (bool, error) {
		who, err := whoIs(ctx, other)
		return err == nil && slices.Equal(who.Extra["authentication.kubernetes.io/credential-id"], after.Extra["authentication.kubernetes.io/credential-id"]), err
	})
	cancel()
	check(t, <-ended)
	f.testNewAuthority(t)
}

// testNewAuthority replaces the CA of the gateway in the Secret. A running agent verifies with the new one.
func (f *fixture) testNewAuthority(t *testing.T) {
	content, err := f.secret.Read(t.Context())
	check(t, err)
	foreign, err := pki.EnsureCA(t.TempDir(), "ca")
	check(t, err)
	another := *content
	another.Cluster = f.gatewayCluster()
	another.Cluster.CertificateAuthorityData, err = os.ReadFile(foreign.CertFile)
	check(t, err)
	check(t, f.secret.Write(t.Context(), another))
	agent, err := credentials.Open(t.Context(), f.secret)
	check(t, err)
	client := clientFor(t, agent.Config())
	if _, err := whoIs(t.Context(), client); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with another CA: %v, want that the gateway is not verified", err)
	}
	check(t, f.secret.Write(t.Context(), *content))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go agent.Follow(ctx, 100*time.Millisecond)
	testenv.Eventually(t, "the agent verifies the gateway with the CA in the Secret", func(ctx context.Context) (bool, error) {
		_, err := whoIs(ctx, client)
		return err == nil, err
	})
}

// testUnregister removes the cluster. Its certificate is refused, also when another cluster gets its name.
func (f *fixture) testUnregister(t *testing.T) {
	former := f.agent(t)
	if err := registration.Unregister(t.Context(), registration.UnregisterOptions{Hub: f.hubConfig, Name: "pushed"}); err == nil || !strings.Contains(err.Error(), "push mode") {
		t.Errorf("unregistering a cluster in push mode: %v", err)
	}
	if err := registration.Unregister(t.Context(), registration.UnregisterOptions{Hub: f.hubConfig, Member: f.memberConf, Name: "claimed"}); err == nil || !strings.Contains(err.Error(), names.AgentUser("m1")) {
		t.Errorf("unregistering another cluster than that of the kubeconfig: %v", err)
	}
	check(t, registration.Unregister(t.Context(), registration.UnregisterOptions{Hub: f.hubConfig, Member: f.memberConf, Name: "m1"}))
	if content, err := f.secret.Read(t.Context()); content != nil || err != nil {
		t.Errorf("the member has %v, %v", content, err)
	}
	refused(t, "the certificate of a cluster that has left", former)
	check(t, registration.Register(t.Context(), f.options("m1", f.token(t))))
	if who, err := whoIs(t.Context(), f.agent(t)); err != nil || who.Username != names.AgentUser("m1") {
		t.Errorf("the new cluster of that name: %v, %v", who, err)
	}
	if _, err := whoIs(t.Context(), former); !apierrors.IsUnauthorized(err) {
		t.Errorf("the certificate of the former cluster of that name: %v, want 401", err)
	}
}
