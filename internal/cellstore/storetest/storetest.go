// Package storetest opens the stores of control planes on this machine, for tests and benchmarks.
package storetest

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/controlplane"
)

// For returns a connection to the etcd of a control plane until the test ends.
func For(t testing.TB, plane *controlplane.ControlPlane) *cellstore.Store {
	t.Helper()
	store, err := Open(plane)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// Open connects to the etcd of a control plane.
func Open(plane *controlplane.ControlPlane) (*cellstore.Store, error) {
	ca, pair, err := plane.EtcdFiles()
	if err != nil {
		return nil, err
	}
	credentials := &corev1.Secret{Data: map[string][]byte{}}
	for key, file := range map[string]string{"ca.crt": ca, corev1.TLSCertKey: pair.CertFile, corev1.TLSPrivateKeyKey: pair.KeyFile} {
		if credentials.Data[key], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: plane.Name()}}
	cell.Spec.Etcd.Endpoints = []string{plane.EtcdURL()}
	return cellstore.Open(cell, credentials)
}
