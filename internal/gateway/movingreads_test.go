package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
)

// Objects that several stages use.
const (
	movesAtOnce = "moves"   // moved by ReadAtEveryStep
	movesLast   = "waiting" // moved when the join ends
	neverMoves  = "stays"
	postedFirst = "posted" // created in the new cell
)

// testCreateBeforeFence announces the join of cell-b before the fences are up: creates do not wait.
func (f *movingFixture) testCreateBeforeFence() {
	for _, name := range []string{f.movingName(movesAtOnce), f.movingName(movesLast), f.stayingName(neverMoves)} {
		f.create(name)
	}
	announced := f.joiningTopology()
	announced.Ready = false
	f.deliver(currentGateway, announced)
	f.create(f.movingName("before-fence"))
}

// testCreateWaitsForTopology raises the fences: creates in moving slots wait until the topology is in force, other writes do not. Right
// after that watches begin at versions of objects, although cell-b may not have been read yet.
func (f *movingFixture) testCreateWaitsForTopology() {
	f.raiseFences(2)
	name, created, failed := f.movingName("held"), make(chan *appsv1.Deployment, 1), make(chan error, 1)
	go func() {
		object, err := f.through(currentGateway).Create(f.t.Context(), newMovable(name, "0"), metav1.CreateOptions{})
		created <- object
		failed <- err
	}()
	f.waitHeld(1)
	must(f.t, f.patchValue(f.movingName(movesAtOnce), "1"))
	versions := map[string]string{"FromBeforeTheChange": f.mark(f.stayingName(neverMoves), "before").ResourceVersion}
	f.deliver(currentGateway, f.joiningTopology())
	versions["FromTheNewCell"] = (<-created).ResourceVersion
	must(f.t, <-failed)
	versions["FromTheOldCell"] = f.mark(f.stayingName(neverMoves), "after").ResourceVersion
	f.checkWatches(versions, name, f.stayingName(neverMoves))
	if f.owns(oldCell, name) || !f.owns(newCell, name) {
		f.t.Error("a held create did not go to the new cell")
	}
}

// testReadAtEveryStep reads an object after every step of its move, in every way.
func (f *movingFixture) testReadAtEveryStep() {
	name := f.movingName(movesAtOnce)
	before, err := f.through(currentGateway).Get(f.t.Context(), name, metav1.GetOptions{})
	must(f.t, err)
	for i, step := range []string{"Before", "Frozen", "Copied", "Committed", "Active"} {
		f.stage(step, func(f *movingFixture) {
			if i > 0 {
				f.object(name).steps()[i-1]()
			}
			f.checkReads(name, string(before.UID)+" 1")
		})
	}
}

// checkReads reads an object by GET, LIST, as a Table and by its scale. It must exist once, with UID and value as given.
func (f *movingFixture) checkReads(name, want string) {
	f.t.Helper()
	got, err := f.through(currentGateway).Get(f.t.Context(), name, metav1.GetOptions{})
	must(f.t, err)
	if shown := string(got.UID) + " " + got.Annotations["value"]; shown != want {
		f.t.Errorf("GET returns %s, want %s", shown, want)
	}
	listed := f.list(currentGateway)
	if listed[name] != want || listed[f.stayingName(neverMoves)] == "" || listed[f.movingName(movesLast)] == "" {
		f.t.Errorf("LIST returns %v, want %s for %s", listed, want, name)
	}
	config, path := f.gateways[currentGateway].Config(f.t), "/apis/apps/v1/namespaces/"+f.namespace+"/deployments"
	if response := send(f.t, config, http.MethodGet, path+"/"+name+"/scale", nil, ""); response.StatusCode != http.StatusOK {
		f.t.Errorf("GET of the scale: %s", response.Status)
	}
	asTable := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}
	if table := readOK(f.t, send(f.t, config, http.MethodGet, path+"?limit=2", asTable, "")); !strings.Contains(string(table), "continue") {
		f.t.Errorf("the first page has no continue token: %s", table)
	}
	if _, err := f.through(currentGateway).Create(f.t.Context(), newMovable(name, "x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		f.t.Errorf("creating it a second time: %v, want AlreadyExists", err)
	}
}

// testAbsentObject asks for an object that neither cell has.
func (f *movingFixture) testAbsentObject() {
	deployments, name, ctx := f.through(currentGateway), f.movingName("absent"), f.t.Context()
	if _, err := deployments.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("get: %v, want NotFound", err)
	}
	if err := deployments.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("delete: %v, want NotFound", err)
	}
	if _, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("patch: %v, want NotFound", err)
	}
}

// testStaleGateway uses the gateway that does not know the topology in force. It must hold every request until it does.
func (f *movingFixture) testStaleGateway() {
	requests := f.staleRequests()
	var open atomic.Int32
	var group sync.WaitGroup
	for what, request := range requests {
		open.Add(1)
		group.Go(func() {
			defer open.Add(-1)
			if err := request(); err != nil {
				f.t.Errorf("%s: %v", what, err)
			}
		})
	}
	f.waitHeld(float64(len(requests)))
	if n := open.Load(); int(n) != len(requests) {
		f.t.Errorf("%d requests were answered by an old topology", len(requests)-int(n))
	}
	f.deliver(staleGateway, f.joiningTopology())
	group.Wait()
	if f.owns(oldCell, f.movingName("stale")) {
		f.t.Error("an object was created in the old cell")
	}
}

// staleRequests are requests whose answers would be wrong by the old topology.
func (f *movingFixture) staleRequests() map[string]func() error {
	moved, posted, stays := f.movingName(movesAtOnce), f.movingName(postedFirst), f.stayingName(neverMoves)
	deployments, ctx := f.through(staleGateway), f.t.Context()
	patch := func(name string) error {
		_, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"stale":"no"}}}`), metav1.PatchOptions{})
		return err
	}
	return map[string]func() error{
		"get an object that has moved": func() error {
			got, err := deployments.Get(ctx, moved, metav1.GetOptions{})
			if err == nil && got.Labels[names.RebalanceStatusLabel] != "" {
				return errors.New("got the copy left in the old cell")
			}
			return err
		},
		"get an object of the new cell": func() error { _, err := deployments.Get(ctx, posted, metav1.GetOptions{}); return err },
		"list": func() error {
			list, err := deployments.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if list.Items[i].Name == posted {
					return nil
				}
			}
			return fmt.Errorf("%s is missing", posted)
		},
		"patch an object that has moved": func() error { return patch(moved) },
		"patch an object that stays":     func() error { return patch(stays) },
		"create an existing object": func() error {
			_, err := deployments.Create(ctx, newMovable(posted, "0"), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("got %w, want AlreadyExists", err)
			}
			return nil
		},
		"create a new object": func() error {
			_, err := deployments.Create(ctx, newMovable(f.movingName("stale"), "0"), metav1.CreateOptions{})
			return err
		},
	}
}
