package expiry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/pki"
)

// TestCollector expects the end of certificates in files and kubeconfigs, that a renewal shows, and zero for what cannot be read.
func TestCollector(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	ca.Validity = time.Minute
	pair, err := ca.Ensure(dir, "client", pki.Leaf{CommonName: "client"})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: pair.CertFile, ClientKey: pair.KeyFile})
	withToken := filepath.Join(dir, "token.kubeconfig")
	write(t, withToken, &clientcmdapi.AuthInfo{Token: "secret"})
	missing := filepath.Join(dir, "missing")
	Track(File("serving", pair.CertFile), Authorities("client-ca", ca.CertFile), Kubeconfig("hub-client", kubeconfig, ""),
		Kubeconfig("templates-client", withToken, ""), File("lost", missing), File("unused", ""))

	if got := values(t); len(got) != 4 || got[missing] != 0 || got[kubeconfig] != got[pair.CertFile] || !near(got[pair.CertFile], time.Minute) || got[ca.CertFile] <= got[pair.CertFile] {
		t.Errorf("the certificates end at %v", got)
	}
	ca.Validity = time.Hour
	if _, err := ca.Renew(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := values(t); !near(got[pair.CertFile], time.Hour) || !near(got[kubeconfig], time.Hour) {
		t.Errorf("after the renewal the certificates end at %v", got)
	}
	const cell = "Cell a"
	chain, err := os.ReadFile(pair.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	stop := Follow(func() []Certificate { return []Certificate{Chain("cell-client", cell, chain)} })
	defer Follow(func() []Certificate { return []Certificate{Chain("cell-client", cell, chain)} })() // of another gateway in the process
	if got := values(t); len(got) != 5 || !near(got[cell], time.Hour) {
		t.Errorf("with that for a cell the certificates end at %v", got)
	}
	stop()
	if got := values(t); len(got) != 5 {
		t.Errorf("a list is asked no more, and the certificates end at %v", got)
	}
	problems, err := testutil.CollectAndLint(Collector())
	if err != nil || len(problems) > 0 {
		t.Errorf("the metric is not named by convention: %v %v", problems, err)
	}
}

func near(end float64, in time.Duration) bool {
	return time.Until(time.Unix(int64(end), 0)).Round(10*time.Second) == in
}

// values returns the values of the metric by file.
func values(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if strings.Contains(label.GetValue(), "secret") {
					t.Errorf("the label %s has a secret", label.GetName())
				}
				if label.GetName() == "file" {
					found[label.GetValue()] = metric.Gauge.GetValue()
				}
			}
		}
	}
	return found
}

func write(t *testing.T, file string, user *clientcmdapi.AuthInfo) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://hub.example"}
	config.AuthInfos["hub"] = user
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "hub"}
	config.CurrentContext = "hub"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
}
