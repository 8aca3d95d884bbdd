package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// repair takes the copy in a member out of the federation's hands and gives it another version, as people do in an emergency. It returns the copy when it runs.
func (w *workload) repair(name string, version int) *appsv1.Deployment {
	w.t.Helper()
	w.patch(name, `{"metadata":{"annotations":{"`+names.EntryAnnotation+`":"open"}},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"`+image(version)+`"}]}}}}`)
	return w.runs(name, version)
}

// giveBack closes the entry of the copy in a member: the federation sets it back.
func (w *workload) giveBack(name string) {
	w.t.Helper()
	w.patch(name, `{"metadata":{"annotations":{"`+names.EntryAnnotation+`":null}}}`)
}

func (w *workload) patch(name, patch string) {
	w.t.Helper()
	if err := members[name].Patch(w.t.Context(), w.ref(), ctrlclient.RawPatch(types.StrategicMergePatchType, []byte(patch)), ctrlclient.FieldOwner("kubectl-patch")); err != nil {
		w.t.Fatal(err)
	}
}

// runs waits until all pods in a member have a version, and are available.
func (w *workload) runs(name string, version int) (now *appsv1.Deployment) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("version %d runs in %s", version, name), func(context.Context) (bool, error) {
		now = w.in(name)
		s := &now.Status
		done := s.ObservedGeneration == now.Generation && s.UpdatedReplicas == *now.Spec.Replicas && s.Replicas == *now.Spec.Replicas && s.AvailableReplicas == *now.Spec.Replicas
		return done && now.Spec.Template.Spec.Containers[0].Image == image(version), errors.New(w.describe())
	})
	return now
}

// untouched checks that nobody has written to the copy in a member, apart from its status.
func (w *workload) untouched(name string, before *appsv1.Deployment) {
	w.t.Helper()
	now := w.in(name)
	for _, d := range []*appsv1.Deployment{before, now} {
		d.Status, d.ResourceVersion, d.ManagedFields = appsv1.DeploymentStatus{}, "", nil
	}
	if diff := cmp.Diff(before, now); diff != "" {
		w.t.Errorf("the copy in %s was written to (-before +now):\n%s", name, diff)
	}
}

// heldBack waits until the engine has tried to write the copy in a member, or to remove it, and has not.
func (w *workload) heldBack(name string) (work *workv1alpha1.Work) {
	w.t.Helper()
	work = &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(name), Name: names.WorkName("Deployment", w.ns, "web")}}
	testenv.Eventually(w.t, "the engine holds back in "+name, func(ctx context.Context) (bool, error) {
		err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(work), work)
		applied := meta.FindStatusCondition(work.Status.Conditions, names.WorkApplied)
		return err == nil && applied != nil && applied.Reason == names.ReasonEntryOpen, errors.Join(err, fmt.Errorf("%+v", work.Status.Conditions))
	})
	return work
}

// awaits waits until the rollout tells that it waits for the entry in a member.
func (w *workload) awaits(name string) {
	w.t.Helper()
	w.annotated("that the entry in "+name+" is open", names.RolloutWaitsAnnotation, func(waits string) bool {
		return strings.Contains(waits, `"`+name+`":"waits until the entry of the copy is closed"`)
	})
}

// reported waits until the binding tells that the copy in a member is open, and counts its pods.
func (w *workload) reported(name string, pods int) {
	w.t.Helper()
	testenv.Eventually(w.t, "the binding reports the open copy in "+name, func(context.Context) (bool, error) {
		status := w.binding().Status
		told := meta.FindStatusCondition(status.Conditions, names.EntryOpen)
		at := slices.IndexFunc(status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool {
			return item.ClusterName == name && item.Status != nil
		})
		if told == nil || !strings.Contains(told.Message, "in cluster "+name+" is open") || at < 0 {
			return false, fmt.Errorf("%+v", status)
		}
		var counts appsv1.DeploymentStatus
		err := json.Unmarshal(status.AggregatedStatus[at].Status.Raw, &counts)
		return int(counts.ReadyReplicas) == pods, errors.Join(err, fmt.Errorf("%+v", counts))
	})
}

// othersHave waits until all pods of the members but one have a version, and are available.
func (w *workload) othersHave(name string, version int) {
	w.t.Helper()
	for other := range members {
		if other != name {
			w.runs(other, version)
		}
	}
}

// An entry is open in a member during an update, from before it or since the middle of it. The others finish the update within the bounds, nothing overwrites what people
// have changed, and when the entry is closed the member is updated, too.
func TestEntryDuringRollout(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(1), intstr.FromInt32(1))
	repaired := w.repair("member1", 10) // the first: it would get the budget before the others
	w.reported("member1", 3)
	w.watch(9)
	for version := 2; version <= 3; version++ { // an update, and another one without waiting for the entry
		w.setImage(version)
		w.othersHave("member1", version)
		w.awaits("member1")
		w.untouched("member1", repaired)
	}
	w.pods.held("updates while an entry is open")
	w.giveBack("member1")
	w.finished(3, 9)
	w.pods.held("the update of the member whose entry is closed")

	// In the middle of an update one of the members that have begun is taken back by hand.
	w.setImage(4)
	w.begun(4)
	begun := slices.Collect(maps.Keys(members))
	begun = slices.DeleteFunc(begun, func(name string) bool { return w.in(name).Spec.Template.Spec.Containers[0].Image != image(4) })
	slices.Sort(begun)
	repaired = w.repair(begun[0], 3)
	w.othersHave(begun[0], 4)
	w.untouched(begun[0], repaired)
	w.reported(begun[0], 3)
	w.pods.held("an update while a member is taken back by hand")
	w.giveBack(begun[0])
	w.runs(begun[0], 4)
	w.finished(4, 9)
	w.pods.held("the update of the member that was taken back")
}

// emergency is a workload that people repair in a member while its cell changes.
type emergency struct {
	*workload
	world  *cellWorld
	before *appsv1.Deployment
	pods   map[string]bool // in the member
	member string
}

// newEmergency creates a workload in a cell, repairs it in a member, and then updates the others.
func newEmergency(world *cellWorld, cell string) *emergency {
	world.Helper()
	e := &emergency{workload: world.newWorkload("emergency", cell), world: world}
	e.begin(6, intstr.FromInt32(1), intstr.FromInt32(1))
	e.happens("member1", 2, 10)
	return e
}

func (e *emergency) happens(member string, version, repaired int) {
	e.world.Helper()
	e.t, e.member = e.world.T, member
	e.before = e.repair(member, repaired)
	e.pods = e.podsIn(member)
	e.reported(member, 2)
	e.setImage(version)
	e.runs("member3", version)
	e.awaits(member)
}

func (w *workload) podsIn(name string) map[string]bool {
	w.t.Helper()
	var list corev1.PodList
	if err := members[name].List(w.t.Context(), &list, ctrlclient.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	uids := map[string]bool{}
	for i := range list.Items {
		uids[string(list.Items[i].UID)] = true
	}
	return uids
}

// survived checks that a cell that has taken the workload over knows of the open entry, counts its pods, and has not written to the copy: not even the labels are its own.
func (e *emergency) survived(cell string) {
	e.world.Helper()
	testenv.Eventually(e.t, cell+" has taken over what is not open", func(context.Context) (bool, error) {
		return e.in("member3").Labels[names.CellLabel] == cell, errors.New(e.describe())
	})
	e.reported(e.member, 2)
	e.untouched(e.member, e.before)
}

// keeps closes the entry, and lifts what people have changed into the federation. No pod is replaced, then or later.
func (e *emergency) keeps(cell string) {
	e.world.Helper()
	self, err := os.Executable()
	if err != nil {
		e.t.Fatal(err)
	}
	cmd := exec.CommandContext(e.t.Context(), self, "entry", "close", "deploy/web", "-n", e.ns, "--cluster", e.member, "--keep", "--timeout", "1m")
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+e.world.federation.Dir())
	start := time.Now()
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "keeps spec.template.spec.containers[c].image") {
		e.t.Fatalf("entry close: %v\n%s\n%s", err, output, e.describe())
	}
	e.t.Logf("it is kept in %v", time.Since(start).Round(time.Millisecond))
	e.world.takenOver(e.workload, cell)
	testenv.Eventually(e.t, "the rollout is finished", func(context.Context) (bool, error) {
		binding := e.binding()
		waits, open := binding.Annotations[names.RolloutWaitsAnnotation], meta.FindStatusCondition(binding.Status.Conditions, names.EntryOpen)
		return waits == "" && open == nil, fmt.Errorf("it waits for %q: %v\n%s", waits, open, e.describe())
	})
	if has := e.podsIn(e.member); !maps.Equal(has, e.pods) {
		e.t.Errorf("%s had the pods %v, and has %v\n%s", e.member, e.pods, has, e.describe())
	}
	if has := e.in(e.member).Spec.Template.Spec.Containers[0].Image; has != e.before.Spec.Template.Spec.Containers[0].Image {
		e.t.Errorf("%s has the image %s", e.member, has)
	}
}

// heldInLeftMember checks that the copy in a member that the workload was evicted from stays as people have made it, and is removed when its entry is closed.
func (w *workload) heldInLeftMember(name string, before *appsv1.Deployment) {
	w.t.Helper()
	if work := w.heldBack(name); work.DeletionTimestamp == nil {
		w.t.Errorf("the Work of %s is not deleted", name)
	}
	told := meta.FindStatusCondition(w.binding().Status.Conditions, names.EntryOpen)
	if told == nil || !strings.Contains(told.Message, "in cluster "+name+" is open") {
		w.t.Errorf("the binding says %+v", told)
	}
	w.untouched(name, before)
	w.giveBack(name)
	w.left(name)
}
