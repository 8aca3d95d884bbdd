package clustergateway_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/tunnels"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/hub/agentrights"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// pull is a member that has registered again in pull mode, so that only its agent leads to it.
type pull struct {
	*world
	hub client.Client
}

const pulled = "member2"

// testTunnels reaches a member through the tunnels of its agent. It is the last test that uses the member.
func testTunnels(t *testing.T, w *world) {
	for _, r := range w.replicas {
		w.restart(t, r)
	}
	p := w.pulls(t)
	namespace := w.namespace(t, "tunnels")
	proxied := p.proxied(t, w.gateway)
	p.unreachable(t, proxied)

	first := p.agent(t)
	w.run(t, 1, namespace, "one", nil)
	w.eventuallyPod(t, "its pods are shown", namespace, "one", func(pod *corev1.Pod) bool { return in(pulled)(pod) && running(pod) })
	pod := gatewaytest.Pod{Namespace: namespace, Name: "one", Log: w.Members[1].PodLog()}
	t.Run("Views", func(t *testing.T) { gatewaytest.CheckStreams(t, w.gateway.Config(t), pod) })
	t.Run("Proxy", func(t *testing.T) { gatewaytest.CheckStreams(t, proxied, pod) })
	t.Run("Users", p.users)
	t.Run("Intruders", p.intruders)

	options := gatewaytest.Options(t, w.Federation)
	w.addViews(t, options)
	other := gatewaytest.Run(t, w.Federation, options)
	federation := p.proxied(t, other)
	federation.Host = strings.Replace(federation.Host, "/apis/", "/federation/apis/", 1)
	for what, config := range map[string]*rest.Config{"another gateway": p.proxied(t, other), "its other surface": federation} {
		if _, err := clientFor(t, config).CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Errorf("%s, which the agent does not know: %v", what, err)
		}
	}

	// A replica that stops, and one of two agents.
	w.replicas[1].stop()
	p.reachable(t, "while a replica is down", proxied)
	p.restartsWithObjects(t, namespace)
	first.has(t, 2)
	second := p.agent(t)
	first.stop()
	p.reachable(t, "with the other agent", proxied)

	p.locksOut(t, second)
	second.stop()
	p.unreachable(t, proxied)
	p.agent(t)
	p.reachable(t, "with the next agent", proxied)
}

// restart runs a replica again at its address, unless it runs.
func (w *world) restart(t *testing.T, r *replica) {
	t.Helper()
	r.stop()
	testenv.Eventually(t, "the address is free", func(context.Context) (bool, error) {
		var err error
		r.listener, err = net.Listen("tcp", strings.TrimPrefix(r.url(), "https://"))
		return err == nil, err
	})
	w.start(t, r, nil)
}

// restartsWithObjects restarts a replica. When it is ready, it has the objects of the member: clients may come from the other one.
func (p *pull) restartsWithObjects(t *testing.T, namespace string) {
	t.Helper()
	ready := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"ClusterReady","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
	check(t, p.hub.Status().Patch(t.Context(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: pulled}}, client.RawPatch(types.MergePatchType, []byte(ready))))
	p.restart(t, p.replicas[1])
	direct := p.direct(t, p.replicas[1])
	testenv.Eventually(t, "the replica is ready", func(ctx context.Context) (bool, error) {
		err := direct.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, err
	})
	if _, err := direct.CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("a replica that is ready lacks the pod: %v", err)
	}
}

// pulls registers the member again. Its agent may report and open tunnels. In the member, the federation has no rights any more.
func (w *world) pulls(t *testing.T) *pull {
	t.Helper()
	scheme := runtime.NewScheme()
	check(t, clientgoscheme.AddToScheme(scheme))
	check(t, api.AddToScheme(scheme))
	hub, err := client.New(w.config(t, w.Hub), client.Options{Scheme: scheme})
	check(t, err)
	check(t, hub.Delete(t.Context(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: pulled}}))
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: pulled}}
	cluster.Spec.SyncMode = clusterv1alpha1.Pull
	testenv.Eventually(t, "it registers", func(ctx context.Context) (bool, error) {
		err := hub.Create(ctx, cluster.DeepCopy())
		return err == nil, err
	})
	for _, object := range agentrights.Agent(pulled)[:2] { // the others are in namespaces that no hub manager has created
		check(t, hub.Create(t.Context(), object))
	}
	rbac := w.members[1].RbacV1()
	bindings, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{LabelSelector: names.ClusterLabel + "=" + pulled})
	check(t, err)
	if len(bindings.Items) == 0 {
		t.Error("the federation had no rights in the member")
	}
	for _, binding := range bindings.Items {
		check(t, rbac.ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	}
	return &pull{w, hub}
}

// proxied returns a configuration for the member's API at a gateway.
func (p *pull) proxied(t *testing.T, g *gatewaytest.Gateway) *rest.Config {
	t.Helper()
	return proxiedAs(g.Config(t))
}

func proxiedAs(config *rest.Config) *rest.Config {
	config.Host += "/apis/cluster.karmada.io/v1alpha1/clusters/" + pulled + "/proxy"
	return config
}

func (p *pull) reachable(t *testing.T, what string, config *rest.Config) {
	t.Helper()
	reader := clientFor(t, config)
	testenv.Eventually(t, "the member is reached "+what, func(ctx context.Context) (bool, error) {
		_, err := reader.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}

func (p *pull) unreachable(t *testing.T, config *rest.Config) {
	t.Helper()
	reader := clientFor(t, config)
	testenv.Eventually(t, "the member is not reached", func(ctx context.Context) (bool, error) {
		_, err := reader.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "no agent of the cluster has opened a tunnel"), err
	})
}

// agent is the part of an agent that opens tunnels.
type agent struct {
	*tunnels.Opener
	stop func()
}

// agent opens tunnels with the certificate of the member's agent, and waits for them.
func (p *pull) agent(t *testing.T) *agent {
	t.Helper()
	opener, err := tunnels.New(pulled, p.gateway.ConfigFor(t, names.AgentUser(pulled), names.AgentsGroup), p.config(t, p.Members[1]))
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		opener.Run(ctx)
	}()
	a := &agent{opener, func() { cancel(); <-done }}
	t.Cleanup(a.stop)
	a.has(t, len(p.replicas))
	return a
}

func (a *agent) has(t *testing.T, count int) {
	t.Helper()
	testenv.Eventually(t, "the agent has its tunnels", func(context.Context) (bool, error) { return a.Count() == count, nil })
}

// users checks that the rights of the hub and of the member count, as in push mode.
func (p *pull) users(t *testing.T) {
	_, err := clientFor(t, proxiedAs(p.gateway.ConfigFor(t, "alice"))).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "clusters") {
		t.Errorf("a user without rights: %v", err)
	}
	meta := metav1.ObjectMeta{Name: "tunnel-users"}
	check(t, p.hub.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters/proxy"}, Verbs: []string{"get"}}}}))
	check(t, p.hub.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
	}))
	testenv.Eventually(t, "a user whom the hub lets through has no rights in the member", func(ctx context.Context) (bool, error) {
		_, err := clientFor(t, proxiedAs(p.gateway.ConfigFor(t, "bob"))).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "bob" cannot list resource "nodes"`), err
	})
}

// intruders tries to open a tunnel with other identities than that of the member's agent.
func (p *pull) intruders(t *testing.T) {
	itself, admin := p.gateway.ConfigFor(t, names.AgentUser(pulled), names.AgentsGroup), p.gateway.Config(t)
	admin.Impersonate = rest.ImpersonationConfig{UserName: names.AgentUser(pulled), Groups: []string{names.AgentsGroup}}
	of := func(cluster string) string {
		return "/apis/cluster.karmada.io/v1alpha1/clusters/" + cluster + "/tunnel"
	}
	direct := rest.CopyConfig(itself)
	direct.Host, direct.Insecure, direct.CAData = p.replicas[0].url(), true, nil
	for _, test := range []struct {
		what           string
		as             *rest.Config
		path, protocol string
		want           int
	}{
		{"the agent", itself, of(pulled), tunnel.Protocol, http.StatusSwitchingProtocols},
		{"the agent at the other surface", itself, "/federation" + of(pulled), tunnel.Protocol, http.StatusSwitchingProtocols},
		{"the agent, to something else", itself, of(pulled), "websocket", http.StatusBadRequest},
		{"the agent of another cluster", p.gateway.ConfigFor(t, names.AgentUser("member1"), names.AgentsGroup), of(pulled), tunnel.Protocol, http.StatusForbidden},
		{"the agent, for another cluster", itself, of("member1"), tunnel.Protocol, http.StatusForbidden},
		{"the agent of a cluster in push mode", p.gateway.ConfigFor(t, names.AgentUser("member1"), names.AgentsGroup), of("member1"), tunnel.Protocol, http.StatusForbidden},
		{"the agent of a cluster that does not exist", p.gateway.ConfigFor(t, names.AgentUser("other"), names.AgentsGroup), of("other"), tunnel.Protocol, http.StatusUnauthorized},
		{"an administrator", p.gateway.Config(t), of(pulled), tunnel.Protocol, http.StatusForbidden},
		{"an administrator who impersonates the agent", admin, of(pulled), tunnel.Protocol, http.StatusForbidden},
		{"a user", p.gateway.ConfigFor(t, "alice"), of(pulled), tunnel.Protocol, http.StatusForbidden},
		{"the agent, for connections to itself", itself, tunnel.ConnectionsPath + pulled, tunnel.ConnectionProtocol, http.StatusForbidden},
		{"the agent at a cluster-gateway", direct, tunnel.Path + pulled, tunnel.Protocol, http.StatusUnauthorized},
		{"the agent at a cluster-gateway, for connections", direct, tunnel.ConnectionsPath + "member1", tunnel.ConnectionProtocol, http.StatusUnauthorized},
	} {
		test.as.NextProtos = []string{"http/1.1"}
		through, err := rest.TransportFor(test.as)
		check(t, err)
		to, err := url.Parse(test.as.Host + test.path)
		check(t, err)
		answer, connection, err := tunnel.Ask(t.Context(), through, *to, test.protocol, nil)
		if err != nil || answer.StatusCode != test.want {
			t.Errorf("%s: %v, %v, want %d", test.what, answer, err, test.want)
		}
		if connection != nil {
			check(t, connection.Close())
		}
	}
}

// locksOut checks that the tunnels of an agent are closed when its Cluster lists other keys, and when it is gone.
func (p *pull) locksOut(t *testing.T, a *agent) {
	t.Helper()
	patch := func(annotations string) {
		t.Helper()
		check(t, p.hub.Patch(t.Context(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: pulled}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`))))
	}
	patch(`{"` + names.AgentKeysAnnotation + `":"none"}`)
	a.has(t, 0)
	p.unreachable(t, p.proxied(t, p.gateway))
	patch("null")
	a.has(t, len(p.replicas))
	check(t, p.hub.Delete(t.Context(), agentrights.Agent(pulled)[1]))
	a.has(t, 0)
	check(t, p.hub.Create(t.Context(), agentrights.Agent(pulled)[1]))
	a.has(t, len(p.replicas))
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: pulled}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull}}
	check(t, p.hub.Delete(t.Context(), cluster.DeepCopy()))
	a.has(t, 0)
	check(t, p.hub.Create(t.Context(), cluster))
	a.has(t, len(p.replicas))
}
