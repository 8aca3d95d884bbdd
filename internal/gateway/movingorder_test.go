package gateway_test

import (
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// concurrentWatches are watches of Deployments from one list. They show the same events in the same order, also while objects move and when
// the topology changes.
type concurrentWatches []watch.Interface

func (f *movingFixture) startConcurrentWatches(gateway int) concurrentWatches {
	f.t.Helper()
	list, err := f.through(gateway).List(f.t.Context(), metav1.ListOptions{})
	must(f.t, err)
	var watches concurrentWatches
	for range 4 {
		watches = append(watches, f.startWatch(gateway, list.ResourceVersion).stream)
	}
	return watches
}

// check changes objects in both cells at the same time, and compares what the watches have shown since the last check.
func (watches concurrentWatches) check(f *movingFixture) {
	const writes = 8
	last := fmt.Sprint(f.t.Name(), " ", writes)
	names := []string{f.stayingName("concurrent-0"), f.movingName("concurrent-0"), f.stayingName("concurrent-1"), f.movingName("concurrent-1")}
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			_, err := f.through(currentGateway).Create(f.t.Context(), newMovable(name, "0"), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = nil // by an earlier check
			}
			for i := 0; i <= writes && err == nil; i++ {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"mark":"%s %d"}}}`, f.t.Name(), i)
				_, err = f.through(currentGateway).Patch(f.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			}
			return err
		})
	}
	must(f.t, group.Wait())
	var first []string
	for i, stream := range watches {
		var seen []string
		for complete := 0; complete < len(names); {
			event := next(f.t, stream)
			d, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				f.t.Fatalf("watch %d: got %v", i, event)
			}
			seen = append(seen, fmt.Sprint(event.Type, " ", d.Name, " ", d.ResourceVersion))
			if d.Annotations["mark"] == last && slices.Contains(names, d.Name) {
				complete++
			}
		}
		if first == nil {
			first = seen
		}
		for j := range seen {
			if j >= len(first) || seen[j] != first[j] {
				f.t.Errorf("event %d of watch %d is %s, and of watch 0 %s", j, i, seen[j], first[min(j, len(first)-1)])
				break
			}
		}
	}
}

// testWatchesFromVersions begins a watch at the version of every change, while an object moves. Each of them shows the next change first,
// though that is in another cell.
func (f *movingFixture) testWatchesFromVersions() {
	moves := f.createInOldCell(f.movingName("moves-meanwhile"), nil)
	names := []string{f.stayingName("versioned"), f.movingName("versioned")}
	for _, name := range names {
		f.create(name)
	}
	list, err := f.through(currentGateway).List(f.t.Context(), metav1.ListOptions{})
	must(f.t, err)
	watches, steps := []*movingWatch{f.startWatch(currentGateway, list.ResourceVersion)}, moves.steps()
	show := func(what string) (version string) {
		f.t.Helper()
		for i, w := range watches {
			d, ok := next(f.t, w.stream).Object.(*appsv1.Deployment)
			if !ok {
				f.t.Fatalf("%s: watch %d shows an error", what, i)
			}
			if i == 0 {
				version = d.ResourceVersion
			} else if d.ResourceVersion != version {
				f.t.Errorf("%s: watch %d shows version %s of %s, the first watch %s", what, i, d.ResourceVersion, d.Name, version)
			}
		}
		return version
	}
	for i := range 2 * len(steps) {
		if i < len(steps) {
			steps[i]()
		}
		if i == len(steps)-1 {
			show("the move") // no watch begins there: gateways do not know when the mover writes
		}
		written := f.mark(names[i%2], fmt.Sprint(i))
		version := show(fmt.Sprintf("change %d", i))
		if version != written.ResourceVersion {
			f.t.Errorf("change %d: the first watch shows version %s, want %s", i, version, written.ResourceVersion)
		}
		watches = append(watches, f.startWatch(currentGateway, version))
	}
}
