package storetest

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/pki"
)

// Closed returns a connection to a store that does not run, closed as after a change of the Cell.
func Closed(t testing.TB, cell string) *cellstore.Store {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Ensure(dir, "client", pki.Leaf{CommonName: "client"}); err != nil {
		t.Fatal(err)
	}
	credentials := &corev1.Secret{Data: map[string][]byte{}}
	for key, file := range map[string]string{"ca.crt": "ca.crt", corev1.TLSCertKey: "client.crt", corev1.TLSPrivateKeyKey: "client.key"} {
		if credentials.Data[key], err = os.ReadFile(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	named := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell}}
	named.Spec.Etcd.Endpoints = []string{"https://127.0.0.1:1"}
	store, err := cellstore.Open(named, credentials)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return store
}
