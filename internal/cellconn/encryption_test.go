package cellconn

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/atrest/atresttest"
)

// TestEncryption replaces the store, and nothing else, when the Cell names keys, when they change, and when it names none any more. Keys that
// cannot be read do not close the store to what needs none.
func TestEncryption(t *testing.T) {
	f := newFixture(t)
	plain := must(t, f.get(t).Store)
	const key = "/registry/secrets/shop/db"
	if plain.Encrypts(key) {
		t.Error("a store without keys encrypts")
	}
	f.hub.cell.Spec.Etcd.Encryption = &cellplanev1alpha1.CellEncryption{SecretRef: cellplanev1alpha1.SecretReference{Namespace: "system", Name: "keys"}}
	refused := func(words string) {
		t.Helper()
		_, err := must(t, f.get(t).Store).FollowKeys(t.Context())
		if !errors.Is(err, atrest.ErrKeys) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), atresttest.Secret("key1")[:20]) {
			t.Errorf("the error is %v, not %q", err, words)
		}
		if _, err := f.get(t).Config(); err != nil {
			t.Errorf("the API server: %v", err)
		}
	}
	refused("there is no Secret system/keys with the EncryptionConfiguration of cell a")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "keys", UID: "keys", ResourceVersion: "1"}}
	f.hub.secrets["keys"] = secret
	refused("Secret system/keys has no encryption.yaml")
	set := func(version string, config []byte) {
		secret.ResourceVersion, secret.Data = version, map[string][]byte{atrest.ConfigKey: config}
	}
	set("2", []byte("kind: "+atresttest.Secret("key1")))
	refused("cannot be read")
	set("3", atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key1"))))
	first := f.get(t)
	store := must(t, first.Store)
	if !store.Encrypts(key) || store.Encrypts("/registry/configmaps/shop/a") || !store.Encrypts("/cellplane/backup/cell-b/secrets/shop/db") || store.Encrypts("/cellplane/mover") {
		t.Error("the store does not encrypt what the configuration says")
	}
	if !plain.Closed() || store.Closed() {
		t.Error("the former store is open, or the new one is not")
	}
	if must(t, f.get(t).Store) != store {
		t.Error("the store was replaced without a change")
	}
	set("4", atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key2", "key1"))))
	second := f.get(t)
	if must(t, second.Store) == store || must(t, second.Config) != must(t, first.Config) {
		t.Error("the store was not replaced, or the configuration was")
	}
	f.hub.cell.Spec.Etcd.Encryption = nil
	if must(t, f.get(t).Store).Encrypts(key) {
		t.Error("the store still encrypts")
	}
}

// TestProbeAnswers tells an API server that does not answer from one that refuses a probe.
func TestProbeAnswers(t *testing.T) {
	f := newFixture(t)
	probe := f.get(t).Probe(must(t, f.get(t).Store))
	secrets := schema.GroupResource{Resource: "secrets"}
	if _, _, err := probe(t.Context(), secrets); err == nil || errors.Is(err, atrest.ErrNoAnswer) {
		t.Errorf("an answer that is no object: %v", err)
	}
	f.hub.cell.Spec.Endpoint.Server = "https://127.0.0.1:1"
	if _, _, err := f.get(t).Probe(must(t, f.get(t).Store))(t.Context(), secrets); !errors.Is(err, atrest.ErrNoAnswer) {
		t.Errorf("no answer: %v", err)
	}
}
