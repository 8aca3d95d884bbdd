package testenv

import (
	"testing"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/local"
)

// OpenStore connects a test to the store of a control plane.
func OpenStore(t testing.TB, plane *controlplane.ControlPlane) *cellstore.Store {
	t.Helper()
	store, err := local.OpenStore(plane)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}
