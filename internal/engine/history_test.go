package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// rollouts runs the code of kubectl rollout for one workload.
type rollouts struct {
	*testing.T
	kind schema.GroupKind
	obj  ctrlclient.Object
	cell kubernetes.Interface
}

func newRollouts(t *testing.T, kind string, obj ctrlclient.Object) *rollouts {
	client, err := kubernetes.NewForConfig(cellConfig)
	if err != nil {
		t.Fatal(err)
	}
	return &rollouts{T: t, kind: schema.GroupKind{Group: "apps", Kind: kind}, obj: obj, cell: client}
}

// history returns what kubectl rollout history prints, without its header. With a revision, it is the pod template.
func (r *rollouts) history(revision int64) (string, error) {
	viewer, err := polymorphichelpers.HistoryViewerFor(r.kind, r.cell)
	if err != nil {
		return "", err
	}
	text, err := viewer.ViewHistory(r.obj.GetNamespace(), r.obj.GetName(), revision)
	if revision == 0 {
		_, text, _ = strings.Cut(text, "\n")
		text = strings.Join(strings.Fields(text), " ")
	}
	return text, err
}

// untilHistory waits until kubectl rollout history prints numbers and causes.
func (r *rollouts) untilHistory(want string) {
	r.Helper()
	testenv.Eventually(r, "the history is "+want, func(context.Context) (bool, error) {
		got, err := r.history(0)
		if err != nil {
			return false, err
		}
		return got == want, fmt.Errorf("it is %s", got)
	})
}

// undo runs kubectl rollout undo and returns what it prints.
func (r *rollouts) undo(revision int64) string {
	r.Helper()
	rollbacker, err := polymorphichelpers.RollbackerFor(r.kind, r.cell)
	if err != nil {
		r.Fatal(err)
	}
	said, err := rollbacker.Rollback(r.obj, nil, revision, cmdutil.DryRunNone)
	if err != nil {
		r.Fatal(err)
	}
	return said
}

func setImage(t *testing.T, obj ctrlclient.Object, image, cause string) {
	t.Helper()
	annotate := func(m *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(m, "kubernetes.io/change-cause", cause) }
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		edit(t, cell, obj, func(d *appsv1.Deployment) {
			annotate(&d.ObjectMeta)
			d.Spec.Template.Spec.Containers[0].Image = image
		})
	case *appsv1.StatefulSet:
		edit(t, cell, obj, func(s *appsv1.StatefulSet) {
			annotate(&s.ObjectMeta)
			s.Spec.Template.Spec.Containers[0].Image = image
		})
	}
}

// TestRolloutHistory takes Deployments and StatefulSets through updates and back with the code of kubectl.
func TestRolloutHistory(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment", "StatefulSet", "ReplicaSet"}))
	d := deployment(ns, "web", 1)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: d.Spec.Replicas, RevisionHistoryLimit: ptr.To(int32(2)), Template: d.Spec.Template,
		Selector: d.Spec.Selector,
	}}
	d.Spec.RevisionHistoryLimit = ptr.To(int32(2))
	create(t, d, set)
	for _, r := range []*rollouts{newRollouts(t, "Deployment", d), newRollouts(t, "StatefulSet", set)} {
		t.Run(r.kind.Kind, func(t *testing.T) {
			r.T = t
			r.untilHistory("1 <none>")
			setImage(t, r.obj, "registry.example/app:2", "second")
			r.untilHistory("1 <none> 2 second")
			if text, err := r.history(1); err != nil || !strings.Contains(text, "registry.example/app:1") {
				t.Errorf("the first revision: %v: %s", err, text)
			}
			if said := r.undo(0); said != "rolled back" {
				t.Errorf("undo: %s", said)
			}
			// A pod template that was there before gets a new number.
			r.untilHistory("2 second 3 <none>")
			if said := r.undo(3); !strings.Contains(said, "skipped rollback") {
				t.Errorf("undo to the present revision: %s", said)
			}
			setImage(t, r.obj, "registry.example/app:3", "third")
			r.untilHistory("2 second 3 <none> 4 third")
			setImage(t, r.obj, "registry.example/app:3", "third, explained")
			third := "third" // a revision of a StatefulSet keeps its annotations
			if r.kind.Kind == "Deployment" {
				third = "third, explained"
			}
			r.untilHistory("2 second 3 <none> 4 " + third)
			setImage(t, r.obj, "registry.example/app:4", "fourth")
			r.untilHistory("3 <none> 4 " + third + " 5 fourth")
			if said := r.undo(3); said != "rolled back" {
				t.Errorf("undo to revision 3: %s", said)
			}
			r.untilHistory("4 " + third + " 5 fourth 6 <none>")
			for _, member := range members {
				until(t, "the member has the first image again", member, r.obj.DeepCopyObject().(ctrlclient.Object), func(obj ctrlclient.Object) bool {
					switch obj := obj.(type) {
					case *appsv1.Deployment:
						return obj.Spec.Template.Spec.Containers[0].Image == "registry.example/app:1"
					case *appsv1.StatefulSet:
						return obj.Spec.Template.Spec.Containers[0].Image == "registry.example/app:1"
					default:
						return false
					}
				})
			}
		})
	}
	checkRevisions(t, ns, "web", "db")
}

// checkRevisions checks that revisions are where their workloads are, have no pods, and were not propagated. Then it deletes the workloads.
func checkRevisions(t *testing.T, ns string, workloads ...string) {
	t.Helper()
	var sets appsv1.ReplicaSetList
	var data appsv1.ControllerRevisionList
	ours := ctrlclient.HasLabels{names.RevisionOfLabel}
	list := func() []ctrlclient.Object {
		t.Helper()
		for _, list := range []ctrlclient.ObjectList{&sets, &data} {
			if err := cell.List(t.Context(), list, ctrlclient.InNamespace(ns), ours); err != nil {
				t.Fatal(err)
			}
		}
		var all []ctrlclient.Object
		for i := range sets.Items {
			all = append(all, &sets.Items[i])
		}
		for i := range data.Items {
			all = append(all, &data.Items[i])
		}
		return all
	}
	for _, revision := range list() {
		if owner := metav1.GetControllerOf(revision); owner == nil || slots.Of(ns, owner.Name) != slots.Of(ns, revision.GetName()) {
			t.Errorf("%T %s is not in the slot of its owner %v", revision, revision.GetName(), owner)
		}
	}
	for i := range sets.Items {
		if *sets.Items[i].Spec.Replicas != 0 {
			t.Errorf("ReplicaSet %s has %d replicas", sets.Items[i].Name, *sets.Items[i].Spec.Replicas)
		}
		missing(t, "a binding of a revision", cell, bindingRef(ns, sets.Items[i].Name+"-replicaset"))
	}
	if len(sets.Items) != 3 || len(data.Items) != 3 {
		t.Errorf("%d and %d revisions, want 3 of each workload", len(sets.Items), len(data.Items))
	}
	for name, member := range members {
		var there appsv1.ReplicaSetList
		if err := member.List(t.Context(), &there, ctrlclient.InNamespace(ns), ours); err != nil || len(there.Items) > 0 {
			t.Errorf("%s has %d revisions of the federation: %v", name, len(there.Items), err)
		}
	}
	for _, obj := range []ctrlclient.Object{deploymentRef(ns, workloads[0]), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: workloads[1]}}} {
		if err := cell.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the revisions are gone with their workloads", func(context.Context) (bool, error) {
		left := list()
		return len(left) == 0, fmt.Errorf("%d are left", len(left))
	})
}

// TestRevisionsBelongToOneWorkload replaces a Deployment without a history by one of the same name and pod template, whose revisions begin anew. A ReplicaSet that a
// user has created is a template as ever.
func TestRevisionsBelongToOneWorkload(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment", "ReplicaSet"}))
	fresh := func(image string) *appsv1.Deployment {
		d := deployment(ns, "web", 1)
		d.Spec.RevisionHistoryLimit = ptr.To(int32(0))
		d.Spec.Template.Spec.Containers[0].Image = image
		return d
	}
	d := fresh("registry.example/app:1")
	own := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template,
	}}
	create(t, d, own)
	r := newRollouts(t, "Deployment", d)
	r.untilHistory("1 <none>")
	setImage(t, d, "registry.example/app:2", "second")
	r.untilHistory("2 second")

	if err := cell.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d = fresh("registry.example/app:2")
	create(t, d)
	r.obj = d
	r.untilHistory("1 <none>")
	testenv.Eventually(t, "only the revision of the new Deployment is left", func(ctx context.Context) (bool, error) {
		var sets appsv1.ReplicaSetList
		err := cell.List(ctx, &sets, ctrlclient.InNamespace(ns), ctrlclient.HasLabels{names.RevisionOfLabel})
		return err == nil && len(sets.Items) == 1 && sets.Items[0].Labels[names.RevisionOfLabel] == string(d.UID), err
	})
	for _, member := range members {
		until(t, "the ReplicaSet of the user is in the member", member, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}, anything)
	}
}
