package fleet

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig for a user, with the certificate as files or as data.
func (i *identities) writeKubeconfig(t *testing.T, file, name, token string, asFiles bool) {
	t.Helper()
	endpoint := Endpoint{CertFile: filepath.Join(i.dir, "of-kubeconfig.crt"), KeyFile: filepath.Join(i.dir, "of-kubeconfig.key")}
	i.issue(t, name, endpoint)
	user := &clientcmdapi.AuthInfo{ClientCertificate: endpoint.CertFile, ClientKey: endpoint.KeyFile, Token: token}
	if !asFiles {
		user = &clientcmdapi.AuthInfo{ClientCertificateData: read(t, endpoint.CertFile), ClientKeyData: read(t, endpoint.KeyFile), Token: token}
	}
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: i.server.URL, CertificateAuthorityData: i.ca()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": user},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "me"}},
		CurrentContext: "hub",
	}, file); err != nil {
		t.Fatal(err)
	}
}

// TestRenewedKubeconfig renews the credentials of a kubeconfig on disk, as data and as files. Clients that exist use the new ones, and half a
// renewal changes nothing.
func TestRenewedKubeconfig(t *testing.T) {
	for name, asFiles := range map[string]bool{"data": false, "files": true} {
		t.Run(name, func(t *testing.T) {
			i := newIdentities(t)
			file := filepath.Join(i.dir, "kubeconfig")
			i.writeKubeconfig(t, file, "first", "one", asFiles)
			kubeconfig, err := ReadKubeconfig(file, "")
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(kubeconfig.Config())
			if err != nil {
				t.Fatal(err)
			}
			upstream, err := func() (*Upstream, error) {
				endpoint, err := kubeconfig.Endpoint().LoadFiles()
				if err != nil {
					return nil, err
				}
				return NewUpstream("hub", endpoint, 1)
			}()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(upstream.Close)
			follower, _ := kubeconfig.Config().Transport.(*follower)
			if follower == nil {
				t.Fatal("the configuration does not follow its file")
			}
			expect := func(want, token string) {
				t.Helper()
				follower.tls.checkAt.Store(0)
				upstream.tls.checkAt.Store(0)
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.server.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
					t.Errorf("a client is %s, want %s (%v)", got, want, err)
				}
				if got := response.Header.Get("Sent-Authorization"); got != "Bearer "+token {
					t.Errorf("a client sends %q, want the token %s", got, token)
				}
				if got := addressOf(t, upstream); got != want {
					t.Errorf("an upstream is %s, want %s", got, want)
				}
			}
			expect("first", "one")
			content := read(t, file)
			if err := os.WriteFile(file, content[:len(content)/2], 0o600); err != nil {
				t.Fatal(err)
			}
			expect("first", "one")
			i.writeKubeconfig(t, file, "second", "two", asFiles)
			expect("second", "two")
		})
	}
}

// TestUnusableKubeconfig names the file in its errors, and leaves plug-ins to client-go.
func TestUnusableKubeconfig(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadKubeconfig(filepath.Join(dir, "none"), ""); err == nil {
		t.Error("a kubeconfig that does not exist was read")
	}
	file := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: "https://hub.example"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {Exec: &clientcmdapi.ExecConfig{Command: "login", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "me"}},
		CurrentContext: "hub",
	}
	if err := clientcmd.WriteToFile(config, file); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := ReadKubeconfig(file, "")
	if err != nil || kubeconfig.Config().ExecProvider == nil || kubeconfig.Config().Transport != nil {
		t.Errorf("a plug-in was not left to client-go: %v", err)
	}
}

// TestVerifiedBy replaces the authority in the file of a transport.
func TestVerifiedBy(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	foreign := newIdentities(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	ask := func(ca []byte, transport http.RoundTripper) error {
		t.Helper()
		if err := os.WriteFile(file, ca, 0o600); err != nil {
			t.Fatal(err)
		}
		if transport == nil {
			var err error
			if transport, err = VerifiedBy(file); err != nil {
				return err
			}
		}
		transport.(*follower).tls.checkAt.Store(0)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := ask(own, nil); err != nil {
		t.Fatal(err)
	}
	other := read(t, foreign.authority.CertFile)
	transport, err := VerifiedBy(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(other, transport); err == nil {
		t.Error("the server was verified by an authority that the file has no more")
	}
	if err := ask(own, transport); err != nil {
		t.Errorf("with the authority in the file again: %v", err)
	}
	if err := ask(nil, nil); err == nil {
		t.Error("a file without certificates was accepted")
	}
}

// TestUpgradesOfKubeconfig checks that requests which take over their connection have one of HTTP/1.1, and others one of HTTP/2.
func TestUpgradesOfKubeconfig(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
		CurrentContext: "hub",
	}, file); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := ReadKubeconfig(file, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(kubeconfig.Config())
	if err != nil {
		t.Fatal(err)
	}
	for upgrade, want := range map[string]string{"": "HTTP/2.0", "tunnel": "HTTP/1.1"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if upgrade != "" {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", upgrade)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("upgrade to %q: %s, %v, want %s", upgrade, body, err, want)
		}
	}
}
