// Package atrest tests cells whose API servers encrypt what they store: moves, backups, failover and the rotation of keys, with an etcd and an
// API server for each cell.
package atrest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	shop = "shop"
	// marker is in all data that must not be readable in a store.
	marker = "very-confidential"
)

// world is a hub, three cells that encrypt, and a hub manager in this process.
type world struct {
	t          *testing.T
	dir        string
	federation *local.Federation
	hub        client.Client
	cells      map[string]client.Client
	stores     map[string]*cellstore.Store // without keys: they show what is stored
	stateDir   string
}

// newWorld starts the API servers with these configurations, by cell.
func newWorld(t *testing.T, configs map[string][]byte) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), cells: map[string]client.Client{}, stores: map[string]*cellstore.Store{}, stateDir: t.TempDir()}
	settings := local.Settings{Parts: map[string]local.Part{}}
	for cell, config := range configs {
		w.write(cell, config)
		settings.Parts[cell+"/"+kubebin.KubeAPIServer] = local.Part{Flags: map[string]local.Values{"encryption-provider-config": {local.Value(w.file(cell))}}}
	}
	var err error
	if w.federation, err = local.Open(t.TempDir(), local.Spec{Cells: len(configs)}, local.Options{Binaries: testenv.Binaries(t), NoFsync: true, Settings: &settings}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.federation.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		w.federation.Close()
	})
	if err := w.federation.Start(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	w.hub = w.client(w.federation.Hub)
	if err := bootstrap.CreateNamespaces(t.Context(), w.hub); err != nil {
		t.Fatal(err)
	}
	w.create(w.hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	for _, plane := range w.federation.Cells {
		w.cells[plane.Name()], w.stores[plane.Name()] = w.client(plane), storetest.For(t, plane)
		w.register(plane)
	}
	return w
}

func (w *world) file(cell string) string { return filepath.Join(w.dir, cell+".yaml") }

// write changes the configuration that an API server reads when it starts.
func (w *world) write(cell string, config []byte) {
	w.t.Helper()
	if err := os.WriteFile(w.file(cell), config, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// restart restarts the API server of a cell with another configuration.
func (w *world) restart(cell string, config []byte) {
	w.t.Helper()
	w.write(cell, config)
	server := w.process(cell, kubebin.KubeAPIServer)
	if err := server.Restart(); err != nil {
		w.t.Fatal(err)
	}
	testenv.Eventually(w.t, "the API server serves again", func(ctx context.Context) (bool, error) {
		err := w.cells[cell].Get(ctx, types.NamespacedName{Name: shop}, &corev1.Namespace{})
		return err == nil, err
	})
}

func (w *world) plane(cell string) *controlplane.ControlPlane {
	for _, plane := range w.federation.Cells {
		if plane.Name() == cell {
			return plane
		}
	}
	w.t.Fatalf("there is no cell %s", cell)
	return nil
}

func (w *world) process(cell, program string) interface {
	Restart() error
	Halt() error
	Resurrect() error
} {
	w.t.Helper()
	found, err := w.plane(cell).Process(program)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) config(plane *controlplane.ControlPlane) *rest.Config {
	w.t.Helper()
	config, err := plane.AdminConfig()
	if err != nil {
		w.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (w *world) client(plane *controlplane.ControlPlane) client.Client {
	w.t.Helper()
	made, err := bootstrap.NewClient(w.config(plane))
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func (w *world) create(in client.Client, object client.Object) {
	w.t.Helper()
	if err := in.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// register writes the Cell.
func (w *world) register(plane *controlplane.ControlPlane) {
	w.t.Helper()
	read := func(file string) []byte {
		data, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		return data
	}
	proxy, err := plane.FrontProxy()
	if err != nil {
		w.t.Fatal(err)
	}
	ca, pair, err := plane.EtcdFiles()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := bootstrap.RegisterCell(w.t.Context(), w.hub, bootstrap.Cell{
		Name: plane.Name(), Server: plane.URL(), FrontProxy: bootstrap.TLS{CA: read(plane.CAFile()), Cert: read(proxy.CertFile), Key: read(proxy.KeyFile)},
		Etcd: []string{plane.EtcdURL()}, EtcdClient: bootstrap.TLS{CA: read(ca), Cert: read(pair.CertFile), Key: read(pair.KeyFile)},
	}); err != nil {
		w.t.Fatal(err)
	}
}

// give writes the Secret with the keys of a cell, and has the Cell name it.
func (w *world) give(cell string, config []byte) {
	w.t.Helper()
	name := cell + "-encryption"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}, Data: map[string][]byte{"encryption.yaml": config}}
	if err := w.hub.Update(w.t.Context(), secret); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	} else if err != nil {
		w.create(w.hub, secret)
	}
	w.encryption(cell, &cellplanev1alpha1.CellEncryption{SecretRef: cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: name}})
}

func (w *world) encryption(cell string, encryption *cellplanev1alpha1.CellEncryption) {
	w.t.Helper()
	testenv.Eventually(w.t, "the Cell is edited", func(ctx context.Context) (bool, error) {
		var object cellplanev1alpha1.Cell
		if err := w.hub.Get(ctx, types.NamespacedName{Name: cell}, &object); err != nil {
			return false, err
		}
		object.Spec.Etcd.Encryption = encryption
		err := w.hub.Update(ctx, &object)
		return err == nil, err
	})
}

// manage creates the topology and runs a hub manager.
func (w *world) manage(members ...string) {
	w.t.Helper()
	topology := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}}
	for _, name := range members {
		topology.Spec.Cells = append(topology.Spec.Cells, cellplanev1alpha1.TopologyCell{Name: name, Weight: 1, State: cellplanev1alpha1.CellStateNormal})
	}
	topology.Spec.Migration.Window, topology.Spec.Migration.GracePeriod = 2, &metav1.Duration{Duration: time.Second}
	w.create(w.hub, topology)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for {
			config := &manager.Config{Hub: w.config(w.federation.Hub), Identity: "test", CopyWorkers: 8, StateDir: w.stateDir, Election: manager.NewOptions().Election}
			if err := config.Run(ctx); !errors.Is(err, election.ErrLost) {
				ended <- err
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) topology(ctx context.Context) (*cellplanev1alpha1.CellTopology, error) {
	topology := &cellplanev1alpha1.CellTopology{}
	return topology, w.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology)
}

func (w *world) change(edit cells.Edit) {
	w.t.Helper()
	testenv.Eventually(w.t, "the topology is edited", func(ctx context.Context) (bool, error) {
		topology, err := w.topology(ctx)
		if err == nil {
			err = edit(&topology.Spec)
		}
		if err == nil {
			err = w.hub.Update(ctx, topology)
		}
		return err == nil, err
	})
}

// awaitStable waits until no change is under way.
func (w *world) awaitStable() {
	w.t.Helper()
	testenv.Eventually(w.t, "no change is under way", func(ctx context.Context) (bool, error) {
		topology, err := w.topology(ctx)
		if err != nil {
			return false, err
		}
		status := &topology.Status
		return status.ObservedGeneration == topology.Generation && status.Phase == cellplanev1alpha1.TopologyStable && status.FencedEpoch == topology.Generation &&
			cells.Running(&topology.Spec) == "", fmt.Errorf("the status is %+v", *status)
	})
}

// awaitBlocked waits until the change is blocked with these words, and nothing is in the cell.
func (w *world) awaitBlocked(words, cell string) {
	w.t.Helper()
	testenv.Eventually(w.t, "the change is blocked", func(ctx context.Context) (bool, error) {
		topology, err := w.topology(ctx)
		if err != nil {
			return false, err
		}
		settled := meta.FindStatusCondition(topology.Status.Conditions, names.TopologySettled)
		return settled != nil && settled.Reason == "Blocked" && strings.Contains(settled.Message, words), fmt.Errorf("settled is %+v, not %q", settled, words)
	})
	var moved corev1.SecretList
	if err := w.cells[cell].List(w.t.Context(), &moved, client.InNamespace(shop)); err != nil {
		w.t.Fatal(err)
	}
	if len(moved.Items) != 0 {
		w.t.Errorf("%d Secrets have moved", len(moved.Items))
	}
}

// awaitCondition waits for a condition of a Cell.
func (w *world) awaitCondition(cell, kind, status, words string) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("cell %s is %s=%s", cell, kind, status), func(ctx context.Context) (bool, error) {
		var object cellplanev1alpha1.Cell
		if err := w.hub.Get(ctx, types.NamespacedName{Name: cell}, &object); err != nil {
			return false, err
		}
		found := meta.FindStatusCondition(object.Status.Conditions, kind)
		return found != nil && string(found.Status) == status && strings.Contains(found.Message, words), fmt.Errorf("it is %+v", found)
	})
}

// owner returns the cell that owns a name.
func (w *world) owner(name string) string {
	w.t.Helper()
	topology, err := w.topology(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	compiled, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return compiled.Name(compiled.Route(slots.Of(shop, name)).New)
}

// put creates Secrets in the cells that own them, and returns their UIDs.
func (w *world) put(prefix string, count int) map[string]types.UID {
	w.t.Helper()
	uids := map[string]types.UID{}
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, StringData: map[string]string{"password": marker + name}}
		w.create(w.cells[w.owner(name)], secret)
		uids[name] = secret.UID
	}
	return uids
}

// check reads all objects through the API servers of their owners.
func (w *world) check(uids map[string]types.UID) {
	w.t.Helper()
	for name, uid := range uids {
		var secret corev1.Secret
		if err := w.cells[w.owner(name)].Get(w.t.Context(), types.NamespacedName{Namespace: shop, Name: name}, &secret); err != nil {
			w.t.Errorf("Secret %s: %v", name, err)
			continue
		}
		if secret.UID != uid || string(secret.Data["password"]) != marker+name || secret.Labels[names.RebalanceStatusLabel] != "" {
			w.t.Errorf("Secret %s has changed: %+v", name, secret.ObjectMeta)
		}
	}
}

// stored visits everything in the store of a cell as it is stored.
func (w *world) stored(cell string, visit func(key string, value []byte)) {
	w.t.Helper()
	all, err := w.stores[cell].Client().Get(w.t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		visit(string(kv.Key), kv.Value)
	}
}

// checkEncrypted checks that nothing confidential can be read in a store, and that Secrets and copies of them have a prefix.
func (w *world) checkEncrypted(cell, prefix string) (objects, copies int) {
	w.t.Helper()
	w.stored(cell, func(key string, value []byte) {
		if bytes.Contains(value, []byte(marker)) {
			w.t.Errorf("cell %s stores %s unencrypted", cell, key)
		}
		if !strings.Contains(key, "/secrets/"+shop+"/") {
			return
		}
		if strings.HasPrefix(key, cellstore.BackupRoot) {
			copies++
		} else {
			objects++
		}
		if !bytes.HasPrefix(value, []byte(prefix)) {
			w.t.Errorf("cell %s stores %s as %.30q, not with %s", cell, key, value, prefix)
		}
	})
	return objects, copies
}
