package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/modfile"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/snapshot"
	"github.com/cellplane/cellplane/internal/testenv/etcdtest"
)

const (
	topologyKey = "/registry/cellplane.io/celltopologies/default"
	epoch       = 7
)

// world is the stores of a federation, with a topology that tests change.
type world struct {
	hub, cell *etcdtest.Etcd
	topology  v1alpha1.CellTopology
	saver     *snapshot.Saver
}

func start(t *testing.T, members int) *world {
	t.Helper()
	w := &world{hub: etcdtest.Start(t, members), cell: etcdtest.Start(t, 1)}
	w.topology = v1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CellTopologyName, Generation: epoch}}
	w.topology.Spec.Cells = []v1alpha1.TopologyCell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: v1alpha1.CellStateFailed}}
	w.topology.Status.Phase, w.topology.Status.ObservedGeneration = v1alpha1.TopologyStable, epoch
	w.saver = &snapshot.Saver{
		Dir: filepath.Join(t.TempDir(), "snapshots"), Hub: w.hub.Client, HubPrefix: "/registry",
		Topology: func(context.Context) (*v1alpha1.CellTopology, error) { return w.topology.DeepCopy(), nil },
		Cell: func(_ context.Context, name string) (*clientv3.Client, error) {
			if name != "cell-a" {
				return nil, fmt.Errorf("no cell %s", name)
			}
			return w.cell.Client, nil
		},
		Now: time.Now,
	}
	put(t, w.hub, topologyKey, fmt.Sprintf(`{"kind":"CellTopology","metadata":{"name":"default","generation":%d,"uid":"some"},"spec":{"large":12345678901234567890}}`, epoch))
	return w
}

func put(t *testing.T, e *etcdtest.Etcd, key, value string) (revision int64) {
	t.Helper()
	answer, err := e.Client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// content returns all keys and values of a member, and its revision.
func content(t *testing.T, e *etcdtest.Etcd, member int) (map[string]string, int64) {
	t.Helper()
	answer, err := e.ClientOf(t, e.Endpoints[member]).Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range answer.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all, answer.Header.Revision
}

// TestRestore saves an etcd of three members and one of one, changes both, and restores them.
func TestRestore(t *testing.T) {
	w := start(t, 3)
	for i := range 50 {
		put(t, w.hub, fmt.Sprintf("/registry/some-%d", i), "hub")
		put(t, w.cell, fmt.Sprintf("/registry/some-%d", i), "cell")
	}
	// The last change of the cell is a deletion that was compacted: the file does not have its revision any more.
	put(t, w.cell, "/registry/gone", "some")
	gone, err := w.cell.Client.Delete(t.Context(), "/registry/gone")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cell.Client.Compact(t.Context(), gone.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	before, _ := content(t, w.cell, 0)
	set, err := w.saver.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Names(); !slices.Equal(got, []string{snapshot.Hub, "cell-a"}) || set.Epoch != epoch {
		t.Errorf("the set has %v of epoch %d", got, set.Epoch)
	}
	if set.Stores[1].Keys != len(before) {
		t.Errorf("the store of the cell has %d keys, want %d", set.Stores[1].Keys, len(before))
	}
	var late int64
	for _, e := range []*etcdtest.Etcd{w.hub, w.cell} {
		put(t, e, "/registry/later", "some")
		late = put(t, e, "/registry/some-1", "changed")
		if _, err := e.Client.Delete(t.Context(), "/registry/some-2"); err != nil {
			t.Fatal(err)
		}
	}

	loaded, err := snapshot.Load(set.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*etcdtest.Etcd{snapshot.Hub: w.hub, "cell-a": w.cell} {
		e.StopMembers(t)
		for _, m := range e.Members {
			if err := os.RemoveAll(m.Dir); err != nil {
				t.Fatal(err)
			}
			restored, err := loaded.Restore(t.Context(), name, member(e, m))
			if err != nil {
				t.Fatal(err)
			}
			if name == snapshot.Hub && (restored.Epoch <= epoch || restored.EpochKept) {
				t.Errorf("the epoch is %+v", restored)
			}
		}
		e.StartMembers(t)
	}

	if after, revision := content(t, w.cell, 0); !equal(after, before) || revision <= late {
		t.Errorf("the cell has %v at revision %d", after, revision)
	}
	var first map[string]string
	for i := range w.hub.Members {
		after, revision := content(t, w.hub, i)
		if first == nil {
			first = after
		}
		if !equal(after, first) || revision <= late || after["/registry/some-1"] != "hub" || after["/registry/later"] != "" || len(after) != 51 {
			t.Errorf("member %d of the hub has %v at revision %d", i, after, revision)
		}
	}
	var topology struct {
		Metadata struct {
			Generation int64
			UID        string
		}
		Spec map[string]json.Number
	}
	if err := json.Unmarshal([]byte(first[topologyKey]), &topology); err != nil {
		t.Fatal(err)
	}
	if topology.Metadata.Generation <= epoch || topology.Metadata.UID != "some" || topology.Spec["large"] != "12345678901234567890" {
		t.Errorf("the topology is %s", first[topologyKey])
	}
	// Who asks for changes since a revision that was given out before learns that they are gone.
	for _, e := range []*etcdtest.Etcd{w.hub, w.cell} {
		answer := <-e.Client.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(late))
		if !errors.Is(answer.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from revision %d: %v, %v", late, answer.Err(), answer.Events)
		}
	}
}

func member(e *etcdtest.Etcd, m etcdtest.Member) snapshot.Member {
	return snapshot.Member{Name: m.Name(), PeerURL: m.PeerURL, InitialCluster: e.InitialCluster, Token: "etcd-cluster", DataDir: m.Dir}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if b[key] != value {
			return false
		}
	}
	return true
}

// TestSave meets what stands in the way of a set. Nothing that looks like one is left.
func TestSave(t *testing.T) {
	w := start(t, 1)
	refused := func(t *testing.T, want string) {
		t.Helper()
		if _, err := w.saver.Save(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		if sets, err := snapshot.List(w.saver.Dir); len(sets) > 0 || err != nil {
			t.Errorf("there are %v, %v", sets, err)
		}
		entries, err := os.ReadDir(w.saver.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 1 || entries[0].Name() != ".lock" {
			t.Errorf("the directory has %v", entries)
		}
	}
	original := *w.topology.DeepCopy()
	t.Run("a change is under way", func(t *testing.T) {
		defer func() { w.topology = original }()
		w.topology.Status.Phase = v1alpha1.TopologyMoving
		refused(t, "a change of cells is under way")
		w.topology = *original.DeepCopy()
		w.topology.Generation++
		refused(t, "a change of cells is under way")
	})
	t.Run("a change begins and ends meanwhile", func(t *testing.T) {
		read := w.saver.Topology
		defer func() { w.saver.Topology = read }()
		reads := int64(0)
		w.saver.Topology = func(context.Context) (*v1alpha1.CellTopology, error) {
			reads++
			topology := original.DeepCopy()
			topology.Generation, topology.Status.ObservedGeneration = epoch+reads, epoch+reads
			return topology, nil
		}
		refused(t, "a change of cells is under way")
	})
	t.Run("the change ends in time", func(t *testing.T) {
		read, dir := w.saver.Topology, w.saver.Dir
		defer func() { w.saver.Topology, w.saver.Dir, w.saver.Wait = read, dir, 0 }()
		w.saver.Dir, w.saver.Wait = t.TempDir(), time.Minute
		reads := 0
		w.saver.Topology = func(context.Context) (*v1alpha1.CellTopology, error) {
			reads++
			topology := original.DeepCopy()
			if reads == 1 {
				topology.Status.Phase = v1alpha1.TopologyMoving
			}
			return topology, nil
		}
		if set, err := w.saver.Save(t.Context()); err != nil || set.Verify(t.Context()) != nil {
			t.Errorf("it was saved as %v, %v", set, err)
		}
	})
	t.Run("the wrong hub", func(t *testing.T) {
		defer func() { w.saver.HubPrefix = "/registry" }()
		w.saver.HubPrefix = "/other/"
		refused(t, "has no key /other/cellplane.io/celltopologies/default")
	})
	t.Run("a cell cannot be reached", func(t *testing.T) {
		defer func() { w.topology = original }()
		w.topology.Spec.Cells = append(slices.Clone(w.topology.Spec.Cells), v1alpha1.TopologyCell{Name: "cell-c"})
		refused(t, "no cell cell-c")
	})
	t.Run("another process saves", func(t *testing.T) {
		first, second := make(chan struct{}), make(chan error)
		read := w.saver.Topology
		defer func() { w.saver.Topology = read }()
		other := *w.saver
		other.Topology = func(context.Context) (*v1alpha1.CellTopology, error) {
			close(first)
			return nil, <-second
		}
		done := make(chan error)
		go func() { _, err := other.Save(t.Context()); done <- err }()
		<-first
		refused(t, "another process is saving snapshots in "+w.saver.Dir)
		second <- errors.New("enough")
		if err := <-done; err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the other one ended with %v", err)
		}
	})
	t.Run("leftovers of a crash", func(t *testing.T) {
		for _, name := range []string{".partial-1", ".removed-2"} {
			if err := os.MkdirAll(filepath.Join(w.saver.Dir, name, "some"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		w.saver.HubPrefix = "/other"
		defer func() { w.saver.HubPrefix = "/registry" }()
		refused(t, "has no key")
	})
}

// TestKept saves several sets and removes the oldest ones. What does not look like a set stays.
func TestKept(t *testing.T) {
	w := start(t, 1)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.saver.Now = func() time.Time { return at }
	for range 3 {
		if _, err := w.saver.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	at = at.Add(-time.Hour)
	if _, err := w.saver.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(w.saver.Dir, "stranger")
	if err := os.Mkdir(stranger, 0o700); err != nil {
		t.Fatal(err)
	}
	names := func() (names []string) {
		sets, err := snapshot.List(w.saver.Dir)
		if err == nil || !strings.Contains(err.Error(), "stranger is not a set of snapshots") {
			t.Errorf("the list says %v", err)
		}
		for _, s := range sets {
			names = append(names, s.Name())
		}
		return names
	}
	if got := names(); !slices.Equal(got, []string{"20260102T020405Z", "20260102T030405Z", "20260102T030405Z-2", "20260102T030405Z-3"}) {
		t.Errorf("there are %v", got)
	}
	for _, keep := range []struct {
		count, left int
	}{{0, 4}, {5, 4}, {2, 2}, {1, 1}} {
		if _, err := snapshot.Prune(w.saver.Dir, keep.count); err != nil {
			t.Fatal(err)
		}
		if got := names(); len(got) != keep.left || got[len(got)-1] != "20260102T030405Z-3" {
			t.Errorf("%v are left of %d to keep", got, keep.count)
		}
	}
	info, err := os.Stat(w.saver.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v", info.Mode())
	}
	err = filepath.WalkDir(w.saver.Dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamaged restores what was damaged, and into what exists. Nothing is made.
func TestDamaged(t *testing.T) {
	w := start(t, 1)
	set, err := w.saver.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := snapshot.Member{Name: "m", PeerURL: "https://127.0.0.1:1", InitialCluster: "m=https://127.0.0.1:1", Token: "some"}
	refused := func(t *testing.T, store, want string) {
		t.Helper()
		m.DataDir = filepath.Join(t.TempDir(), "etcd")
		if _, err := set.Restore(t.Context(), store, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		if entries, _ := os.ReadDir(filepath.Dir(m.DataDir)); len(entries) > 0 {
			t.Errorf("there is %v", entries)
		}
	}
	change := func(t *testing.T, name string, edit func([]byte) []byte) {
		t.Helper()
		file := filepath.Join(set.Dir, name)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(file, edit(slices.Clone(content)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("another store", func(t *testing.T) { refused(t, "cell-z", `has no store "cell-z", only hub, cell-a`) })
	t.Run("a bit", func(t *testing.T) {
		change(t, "cell-a.db", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		refused(t, "cell-a", "is damaged")
		if err := set.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "cell-a.db is damaged") {
			t.Errorf("verifying it: %v", err)
		}
	})
	t.Run("the end", func(t *testing.T) {
		change(t, "hub.db", func(b []byte) []byte { return b[:len(b)-1] })
		refused(t, snapshot.Hub, "is damaged")
	})
	t.Run("a member that is none", func(t *testing.T) {
		defer func(name string) { m.Name = name }(m.Name)
		m.Name = "other"
		refused(t, snapshot.Hub, "as member other")
	})
	for _, test := range []struct {
		name, want string
		edit       func([]byte) []byte
	}{
		{"cut", "set.json is damaged", func(b []byte) []byte { return b[:len(b)/2] }},
		{"another format", "has format 2, and this program reads 1", func(b []byte) []byte { return []byte(strings.Replace(string(b), `"format": 1`, `"format": 2`, 1)) }},
		{"a path", `"../x" is no name of a store`, func(b []byte) []byte { return []byte(strings.Replace(string(b), `"cell-a"`, `"../x"`, 1)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			change(t, "set.json", test.edit)
			if _, err := snapshot.Load(set.Dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
	t.Run("a directory in use", func(t *testing.T) {
		m.DataDir = t.TempDir()
		if err := os.WriteFile(filepath.Join(m.DataDir, "some"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := set.Restore(t.Context(), "cell-a", m); err == nil || !strings.Contains(err.Error(), "is not empty") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("an encrypted topology", func(t *testing.T) {
		put(t, w.hub, topologyKey, "k8s:enc:secretbox:v1:key:some")
		encrypted, err := w.saver.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.DataDir = filepath.Join(t.TempDir(), "etcd")
		if restored, err := encrypted.Restore(t.Context(), snapshot.Hub, m); err != nil || !restored.EpochKept || restored.Epoch != epoch {
			t.Errorf("it is restored as %+v, %v", restored, err)
		}
	})
}

// TestVersion compares the modules of etcd that read and write its files with the etcd that runs on them.
func TestVersion(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := kubebin.SourceOf(kubebin.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, require := range file.Require {
		if strings.HasPrefix(require.Mod.Path, "go.etcd.io/etcd/") {
			seen++
			if require.Mod.Version != etcd.Version {
				t.Errorf("%s has version %s, and the etcd that runs %s", require.Mod.Path, require.Mod.Version, etcd.Version)
			}
		}
	}
	if seen == 0 {
		t.Error("there is no module of etcd")
	}
}
