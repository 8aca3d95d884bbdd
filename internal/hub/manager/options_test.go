package manager

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	"github.com/cellplane/cellplane/internal/pki"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://one.example.com"}}, {name: two, cluster: {server: "https://two.example.com"}}]
contexts: [{name: one, context: {cluster: one}}, {name: two, context: {cluster: two}}]
`

func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		flags []string
		host  string
		wrong string // part of the error
	}{
		{name: "defaults", host: "https://one.example.com"},
		{name: "another context", flags: []string{"--context=two"}, host: "https://two.example.com"},
		{name: "no such context", flags: []string{"--context=three"}, wrong: "--kubeconfig"},
		{name: "no such file", flags: []string{"--kubeconfig=nowhere"}, wrong: "--kubeconfig"},
		{name: "too many workers", flags: []string{"--copy-workers=5000"}, wrong: "--copy-workers must be between 1 and 1024"},
		{name: "no address", flags: []string{"--bind-address="}, host: "https://one.example.com"},
		{name: "half an address", flags: []string{"--bind-address=localhost"}, wrong: "--bind-address must be host:port"},
		{name: "lease too short", flags: []string{"--leader-elect-lease-duration=3s"}, wrong: "--leader-elect-lease-duration >"},
		{name: "retries too far apart", flags: []string{"--leader-elect-retry-period=9s"}, wrong: "--leader-elect-retry-period"},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := NewOptions()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			options.AddFlags(flags)
			if err := flags.Parse(append([]string{"--kubeconfig=" + file}, test.flags...)); err != nil {
				t.Fatal(err)
			}
			completed, err := options.Complete()
			if err == nil {
				err = completed.Validate()
			}
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("got error %v, want one with %q", err, test.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			config := completed.Config()
			if config.Hub.Host != test.host || config.Identity == "" || config.Clusters.Status.Interval != 10*time.Second {
				t.Errorf("got %+v", config)
			}
		})
	}
}

// TestRenewedCertificate renews the certificate of the hub's kubeconfig on disk.
func TestRenewedCertificate(t *testing.T) {
	transport.CertCallbackRefreshDuration = 20 * time.Millisecond
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string) {
		t.Helper()
		pair, err := authority.Ensure(dir, name, pki.Leaf{CommonName: name})
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{pair.KeyFile: "client.key", pair.CertFile: "client.crt"} {
			if err := os.Rename(from, filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue("first")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"clusters": [{"name": "hub", "cluster": {"server": %q, "certificate-authority-data": %q}}], "current-context": "hub",
		"contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "us"}}],
		"users": [{"name": "us", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}]}`, server.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	completed, err := (&Options{Kubeconfig: file}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(completed.Config().Hub)
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		response, err := client.Get(server.URL)
		if err != nil {
			return err.Error() // connections are closed when the certificate is renewed
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	if got := name(); got != "first" {
		t.Fatalf("the certificate is %s", got)
	}
	issue("second")
	for deadline := time.Now().Add(time.Minute); name() != "second"; {
		if time.Now().After(deadline) {
			t.Fatalf("the certificate is %s", name())
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestZeroOptions tests the defaults of options that are made in code.
func TestZeroOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	completed, err := (&Options{Kubeconfig: file}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := completed.Validate(); err != nil {
		t.Error(err)
	}
}

// TestClusterFlags tests that the defaults for the status of clusters are Karmada's, and that flags change them.
func TestClusterFlags(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  clusterstatus.Options
	}{
		"defaults": {want: clusterstatus.Options{
			Interval: 10 * time.Second, SuccessThreshold: 30 * time.Second, FailureThreshold: 30 * time.Second,
			MonitorInterval: 5 * time.Second, MonitorGracePeriod: 40 * time.Second, StartupGracePeriod: time.Minute,
		}},
		"all given": {
			flags: []string{
				"--cluster-status-update-frequency=1s", "--cluster-success-threshold=2s", "--cluster-failure-threshold=3s", "--cluster-monitor-period=4s",
				"--cluster-monitor-grace-period=5s", "--cluster-startup-grace-period=6s", "--enable-cluster-resource-modeling=false",
			},
			want: clusterstatus.Options{
				Interval: 1 * time.Second, SuccessThreshold: 2 * time.Second, FailureThreshold: 3 * time.Second, MonitorInterval: 4 * time.Second,
				MonitorGracePeriod: 5 * time.Second, StartupGracePeriod: 6 * time.Second, WithoutResources: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			options.AddFlags(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, options.Clusters.Status); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
