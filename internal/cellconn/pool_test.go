package cellconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/pki"
)

// hub is a reader of one Cell and its Secrets. It counts how often Secrets are read.
type hub struct {
	client.Reader
	cell    *cellplanev1alpha1.Cell
	secrets map[string]*corev1.Secret
	reads   int
}

// Get implements client.Reader.
func (h *hub) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	secret := h.secrets[key.Name]
	switch object := object.(type) {
	case *cellplanev1alpha1.Cell:
		if h.cell == nil || h.cell.Name != key.Name {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "cells"}, key.Name)
		}
		h.cell.DeepCopyInto(object)
		return nil
	case *metav1.PartialObjectMetadata:
		if secret != nil {
			secret.ObjectMeta.DeepCopyInto(&object.ObjectMeta)
			return nil
		}
	case *corev1.Secret:
		h.reads++
		if secret != nil {
			secret.DeepCopyInto(object)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
}

// fixture is a hub with the cell "a", whose API server counts its connections.
type fixture struct {
	hub       *hub
	pool      *Pool
	authority *pki.CA
	dir       string

	mu     sync.Mutex
	states map[net.Conn]http.ConnState
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), states: map[net.Conn]http.ConnState{}}
	var err error
	if f.authority, err = pki.EnsureCA(f.dir, "ca"); err != nil {
		t.Fatal(err)
	}
	pair, err := f.authority.Ensure(f.dir, "server", pki.Leaf{CommonName: "server", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	serving, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(f.read(t, "ca.crt"))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.states[conn] = state
	}
	server.StartTLS()
	t.Cleanup(server.Close)

	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	cell.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: server.URL, CABundle: f.read(t, "ca.crt")}
	cell.Spec.Credentials.SecretRef = cellplanev1alpha1.SecretReference{Namespace: "system", Name: "api"}
	cell.Spec.Etcd.Endpoints = []string{"https://127.0.0.1:1"}
	cell.Spec.Etcd.SecretRef = cellplanev1alpha1.SecretReference{Namespace: "system", Name: "etcd"}
	f.hub = &hub{cell: cell, secrets: map[string]*corev1.Secret{}}
	f.renew(t, "api", "1")
	f.renew(t, "etcd", "1")
	f.pool = &Pool{Hub: f.hub, Secrets: f.hub}
	t.Cleanup(f.pool.Close)
	return f
}

func (f *fixture) read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// renew puts a new certificate into a Secret.
func (f *fixture) renew(t *testing.T, name, version string) {
	t.Helper()
	leaf := name + "-" + version
	if _, err := f.authority.Ensure(f.dir, leaf, pki.Leaf{CommonName: leaf}); err != nil {
		t.Fatal(err)
	}
	f.hub.secrets[name] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, UID: types.UID(name), ResourceVersion: version},
		Data:       map[string][]byte{"tls.crt": f.read(t, leaf+".crt"), "tls.key": f.read(t, leaf+".key"), "ca.crt": f.read(t, "ca.crt")},
	}
}

func (f *fixture) get(t *testing.T) *Cell {
	t.Helper()
	cell, err := f.pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return cell
}

// request sends one to the API server.
func (f *fixture) request(t *testing.T, config *rest.Config) {
	t.Helper()
	made, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := made.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}

// awaitOpen waits until a number of connections to the API server are open.
func (f *fixture) awaitOpen(t *testing.T, want int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		open := 0
		f.mu.Lock()
		for _, state := range f.states {
			if state != http.StateClosed {
				open++
			}
		}
		f.mu.Unlock()
		if open == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d connections are open, want %d", open, want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func must[T any](t *testing.T, get func() (T, error)) T {
	t.Helper()
	got, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestUnchanged shares connections, and reads each Secret once.
func TestUnchanged(t *testing.T) {
	f := newFixture(t)
	first, second := f.get(t), f.get(t)
	if first != second || must(t, first.Store) != must(t, second.Store) || must(t, first.Fence) != must(t, second.Fence) || must(t, first.Config) != must(t, second.Config) {
		t.Error("the connections are not shared")
	}
	if f.hub.reads != 2 {
		t.Errorf("Secrets were read %d times, want 2", f.hub.reads)
	}
	// Another version with the same data is read, and changes nothing.
	f.hub.secrets["api"].ResourceVersion = "2"
	if f.get(t) != first || f.hub.reads != 3 {
		t.Errorf("the cell was reconnected, or Secrets were read %d times", f.hub.reads)
	}
}

// TestChangedSecret replaces the connections that a Secret is for, and no others.
func TestChangedSecret(t *testing.T) {
	f := newFixture(t)
	first := f.get(t)
	config, store := must(t, first.Config), must(t, first.Store)
	f.request(t, config)
	f.awaitOpen(t, 1)

	f.renew(t, "api", "2")
	second := f.get(t)
	if must(t, second.Config) == config || must(t, second.Store) != store {
		t.Error("the configuration was not replaced, or the store was")
	}
	f.awaitOpen(t, 0)
	if _, err := first.Config(); err == nil {
		t.Error("a closed connection can be used")
	}
	f.request(t, must(t, second.Config))
	f.awaitOpen(t, 1)

	f.renew(t, "etcd", "2")
	third := f.get(t)
	if must(t, third.Config) != must(t, second.Config) || must(t, third.Store) == store {
		t.Error("the configuration was replaced, or the store was not")
	}
	if store.Client().Ctx().Err() == nil {
		t.Error("the former store is open")
	}
	f.awaitOpen(t, 1)
}

// TestChangedCell replaces what the Cell says.
func TestChangedCell(t *testing.T) {
	f := newFixture(t)
	first := f.get(t)
	config, store := must(t, first.Config), must(t, first.Store)
	f.hub.cell.Spec.Etcd.Prefix = "/elsewhere"
	second := f.get(t)
	if must(t, second.Config) != config || must(t, second.Store) == store || must(t, second.Store).Prefix() != "/elsewhere/" {
		t.Error("a changed store was not replaced alone")
	}
}

// TestRemovedCell closes the connections to a cell that is gone.
func TestRemovedCell(t *testing.T) {
	f := newFixture(t)
	cell := f.get(t)
	store := must(t, cell.Store)
	f.request(t, must(t, cell.Config))
	f.hub.cell = nil
	if _, err := f.pool.Get(t.Context(), "a"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if store.Client().Ctx().Err() == nil {
		t.Error("the store is open")
	}
	f.awaitOpen(t, 0)
	if _, err := cell.Store(); err == nil {
		t.Error("a closed store can be used")
	}
}

// TestMissing names what is missing in one sentence. What is there can be used.
func TestMissing(t *testing.T) {
	f := newFixture(t)
	delete(f.hub.secrets, "etcd")
	delete(f.hub.secrets["api"].Data, "tls.key")
	cell := f.get(t)
	if _, err := cell.Store(); err == nil || err.Error() != "there is no Secret system/etcd with the credentials for the store of cell a" {
		t.Errorf("the store: %v", err)
	}
	for _, get := range []func() error{
		func() error { _, err := cell.Config(); return err },
		func() error { _, err := cell.Client(); return err },
		func() error { _, err := cell.Fence(); return err },
	} {
		if err := get(); err == nil || !strings.HasSuffix(err.Error(), "cell a: the Secret system/api has no tls.key") {
			t.Errorf("the API server: %v", err)
		}
	}
	f.renew(t, "api", "2")
	must(t, f.get(t).Config)
	delete(f.hub.secrets, "api")
	if _, err := f.get(t).Config(); err == nil || err.Error() != "there is no Secret system/api with the credentials of cell a" {
		t.Errorf("the API server: %v", err)
	}
	f.renew(t, "etcd", "1")
	must(t, f.get(t).Store)
}
