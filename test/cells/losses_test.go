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

// losses are acknowledged writes that may be lost with a cell, because they were not in the backup.
type losses struct {
	expected bool
	floor    map[string]int // number of each note in the backup
	lost     map[string]loss
}

// loss is the last state of a note in the lost cell: the number that was acknowledged, or one that may have been written.
type loss struct{ acknowledged, unsure int }

// expectLosses waits until the backup is complete and stops it, while writers continue: writes from here on may be lost.
func (w *world) expectLosses() {
	w.Helper()
	defer w.logDuration("writes without backup")()
	w.pauseWriting()
	w.waitBackupComplete()
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

// waitBackupReported waits until the status of Cells has a current backup time.
func (w *world) waitBackupReported(cells ...string) {
	w.Helper()
	defer w.logDuration("the backup is reported")()
	asked := time.Now()
	for _, name := range cells {
		testenv.Eventually(w, "the status of Cell "+name+" has a current backup time", func(ctx context.Context) (bool, error) {
			backup := w.cell(ctx, name).Status.Backup
			return backup != nil && backup.UpToDateAt != nil && backup.UpToDateAt.After(asked), nil
		})
	}
}

// loses reports whether a note may have gone back to a number, and if so accepts it as the last one.
func (w *world) loses(name string, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.expected || n < w.floor[name] || n > w.written[name] {
		return false
	}
	if _, known := w.lost[name]; known {
		return false // a note may go back once
	}
	w.lost[name] = loss{w.written[name], w.unsure[name]}
	w.written[name], w.unsure[name] = n, n
	return true
}

// mayGoBack reports whether an informer may see a note go back.
func (w *world) mayGoBack(name string, from, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to < w.floor[name] {
		return false
	}
	l, lost := w.lost[name]
	return w.expected || (lost && from <= max(l.acknowledged, l.unsure))
}

// acceptLosses reads all notes and accepts their numbers as the last ones. From here on nothing may be lost.
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
			w.Errorf("%s has %d, but %d was acknowledged", name, n, last)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = false
	if len(w.lost) == 0 {
		w.Error("nothing was lost, although nothing was backed up")
	}
}

// checkLosses checks that each lost write is in the files that were kept when the cell joined again.
func (w *world) checkLosses(cell string) {
	w.Helper()
	w.mu.Lock()
	lost := maps.Clone(w.lost)
	w.mu.Unlock()
	for name, l := range lost {
		files, err := filepath.Glob(filepath.Join(w.dir, "hub-manager", "state", cell+"-*", "configmaps_"+namespace+"_"+name+".yaml"))
		if err != nil || len(files) != 1 {
			w.Errorf("the acknowledged %d of %s is lost, and %d files are kept of it, want 1 (%v)", l.acknowledged, name, len(files), err)
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
			w.Errorf("the file of %s has %q, but %d was acknowledged", name, got, l.acknowledged)
		}
	}
}
