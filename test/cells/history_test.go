package cells

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"github.com/cellplane/cellplane/internal/testenv"
)

var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// waitHistory waits until kubectl rollout history shows revisions with these images, numbered from 1, for all workloads.
func (w *world) waitHistory(images ...string) {
	w.Helper()
	viewer, err := polymorphichelpers.HistoryViewerFor(deploymentKind, w.gateway)
	if err != nil {
		w.Fatal(err)
	}
	shown := false
	defer func() {
		if !shown {
			w.logRevisions()
		}
	}()
	for i := range workloads {
		testenv.Eventually(w, fmt.Sprintf("%s has the revisions %v", workload(i), images), func(context.Context) (bool, error) {
			history, err := viewer.GetHistory(namespace, workload(i))
			if err != nil {
				return false, err
			}
			var got []string
			for _, number := range slices.Sorted(maps.Keys(history)) {
				revision, is := history[number].(*appsv1.ReplicaSet)
				if !is || number != int64(len(got)+1) {
					return false, fmt.Errorf("revision %d is a %T", number, history[number])
				}
				got = append(got, revision.Spec.Template.Spec.Containers[0].Image)
			}
			return slices.Equal(got, images), fmt.Errorf("it has %v", got)
		})
	}
	shown = true
}

// logRevisions logs what the cells store, to tell a revision that is lost from one that is not shown.
func (w *world) logRevisions() {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, cell := range w.topology(ctx).Spec.Cells {
		stored, err := w.cellClient(cell.Name).AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			w.Logf("cell %s: %v", cell.Name, err)
			continue
		}
		for i := range stored.Items {
			revision := &stored.Items[i]
			w.Logf("cell %s has %s with labels %v and owners %v", cell.Name, revision.Name, revision.Labels, revision.OwnerReferences)
		}
	}
}

// undo undoes the last update of all workloads, as kubectl rollout undo does, and waits until that is rolled out.
func (w *world) undo(image string) {
	w.Helper()
	rollbacker, err := polymorphichelpers.RollbackerFor(deploymentKind, w.gateway)
	if err != nil {
		w.Fatal(err)
	}
	for i := range workloads {
		said, err := rollbacker.Rollback(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: workload(i)}}, nil, 0, cmdutil.DryRunNone)
		if err != nil || said != "rolled back" {
			w.Fatalf("undoing the update of %s: %s %v", workload(i), said, err)
		}
	}
	w.waitRolledOut(image)
	w.before = w.inMembers()
}
