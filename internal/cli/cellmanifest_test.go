package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestCellManifest reads the same configuration from flags and from a kubeconfig.
func TestCellManifest(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := func(name string, user *clientcmdapi.AuthInfo) string {
		config := clientcmdapi.NewConfig()
		config.Clusters["cell"] = &clientcmdapi.Cluster{Server: "https://cell-c:6443", CertificateAuthorityData: []byte("ca"), TLSServerName: "kubernetes"}
		config.AuthInfos["proxy"] = user
		config.Contexts["cell"] = &clientcmdapi.Context{Cluster: "cell", AuthInfo: "proxy"}
		config.CurrentContext = "cell"
		path := filepath.Join(dir, name)
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	byFlags := cellManifest{
		server: "https://cell-c:6443", serverName: "kubernetes", ca: file("ca.crt", "ca"), cert: file("tls.crt", "cert"), key: file("tls.key", "key"),
		etcd: []string{"https://etcd-c:2379"}, etcdCA: "a", etcdCert: "b", etcdKey: "c",
	}
	etcdAlone := cellManifest{etcd: byFlags.etcd, etcdCA: "a", etcdCert: "b", etcdKey: "c"}
	with := func(manifest cellManifest, change func(*cellManifest)) cellManifest {
		change(&manifest)
		return manifest
	}
	whole := kubeconfig("whole", &clientcmdapi.AuthInfo{ClientCertificate: "tls.crt", ClientKeyData: []byte("key")})
	byKubeconfig := with(etcdAlone, func(m *cellManifest) { m.kubeconfig = whole })

	for name, manifest := range map[string]cellManifest{"flags": byFlags, "kubeconfig": byKubeconfig} {
		if err := manifest.validate(); err != nil || !manifest.given() {
			t.Errorf("%s: given %v, refused with %v", name, manifest.given(), err)
		}
		config, err := manifest.apiServer()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := rest.TLSClientConfig{ServerName: config.ServerName, CAData: config.CAData, CertData: config.CertData, KeyData: config.KeyData}
		want := rest.TLSClientConfig{ServerName: "kubernetes", CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key")}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" || config.Host != "https://cell-c:6443" || string(got.KeyData) != "key" {
			t.Errorf("%s: the configuration of %s differs (-want +got):\n%s", name, config.Host, diff)
		}
	}

	for _, refused := range []struct {
		name, says string
		manifest   cellManifest
	}{
		{"no API server", "--ca-file is missing", etcdAlone},
		{"no etcd", "--etcd is missing", with(byKubeconfig, func(m *cellManifest) { m.etcd = nil })},
		{"no etcd key", "--etcd-key-file is missing", with(byFlags, func(m *cellManifest) { m.etcdKey = "" })},
		{"both", "give either --cell-kubeconfig or --server", with(etcdAlone, func(m *cellManifest) { m.kubeconfig, m.server = whole, "https://cell-c:6443" })},
		{"no such kubeconfig", "reading --cell-kubeconfig", with(etcdAlone, func(m *cellManifest) { m.kubeconfig = filepath.Join(dir, "none") })},
		{"token", "client certificate", with(etcdAlone, func(m *cellManifest) { m.kubeconfig = kubeconfig("token", &clientcmdapi.AuthInfo{Token: "secret"}) })},
	} {
		err := refused.manifest.validate()
		if err == nil {
			_, err = refused.manifest.apiServer()
		}
		if err == nil || !strings.Contains(err.Error(), refused.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", refused.name, err, refused.says)
		}
	}
}
