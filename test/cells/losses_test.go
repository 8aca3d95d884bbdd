package cells

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/testenv"
)

// losses are what the writers have to put up with when a cell dies under their hands: writes that had not reached the backup.
type losses struct {
	expected bool
	floor    map[string]int // what the backup had of each note before
	lost     map[string]loss
}

// loss is what a note read in the cell that died, at last: the number that was acknowledged, or one that may have been written.
type loss struct{ acknowledged, unsure int }

// expectLosses has the backup take everything, and then nothing more while everybody writes: what is acknowledged from here on may be lost.
func (w *world) expectLosses() {
	w.Helper()
	defer w.took("writes that no backup has")()
	w.pauseWriting()
	w.settleBackup()
	w.mu.Lock()
	w.expected, w.floor, w.lost = true, maps.Clone(w.written), map[string]loss{}
	floor := w.floor
	w.mu.Unlock()
	w.killHubManager()
	w.resumeWriting()
	testenv.Eventually(w, "all notes have been written once more", func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, n := range floor {
			if w.written[name] == n {
				return false, nil
			}
		}
		return true, nil
	})
}

// backupIsTold waits until the Cells tell of the backup as it is now: everybody writes, so that there is something to tell.
func (w *world) backupIsTold(cells ...string) {
	w.Helper()
	defer w.took("the backup is told of")()
	asked := time.Now()
	for _, name := range cells {
		testenv.Eventually(w, "the Cell "+name+" tells of its backup", func(ctx context.Context) (bool, error) {
			backup := w.cell(ctx, name).Status.Backup
			return backup != nil && backup.UpToDateAt != nil && backup.UpToDateAt.After(asked), nil
		})
	}
}

// loses reports whether a note may have gone back to a number, and takes it for the last one if so.
func (w *world) loses(name string, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.expected || n < w.floor[name] || n > w.written[name] {
		return false
	}
	if _, known := w.lost[name]; known {
		return false // nothing is lost twice
	}
	w.lost[name] = loss{w.written[name], w.unsure[name]}
	w.written[name], w.unsure[name] = n, n
	return true
}

// forgives reports whether an informer may see a note go back.
func (w *world) forgives(name string, from, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to < w.floor[name] {
		return false
	}
	l, lost := w.lost[name]
	return w.expected || (lost && from <= max(l.acknowledged, l.unsure))
}

// acceptLosses reads all notes, and takes what they read for the last numbers. From here on nothing may be lost.
func (w *world) acceptLosses() {
	w.Helper()
	w.pauseWriting()
	defer w.resumeWriting()
	list, err := w.gateway.CoreV1().ConfigMaps(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		name := list.Items[i].Name
		w.mu.Lock()
		last, counted := w.written[name]
		doubtful := w.unsure[name]
		w.mu.Unlock()
		if n := countOf(&list.Items[i]); counted && n != last && n != doubtful && !w.loses(name, n) {
			w.Errorf("%s reads %d; acknowledged was %d", name, n, last)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = false
	if len(w.lost) == 0 {
		w.Error("nothing was lost, although nothing was backed up")
	}
}

// checkLosses looks for each lost write among what is kept of a cell that has returned.
func (w *world) checkLosses(cell string) {
	w.Helper()
	w.mu.Lock()
	lost := maps.Clone(w.lost)
	w.mu.Unlock()
	for name, l := range lost {
		files, err := filepath.Glob(filepath.Join(w.dir, "hub-manager", "state", cell+"-*", "configmaps_"+namespace+"_"+name+".yaml"))
		if err != nil || len(files) != 1 {
			w.Errorf("%d was acknowledged for %s and is lost, and %d files are kept of it (%v)", l.acknowledged, name, len(files), err)
			continue
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			w.Fatal(err)
		}
		var kept struct{ Data map[string]string }
		if err := yaml.Unmarshal(content, &kept); err != nil {
			w.Fatal(err)
		}
		if got := kept.Data["n"]; got != strconv.Itoa(l.acknowledged) && got != strconv.Itoa(l.unsure) {
			w.Errorf("what is kept of %s reads %q; acknowledged was %d", name, got, l.acknowledged)
		}
	}
}
