// Package etcdtest starts etcds of any number of members on this machine, without an API server, for tests.
package etcdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Etcd is an etcd.
type Etcd struct {
	Members []Member
	// Endpoints are the addresses of all members.
	Endpoints []string
	// InitialCluster is --initial-cluster of all members.
	InitialCluster string
	// Credentials is the Secret that a Cell would name.
	Credentials *corev1.Secret
	Client      *clientv3.Client
}

// Member is a member of an etcd.
type Member struct {
	*process.Process
	Dir, PeerURL string
}

// Start starts an etcd of some members, with more flags for each.
func Start(t testing.TB, size int, flags ...string) *Etcd {
	t.Helper()
	binaries, dir := testenv.Binaries(t), t.TempDir()
	ca, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Ensure(dir, "etcd", pki.Leaf{CommonName: "etcd", Hosts: []string{"127.0.0.1", "localhost"}, Peer: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &Etcd{Credentials: &corev1.Secret{Data: map[string][]byte{}}}
	for entry, file := range map[string]string{"ca.crt": ca.CertFile, corev1.TLSCertKey: pair.CertFile, corev1.TLSPrivateKeyKey: pair.KeyFile} {
		if e.Credentials.Data[entry], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	var peers, cluster []string
	for i := range size {
		e.Endpoints, peers = append(e.Endpoints, address(t)), append(peers, address(t))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	e.InitialCluster = strings.Join(cluster, ",")
	for i := range size {
		name := fmt.Sprintf("m%d", i)
		m := Member{Dir: filepath.Join(dir, name), PeerURL: peers[i]}
		m.Process = process.New(process.Spec{
			Name: name, Path: binaries.Path(kubebin.Etcd), LogFile: filepath.Join(dir, name+".log"),
			Args: append([]string{
				"--name=" + name, "--data-dir=" + m.Dir, "--unsafe-no-fsync", "--log-level=warn",
				"--listen-client-urls=" + e.Endpoints[i], "--advertise-client-urls=" + e.Endpoints[i],
				"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i], "--initial-cluster=" + e.InitialCluster,
				"--client-cert-auth=true", "--trusted-ca-file=" + ca.CertFile, "--cert-file=" + pair.CertFile, "--key-file=" + pair.KeyFile,
				"--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + ca.CertFile, "--peer-cert-file=" + pair.CertFile, "--peer-key-file=" + pair.KeyFile,
			}, flags...),
			Check: process.HTTPCheck(e.Endpoints[i]+"/health?serializable=true", ca.CertFile, pair.CertFile, pair.KeyFile),
		})
		t.Cleanup(func() { _ = m.Stop(context.Background()) })
		e.Members = append(e.Members, m)
	}
	e.StartMembers(t)
	e.Client = e.ClientOf(t, e.Endpoints...)
	return e
}

// ClientOf returns a client of some members.
func (e *Etcd) ClientOf(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	config, err := fleet.StoreTLS(e.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// StartMembers starts all members and waits until they are ready.
func (e *Etcd) StartMembers(t testing.TB) {
	t.Helper()
	for _, m := range e.Members {
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range e.Members {
		if err := m.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// StopMembers stops all members.
func (e *Etcd) StopMembers(t testing.TB) {
	t.Helper()
	for _, m := range e.Members {
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func address(t testing.TB) string {
	t.Helper()
	port, err := ports.Choose()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d", port)
}
