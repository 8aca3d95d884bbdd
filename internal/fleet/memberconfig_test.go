package fleet_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/testenv"
)

func TestMemberConfigRefuses(t *testing.T) {
	good := clusterv1alpha1.ClusterSpec{APIEndpoint: "https://member:6443"}
	token := map[string][]byte{fleet.MemberTokenKey: []byte("t")}
	for name, test := range map[string]struct {
		change func(*clusterv1alpha1.ClusterSpec)
		data   map[string][]byte
		want   string
	}{
		"no endpoint":            {func(s *clusterv1alpha1.ClusterSpec) { s.APIEndpoint = "" }, token, "spec.apiEndpoint is empty"},
		"plain http":             {func(s *clusterv1alpha1.ClusterSpec) { s.APIEndpoint = "http://member" }, token, "must be an https URL"},
		"no host":                {func(s *clusterv1alpha1.ClusterSpec) { s.APIEndpoint = "https:///x" }, token, "must be an https URL"},
		"a password in the URL":  {func(s *clusterv1alpha1.ClusterSpec) { s.APIEndpoint = "https://u:hunter2@member" }, token, "without user"},
		"no token":               {func(*clusterv1alpha1.ClusterSpec) {}, nil, "has no token"},
		"an empty token":         {func(*clusterv1alpha1.ClusterSpec) {}, map[string][]byte{fleet.MemberTokenKey: []byte(" \n")}, "has no token"},
		"an ftp proxy":           {func(s *clusterv1alpha1.ClusterSpec) { s.ProxyURL = "ftp://proxy" }, token, "must have the scheme http, https or socks5"},
		"a proxy without a host": {func(s *clusterv1alpha1.ClusterSpec) { s.ProxyURL = "http://" }, token, "has no host"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}, Spec: good}
			test.change(&cluster.Spec)
			_, err := fleet.MemberConfig(cluster, &corev1.Secret{Data: test.data})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "cluster member1: ") {
				t.Fatalf("got %v, want an error about member1 with %q", err, test.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error contains a password: %v", err)
			}
		})
	}
}

// account is a ServiceAccount in a real member, with a token.
type account struct {
	cluster *clusterv1alpha1.Cluster
	secret  *corev1.Secret
	user    string
}

func newAccount(t *testing.T, name string) account {
	t.Helper()
	member := testenv.SharedMembers(t)[0]
	client, namespace := member.Client(t), member.Namespace(t)
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := member.RESTConfig()
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	return account{
		cluster: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}, Spec: clusterv1alpha1.ClusterSpec{APIEndpoint: config.Host}},
		secret:  &corev1.Secret{Data: map[string][]byte{fleet.MemberTokenKey: []byte(token.Status.Token + "\n"), fleet.MemberCAKey: config.CAData}},
		user:    "system:serviceaccount:" + namespace + ":" + name,
	}
}

// whoAmI returns the user name that a member authenticates us as.
func whoAmI(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

func TestMemberConfigGetsIn(t *testing.T) {
	account := newAccount(t, "engine")
	viaConnect, viaSocks := connectProxy(t, "X-Tenant", "blue"), socksProxy(t)
	for name, test := range map[string]struct {
		change func(*clusterv1alpha1.Cluster, *corev1.Secret)
		// passed counts the connections of the proxy that must have been used
		passed  *atomic.Int32
		refused bool
	}{
		"by its authority": {change: func(*clusterv1alpha1.Cluster, *corev1.Secret) {}},
		"not by another authority": {refused: true, change: func(_ *clusterv1alpha1.Cluster, secret *corev1.Secret) {
			delete(secret.Data, fleet.MemberCAKey)
		}},
		"without checking the certificate": {change: func(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) {
			cluster.Spec.InsecureSkipTLSVerification = true
			secret.Data[fleet.MemberCAKey] = []byte("nonsense")
		}},
		"through a proxy with its header": {passed: &viaConnect.passed, change: func(cluster *clusterv1alpha1.Cluster, _ *corev1.Secret) {
			cluster.Spec.ProxyURL, cluster.Spec.ProxyHeader = "http://"+viaConnect.address, map[string]string{"X-Tenant": "blue"}
		}},
		"not through a proxy without its header": {refused: true, change: func(cluster *clusterv1alpha1.Cluster, _ *corev1.Secret) {
			cluster.Spec.ProxyURL = "http://" + viaConnect.address
		}},
		"through a socks proxy": {passed: &viaSocks.passed, change: func(cluster *clusterv1alpha1.Cluster, _ *corev1.Secret) {
			cluster.Spec.ProxyURL = "socks5://" + viaSocks.address
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, secret := account.cluster.DeepCopy(), account.secret.DeepCopy()
			test.change(cluster, secret)
			config, err := fleet.MemberConfig(cluster, secret)
			if err != nil {
				t.Fatal(err)
			}
			var before int32
			if test.passed != nil {
				before = test.passed.Load()
			}
			user, err := whoAmI(t.Context(), config)
			if test.refused {
				if err == nil {
					t.Fatal("the request was accepted, want a refusal")
				}
				return
			}
			if err != nil || user != account.user {
				t.Fatalf("authenticated as %q (%v), want %q", user, err, account.user)
			}
			if test.passed != nil && test.passed.Load() == before {
				t.Error("the request bypassed the proxy")
			}
		})
	}
}

func TestConnectionFollowsToken(t *testing.T) {
	first, second := newAccount(t, "first"), newAccount(t, "second")
	connection, err := fleet.Connect(first.cluster, first.secret)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(connection.Config())
	if err != nil {
		t.Fatal(err)
	}
	expect := func(user string) {
		t.Helper()
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || review.Status.UserInfo.Username != user {
			t.Fatalf("the member sees %q (%v), want %q", review.Status.UserInfo.Username, err, user)
		}
	}
	expect(first.user)
	if !connection.Apply(second.cluster, second.secret) {
		t.Fatal("a new token needs a new connection")
	}
	expect(second.user)

	moved := second.cluster.DeepCopy()
	moved.Spec.APIEndpoint = "https://elsewhere"
	empty := second.secret.DeepCopy()
	empty.Data[fleet.MemberTokenKey] = nil
	other := second.secret.DeepCopy()
	other.Data[fleet.MemberCAKey] = []byte("other")
	if connection.Apply(moved, second.secret) || connection.Apply(second.cluster, other) || connection.Apply(second.cluster, empty) {
		t.Error("a connection followed to another endpoint, another authority or no token at all")
	}
	expect(second.user)
}

// pipes is a listener for connections in memory, which take no real time.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// Accept implements net.Listener.
func (p pipes) Accept() (net.Conn, error) {
	connection, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return connection, nil
}

// Close implements net.Listener.
func (p pipes) Close() error { close(p); return nil }

// Addr implements net.Listener.
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A member that accepts connections and does not answer must not block anybody.
func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		connections := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/begins" {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
			}
			select {
			case <-release:
				fmt.Fprint(w, "late")
			case <-r.Context().Done():
			}
		})}
		go func() { _ = server.Serve(connections) }()
		defer server.Close()
		transport := &http.Transport{DialContext: connections.dial}
		defer transport.CloseIdleConnections()
		const limit = time.Minute
		get := func(path string) (string, error) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member"+path, nil)
			if err != nil {
				return "", err
			}
			response, err := fleet.LimitInTime(limit, transport).RoundTrip(request)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return string(body), err
		}
		for path, what := range map[string]string{
			"/silent":            "an answer that never begins",
			"/begins":            "an answer that never ends",
			"/silent?watch=true": "a stream that never begins",
		} {
			if body, err := get(path); err == nil {
				t.Errorf("%s was not cancelled, and returned %q", what, body)
			}
		}
		if _, err := get("/silent"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want one of a deadline", err)
		}
		time.AfterFunc(4*limit, func() { close(release) })
		if body, err := get("/begins?watch=1"); err != nil || body != "late" {
			t.Errorf("a stream returned %q (%v), want what came after the limit", body, err)
		}
	})
}

// proxy counts its connections.
type proxy struct {
	address string
	passed  atomic.Int32
}

// connectProxy is an http proxy that requires a header.
func connectProxy(t *testing.T, header, value string) *proxy {
	t.Helper()
	p := &proxy{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get(header) != value {
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
			return
		}
		p.passed.Add(1)
		// The server must release the connection before the client sends anything: what it has read by then would be lost.
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		join(conn, r.Host)
	}))
	t.Cleanup(server.Close)
	parsed, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.address = parsed.Host
	return p
}

// socksProxy implements the part of RFC 1928 that a client needs: no authentication, CONNECT to an IPv4 address.
func socksProxy(t *testing.T) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &proxy{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				hello, request := make([]byte, 3), make([]byte, 10)
				if _, err := io.ReadFull(conn, hello); err != nil {
					return
				}
				_, _ = conn.Write([]byte{5, 0})
				if _, err := io.ReadFull(conn, request); err != nil {
					return
				}
				_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
				p.passed.Add(1)
				port := binary.BigEndian.Uint16(request[8:])
				join(conn, net.JoinHostPort(net.IP(request[4:8]).String(), strconv.Itoa(int(port))))
			}()
		}
	}()
	return p
}

func join(conn net.Conn, address string) {
	defer conn.Close()
	target, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer target.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(target, conn); target.Close() })
	both.Go(func() { _, _ = io.Copy(conn, target); conn.Close() })
	both.Wait()
}
