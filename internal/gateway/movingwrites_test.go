package gateway_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/kubebin"
)

// testCreateInNewCell creates objects with POST and server-side apply: each is stored by the cell that will own it, and by no other.
func (f *movingFixture) testCreateInNewCell() {
	applied, posted, stays := f.movingName("applied"), f.movingName(postedFirst), f.stayingName(postedFirst)
	_, err := f.through(currentGateway).Patch(f.t.Context(), applied, types.ApplyPatchType,
		[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+applied+`"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`),
		metav1.PatchOptions{FieldManager: "test"})
	must(f.t, err)
	f.create(posted)
	f.create(stays)
	for name, cell := range map[string]int{applied: newCell, posted: newCell, stays: oldCell} {
		if !f.owns(cell, name) || f.owns(1-cell, name) {
			f.t.Errorf("%s is not in %s alone", name, f.stores[cell].Cell)
		}
	}
}

// movingWrite is a way to change an object.
type movingWrite struct {
	name string
	do   func(ctx context.Context, object string) error
	// done reports whether an object of the new cell, nil if there is none, has been changed.
	done func(*appsv1.Deployment) bool
}

// testWrites changes objects in every way: before they move, while they are frozen, and after.
func (f *movingFixture) testWrites() {
	for _, write := range f.writes() {
		f.stage(write.name, func(f *movingFixture) {
			f.stage("BeforeMove", func(f *movingFixture) { f.testWriteBeforeMove(write) })
			f.stage("DuringMove", func(f *movingFixture) { f.testWriteDuringMove(write) })
			f.stage("AfterMove", func(f *movingFixture) { f.testWriteAfterMove(write) })
		})
	}
}

func (f *movingFixture) writes() []movingWrite {
	deployments := f.through(currentGateway)
	patch := func(kind types.PatchType, body string, subresources ...string) func(context.Context, string) error {
		return func(ctx context.Context, name string) error {
			_, err := deployments.Patch(ctx, name, kind, []byte(strings.ReplaceAll(body, "NAME", name)), metav1.PatchOptions{FieldManager: manager(kind)}, subresources...)
			return err
		}
	}
	hasAnnotation := func(key string) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool { return d != nil && d.Annotations[key] == "written" }
	}
	return []movingWrite{
		{"update", func(ctx context.Context, name string) error {
			_, err := deployments.Update(ctx, newMovable(name, "written"), metav1.UpdateOptions{})
			return err
		}, hasAnnotation("value")},
		{"json", patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/annotations/value","value":"written"}]`), hasAnnotation("value")},
		{"merge", patch(types.MergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`), hasAnnotation("value")},
		{"strategic", patch(types.StrategicMergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`), hasAnnotation("value")},
		{"apply", patch(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","annotations":{"applied":"written"}}}`), hasAnnotation("applied")},
		{
			"delete", func(ctx context.Context, name string) error {
				return deployments.Delete(ctx, name, metav1.DeleteOptions{})
			},
			func(d *appsv1.Deployment) bool { return d == nil || d.DeletionTimestamp != nil },
		},
		{
			"scale", patch(types.MergePatchType, `{"spec":{"replicas":3}}`, "scale"),
			func(d *appsv1.Deployment) bool { return d != nil && *d.Spec.Replicas == 3 },
		},
		{
			"status", patch(types.MergePatchType, `{"status":{"replicas":3}}`, "status"),
			func(d *appsv1.Deployment) bool { return d != nil && d.Status.Replicas == 3 },
		},
	}
}

// testWriteBeforeMove changes an object that has not moved: the old cell gets the write.
func (f *movingFixture) testWriteBeforeMove(write movingWrite) {
	name := f.movingName(write.name + "-before")
	f.createInOldCell(name, nil)
	must(f.t, write.do(f.t.Context(), name))
	if !write.done(f.stored(oldCell, name)) {
		f.t.Error("the old cell has not got the write")
	}
	if f.stored(newCell, name) != nil {
		f.t.Error("the new cell got the write")
	}
}

// testWriteDuringMove changes a frozen object: the gateway holds the write until the object is active in the new cell.
func (f *movingFixture) testWriteDuringMove(write movingWrite) {
	name := f.movingName(write.name + "-during")
	object := f.createInOldCell(name, nil)
	object.freeze()
	answered := make(chan error, 1)
	go func() { answered <- write.do(f.t.Context(), name) }()
	f.waitHeld(1)
	object.copy()
	object.commit()
	// Each attempt of the gateway reads the new cell at most twice. With five reads an attempt that began after the commit has ended,
	// and the gateway has begun another one instead of answering.
	f.waitReads(newCell, f.reads(newCell), 5)
	select {
	case err := <-answered:
		f.t.Fatalf("the write was answered while the object was active in neither cell: %v", err)
	default:
	}
	committed := f.stored(oldCell, name).ResourceVersion
	object.activate()
	if err := <-answered; err != nil {
		f.t.Errorf("a held write: %v", err)
	}
	if f.stored(oldCell, name).ResourceVersion != committed {
		f.t.Error("the old cell got the write")
	}
	f.checkWritten(write, name)
}

// testWriteAfterMove changes an object that has moved.
func (f *movingFixture) testWriteAfterMove(write movingWrite) {
	name := f.movingName(write.name + "-after")
	f.createInOldCell(name, nil).move()
	must(f.t, write.do(f.t.Context(), name))
	f.checkWritten(write, name)
}

func (f *movingFixture) checkWritten(write movingWrite, name string) {
	f.t.Helper()
	if got := f.stored(newCell, name); !write.done(got) {
		f.t.Errorf("the new cell has not got the write: %+v", got)
	}
}

// testWriteInFlight freezes an object while a write is on its way to the old cell, whose API server is paused.
func (f *movingFixture) testWriteInFlight() {
	name := f.movingName("in-flight")
	object := f.createInOldCell(name, nil)
	server, err := f.planes[oldCell].Process(kubebin.KubeAPIServer)
	must(f.t, err)
	before := f.reads(newCell)
	must(f.t, server.Pause())
	answered := make(chan error, 1)
	go func() { answered <- f.patchValue(name, "late") }()
	f.waitReads(newCell, before, 1) // the gateway looks in the new cell first, and then turns to the old one
	object.freeze()
	must(f.t, server.Resume())
	object.copy()
	object.commit()
	object.activate()
	must(f.t, <-answered)
	got, err := f.through(currentGateway).Get(f.t.Context(), name, metav1.GetOptions{})
	must(f.t, err)
	if got.Annotations["value"] != "late" {
		f.t.Errorf("an acknowledged write is lost: %v", got.Annotations)
	}
}

// testVersions follows the version of an object through its move. It grows, and one from before the move can be used as long as nobody has
// changed the object.
func (f *movingFixture) testVersions() {
	name := f.movingName("version")
	object := f.createInOldCell(name, nil)
	deployments := f.through(currentGateway)
	get := func() *appsv1.Deployment {
		f.t.Helper()
		got, err := deployments.Get(f.t.Context(), name, metav1.GetOptions{})
		must(f.t, err)
		return got
	}
	version := func(d *appsv1.Deployment) int64 {
		f.t.Helper()
		n, err := strconv.ParseInt(d.ResourceVersion, 10, 64)
		must(f.t, err)
		return n
	}
	before := get()
	last := version(before)
	var frozen *appsv1.Deployment
	for i, step := range object.steps() {
		step()
		now := get()
		if version(now) < last {
			f.t.Errorf("step %d: the version went from %d to %d", i, last, version(now))
		}
		if last = version(now); i == 0 {
			frozen = now
		}
	}
	// An object that was read while it was frozen has the label of the mover, which clients must not write.
	if _, err := deployments.Update(f.t.Context(), frozen, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		f.t.Errorf("with the version of the frozen object: %v, want a conflict", err)
	}
	changed := before.DeepCopy()
	changed.Annotations = map[string]string{"changed": "yes"}
	written, err := deployments.Update(f.t.Context(), changed, metav1.UpdateOptions{})
	must(f.t, err)
	if version(written) <= last {
		f.t.Errorf("the version went from %d to %d", last, version(written))
	}
	if _, err := deployments.Update(f.t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		f.t.Errorf("with a version from before the move and a change: %v, want a conflict", err)
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &before.ResourceVersion}, DryRun: []string{metav1.DryRunAll}}
	if err := deployments.Delete(f.t.Context(), name, options); !apierrors.IsConflict(err) {
		f.t.Errorf("deleting with a version from before the move and a change: %v, want a conflict", err)
	}
	options.Preconditions.ResourceVersion = &written.ResourceVersion
	must(f.t, deployments.Delete(f.t.Context(), name, options))
}

// testDeleteCollection deletes objects each of which is at another step of its move.
func (f *movingFixture) testDeleteCollection() {
	const selector = "collected=yes"
	var objects []*movingObject
	for i := range 5 {
		object := f.createInOldCell(f.movingName(fmt.Sprintf("collected-%d", i)), map[string]string{"collected": "yes"})
		objects = append(objects, object)
		for _, step := range object.steps()[:i] {
			step()
		}
	}
	answered := make(chan error, 1)
	go func() {
		answered <- f.through(currentGateway).DeleteCollection(f.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
	}()
	f.waitHeld(3)
	for i, object := range objects[1:4] {
		for _, step := range object.steps()[i+1:] {
			step()
		}
	}
	must(f.t, <-answered)
	left, err := f.through(currentGateway).List(f.t.Context(), metav1.ListOptions{LabelSelector: selector})
	must(f.t, err)
	if len(left.Items) != 0 {
		f.t.Errorf("%d objects were not deleted", len(left.Items))
	}
}
