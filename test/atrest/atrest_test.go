package atrest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/atrest/atresttest"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

func all(providers ...string) []byte {
	return atresttest.Config(atresttest.List("'*.*'", providers...))
}

const (
	boxed   = "k8s:enc:secretbox:v1:key1:"
	renewed = "k8s:enc:secretbox:v1:key2:"
	chained = "k8s:enc:aescbc:v1:key1:"
	managed = "k8s:enc:kms:v2:vault:"
)

// TestEncryption is the life of a federation whose cells encrypt in different ways.
func TestEncryption(t *testing.T) {
	plugin := atresttest.StartPlugin(t)
	secretbox, cbc, kms := atresttest.Provider("secretbox", "key1", "key2"), atresttest.Provider("aescbc", "key1"), atresttest.KMS("vault", plugin)
	w := newWorld(t, map[string][]byte{"cell-a": all(secretbox), "cell-b": all(cbc), "cell-c": all(atresttest.Identity)})
	w.give("cell-a", all(secretbox))
	w.give("cell-b", all(cbc))
	w.manage("cell-a", "cell-b")
	w.awaitStable()
	uids := w.put("early", 60)

	t.Run("copies are encrypted by their backup cell", func(t *testing.T) {
		w := w.in(t)
		w.awaitCopies(map[string]string{"cell-a": boxed, "cell-b": chained}, len(uids))
	})
	t.Run("a cell that does not encrypt cannot join", func(t *testing.T) {
		w := w.in(t)
		w.change(cells.Add("cell-c", 2))
		w.awaitBlocked("at rest and cell cell-c does not", "cell-c")
	})
	t.Run("a cell whose keys are not known cannot join", func(t *testing.T) {
		w := w.in(t)
		w.restart("cell-c", all(kms, atresttest.Identity))
		w.awaitBlocked("spec.etcd.encryption of the Cell names no keys", "cell-c")
		w.give("cell-c", all(cbc))
		w.awaitBlocked("cannot be decrypted with the keys in Secret karmada-system/cell-c-encryption: it is encrypted by the KMS plug-in", "cell-c")
	})
	t.Run("keys are rotated while objects move", func(t *testing.T) {
		w := w.in(t)
		w.give("cell-c", all(kms))
		w.awaitMoved(1)
		w.give("cell-c", all(kms, atresttest.Identity)) // it only gains objects, so nothing watches its store
		w.restart("cell-a", all(atresttest.Provider("secretbox", "key2", "key1")))
		plugin.Rotate(t)
		maps.Copy(uids, w.put("late", 20))
		w.awaitStable()
		w.check(uids)
		if objects, _ := w.checkEncrypted("cell-c", managed); objects < 10 {
			t.Errorf("cell-c has %d Secrets", objects)
		}
		w.checkEncrypted("cell-b", chained)
		w.checkEncrypted("cell-a", "k8s:enc:secretbox:v1:key")
	})
	t.Run("copies get the new key", func(t *testing.T) {
		w := w.in(t)
		testenv.Eventually(t, "what moves have left behind is removed", func(ctx context.Context) (bool, error) {
			topology, err := w.topology(ctx)
			return err == nil && topology.Status.LeftoversSince == nil, err
		})
		w.rewrite("cell-a")
		maps.Copy(uids, w.put("rotated", 10))
		w.awaitCopies(map[string]string{"cell-a": renewed, "cell-b": chained, "cell-c": managed}, len(uids))
		w.checkEncrypted("cell-a", renewed)
		w.awaitCopies(map[string]string{"cell-a": renewed, "cell-b": chained, "cell-c": managed}, len(uids))
	})
	t.Run("a key that is missing stops copies and says so", func(t *testing.T) {
		w := w.in(t)
		w.give("cell-b", all(atresttest.Provider("aescbc", "key9")))
		w.awaitCondition("cell-b", names.CellBackedUp, "False", `encrypted by "aescbc" with the key "key1"`)
		w.give("cell-b", all(cbc))
		w.awaitCondition("cell-b", names.CellBackedUp, "True", "")
	})
	t.Run("backups go on after a Secret has changed", func(t *testing.T) {
		w := w.in(t)
		w.give("cell-b", all(cbc, atresttest.Identity))
		maps.Copy(uids, w.put("replaced", 20))
		w.awaitCopies(map[string]string{"cell-a": renewed, "cell-b": chained, "cell-c": managed}, len(uids))
		for _, cell := range []string{"cell-a", "cell-b", "cell-c"} {
			w.awaitCondition(cell, names.CellBackedUp, "True", "")
		}
	})
	t.Run("a Secret that is gone stops nothing but what needs it", func(t *testing.T) {
		w := w.in(t)
		w.give("cell-b", []byte("kind: nothing"))
		w.awaitCondition("cell-a", names.CellBackedUp, "False", "cell-b")
		w.give("cell-b", all(cbc, atresttest.Identity))
		w.awaitCondition("cell-a", names.CellBackedUp, "True", "")
	})
	t.Run("a cell that is lost is taken over", func(t *testing.T) {
		w := w.in(t)
		w.awaitCopies(map[string]string{"cell-a": renewed, "cell-b": chained, "cell-c": managed}, len(uids))
		for _, program := range []string{kubebin.Etcd, kubebin.KubeAPIServer} {
			if err := w.process("cell-b", program).Halt(); err != nil {
				t.Fatal(err)
			}
		}
		w.change(cells.Fail("cell-b"))
		w.awaitCondition("cell-b", names.CellPromoted, "True", "")
		w.check(uids)
		w.awaitCopies(map[string]string{"cell-a": renewed, "cell-c": managed}, len(uids))
	})
	t.Run("what the cell had alone is saved encrypted", func(t *testing.T) {
		w := w.in(t)
		for _, program := range []string{kubebin.Etcd, kubebin.KubeAPIServer} {
			if err := w.process("cell-b", program).Resurrect(); err != nil {
				t.Fatal(err)
			}
		}
		alone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "alone"}, StringData: map[string]string{"password": marker + "alone"}}
		testenv.Eventually(t, "the cell stores an object", func(ctx context.Context) (bool, error) {
			err := w.cells["cell-b"].Create(ctx, alone.DeepCopy())
			return err == nil, err
		})
		w.change(cells.Rejoin("cell-b"))
		w.awaitStable()
		w.check(uids)
		w.checkFiles("alone")
		w.checkEncrypted("cell-b", chained)
	})
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	inner := *w
	inner.t = t
	return &inner
}

// awaitCopies waits until everything has a copy, all of them with the prefixes of their cells.
func (w *world) awaitCopies(prefixes map[string]string, count int) {
	w.t.Helper()
	testenv.Eventually(w.t, "everything has an encrypted copy", func(context.Context) (bool, error) {
		copies, wrong := 0, ""
		for cell, prefix := range prefixes {
			w.stored(cell, func(key string, value []byte) {
				if !strings.HasPrefix(key, cellstore.BackupRoot) || !strings.Contains(key, "/secrets/"+shop+"/") {
					return
				}
				copies++
				if !bytes.HasPrefix(value, []byte(prefix)) {
					wrong = fmt.Sprintf("%s in %s is %.30q", key, cell, value)
				}
			})
		}
		return copies == count && wrong == "", fmt.Errorf("%d copies of %d objects; %s", copies, count, wrong)
	})
	for cell := range prefixes {
		w.checkEncrypted(cell, "k8s:enc:")
	}
}

// awaitMoved waits until objects have moved.
func (w *world) awaitMoved(count int64) {
	w.t.Helper()
	testenv.Eventually(w.t, "objects have moved", func(ctx context.Context) (bool, error) {
		topology, err := w.topology(ctx)
		if err != nil || topology.Status.Change == nil {
			return false, err
		}
		return topology.Status.Change.MovedObjects >= count, fmt.Errorf("the status is %+v", topology.Status)
	})
}

// rewrite stores all Secrets of a cell again, as the documentation of Kubernetes says after a rotation.
func (w *world) rewrite(cell string) {
	w.t.Helper()
	var secrets corev1.SecretList
	if err := w.cells[cell].List(w.t.Context(), &secrets, client.InNamespace(shop)); err != nil {
		w.t.Fatal(err)
	}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		if err := w.cells[cell].Update(w.t.Context(), secret); err != nil {
			w.t.Fatal(err)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// checkFiles checks that an object was saved, that its cell can decrypt it, and that no file contains anything confidential.
func (w *world) checkFiles(name string) {
	w.t.Helper()
	found := false
	err := filepath.Walk(w.stateDir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		encoded := base64.StdEncoding.EncodeToString([]byte(marker))
		if bytes.Contains(content, []byte(marker)) || bytes.Contains(content, []byte(encoded[:len(marker)])) {
			w.t.Errorf("%s contains what the cell encrypts", path)
		}
		if strings.HasSuffix(path, name+cellstore.SealedSuffix) {
			sealed, err := cellstore.ReadSealed(path)
			if err != nil {
				return err
			}
			store, keys := storetest.For(w.t, w.plane(sealed.Cell)), must(atrest.New("the test", all(atresttest.Provider("aescbc", "key1"))))
			store.Encrypt(keys, false)
			plain, err := store.Unseal(w.t.Context(), sealed)
			if err != nil {
				return err
			}
			text, err := cellstore.AsYAML(plain)
			found = err == nil && bytes.Contains(text, []byte(encoded[:len(marker)])) && bytes.HasPrefix(sealed.Stored, []byte(chained))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if !found {
		w.t.Errorf("%s was not saved", name)
	}
	var secret corev1.Secret
	if err := w.cells[w.owner(name)].Get(w.t.Context(), types.NamespacedName{Namespace: shop, Name: name}, &secret); err == nil {
		w.t.Errorf("%s exists", name)
	}
}
