package members

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
)

// TestProxy checks that a member gets no token of the caller, and that browsers show what its pods answer without an origin: over a direct
// connection and through a tunnel, for requests and upgrades.
func TestProxy(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload; as=style")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Security-Policy", "sandbox allow-scripts allow-same-origin")
		w.Header().Set("Service-Worker-Allowed", "/console/")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Seen", r.Header.Get("Impersonate-User")+": "+r.Header.Get("Sec-WebSocket-Protocol"))
		_, _ = io.WriteString(w, "<script>alert(1)</script>")
	})
	encrypted, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer encrypted.Close()
	defer plain.Close()
	directory := &Directory{opened: map[string]*connection{}, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", plain.Listener.Addr().String())
	}}
	direct := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "direct"}, Spec: clusterv1alpha1.ClusterSpec{APIEndpoint: encrypted.URL, InsecureSkipTLSVerification: true}}
	tunnelled := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "tunnelled"}}
	for cluster, secret := range map[*clusterv1alpha1.Cluster]*corev1.Secret{
		direct:    {Data: map[string][]byte{fleet.MemberTokenKey: []byte("of-the-gateway")}},
		tunnelled: nil,
	} {
		connected, err := directory.connect(cluster, secret)
		if err != nil {
			t.Fatal(err)
		}
		proxy := NewProxy(directory)
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m := &member{connection: connected, name: cluster.Name, caller: &user.DefaultInfo{Name: "alice"}, path: "/api/v1/namespaces/a/pods/b/proxy/"}
			proxy.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), memberKey{}, m)))
		}))
		defer gateway.Close()
		for _, upgrade := range []string{"", "websocket"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gateway.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.dG9rZW4, v5.channel.k8s.io")
			if upgrade != "" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", upgrade)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			header := response.Header
			if seen := header.Get("Seen"); response.StatusCode != http.StatusOK || seen != "alice: v5.channel.k8s.io" {
				t.Errorf("%s, upgrade %q: %s, the member sees %q", cluster.Name, upgrade, response.Status, seen)
			}
			if policy := header["Content-Security-Policy"]; !slices.Equal(policy, []string{"sandbox"}) || header["Service-Worker-Allowed"] != nil {
				t.Errorf("%s, upgrade %q: the policy is %q, service workers for %q", cluster.Name, upgrade, policy, header["Service-Worker-Allowed"])
			}
		}
	}
}
