package gateway_test

import (
	"fmt"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// movingWatch is a watch of Deployments that nobody resumes. No change of the topology may end it, or show an object older than before.
type movingWatch struct {
	t        *testing.T
	stream   watch.Interface
	versions map[string]int64
}

// startWatch watches the Deployments through a gateway until the test ends, without bookmarks.
func (f *movingFixture) startWatch(gateway int, version string) *movingWatch {
	f.t.Helper()
	stream, err := f.through(gateway).Watch(f.t.Context(), metav1.ListOptions{ResourceVersion: version})
	must(f.t, err)
	f.t.Cleanup(stream.Stop)
	return &movingWatch{f.t, stream, map[string]int64{}}
}

// startWatchFromList watches from a list on.
func (f *movingFixture) startWatchFromList(gateway int) *movingWatch {
	f.t.Helper()
	list, err := f.through(gateway).List(f.t.Context(), metav1.ListOptions{})
	must(f.t, err)
	return f.startWatch(gateway, list.ResourceVersion)
}

// waitFor reads events until an object has an annotation.
func (w *movingWatch) waitFor(name, annotation, value string) {
	w.t.Helper()
	for {
		event := next(w.t, w.stream)
		d, ok := event.Object.(*appsv1.Deployment)
		if !ok {
			w.t.Fatalf("got %v", event)
		}
		version, err := strconv.ParseInt(d.ResourceVersion, 10, 64)
		if err != nil || version <= w.versions[d.Name] {
			w.t.Errorf("%s went from version %d to %s", d.Name, w.versions[d.Name], d.ResourceVersion)
		}
		if w.versions[d.Name] = version; d.Name == name && d.Annotations[annotation] == value {
			return
		}
	}
}

// mark sets an annotation of a Deployment that says nothing else.
func (f *movingFixture) mark(name, value string) *appsv1.Deployment {
	f.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"mark":%q}}}`, value)
	marked, err := f.through(currentGateway).Patch(f.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(f.t, err)
	return marked
}

// checkWatches begins watches at versions, which have to show later changes in both cells.
func (f *movingFixture) checkWatches(versions map[string]string, names ...string) {
	f.t.Helper()
	for written, version := range versions {
		f.stage(written, func(f *movingFixture) {
			for _, name := range names {
				w := f.startWatch(currentGateway, version)
				f.mark(name, written)
				w.waitFor(name, "mark", written)
			}
		})
	}
}
