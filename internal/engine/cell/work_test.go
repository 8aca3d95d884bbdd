package cell

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
)

// TestUpdatedWork checks that an update of a Work changes only our metadata.
func TestUpdatedWork(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: "1"}
	there := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace: names.ExecutionNamespace("m1"), Name: "w", UID: "2", ResourceVersion: "7", Finalizers: []string{"theirs.example/keep"},
		Labels:          map[string]string{names.WorkPermanentIDLabel: "id", names.SlotLabel: "1", "theirs": "", "team": "a"},
		Annotations:     map[string]string{names.AppliedOverridesAnnotation: "[]", "note": "read me"},
		OwnerReferences: []metav1.OwnerReference{owner},
	}}
	c := &Cell{Clusters: newStore(keep[clusterv1alpha1.Cluster]), Manifests: newManifests()}
	work := c.condenseWork(there, nil)
	got := work.updated(&metav1.ObjectMeta{
		Labels:      map[string]string{names.WorkPermanentIDLabel: "id", names.SlotLabel: "2"},
		Annotations: map[string]string{names.ResourceBindingNameAnnotation: "b", names.ConflictResolutionAnnotation: ""},
	})
	if want := map[string]string{names.WorkPermanentIDLabel: "id", names.SlotLabel: "2", "theirs": "", "team": "a"}; !maps.Equal(got.Labels, want) {
		t.Errorf("the labels are %v, want %v", got.Labels, want)
	}
	if want := map[string]string{names.ResourceBindingNameAnnotation: "b", "note": "read me"}; !maps.Equal(got.Annotations, want) {
		t.Errorf("the annotations are %v, want %v", got.Annotations, want)
	}
	if want := []string{"theirs.example/keep", names.ExecutionFinalizer}; !slices.Equal(got.Finalizers, want) {
		t.Errorf("the finalizers are %v, want %v", got.Finalizers, want)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].Name != owner.Name {
		t.Errorf("the owners are %v", got.OwnerReferences)
	}
	if got.ResourceVersion != "7" || got.UID != "2" || got.Name != "w" || got.Namespace != there.Namespace {
		t.Errorf("it is sent as %s/%s, %s at %s", got.Namespace, got.Name, got.UID, got.ResourceVersion)
	}
}

// TestNoForeignMetadata checks that a Work without metadata of others takes no memory for it.
func TestNoForeignMetadata(t *testing.T) {
	if f := foreignOf(&metav1.ObjectMeta{Labels: map[string]string{names.SlotLabel: "1"}, Annotations: map[string]string{names.ResourceBindingNameAnnotation: "b"}}); f != nil {
		t.Errorf("our own metadata counts as foreign: %+v", f)
	}
}

// TestDigestOfPreservation checks that a Work is written when a policy says explicitly that nothing is preserved.
func TestDigestOfPreservation(t *testing.T) {
	digest := func(preserve *bool) uint64 { return WorkDigest(nil, nil, false, preserve, nil) }
	if unset, no, yes := digest(nil), digest(ptr.To(false)), digest(ptr.To(true)); unset == no || no == yes || unset == yes {
		t.Errorf("the digests are %d, %d and %d", unset, no, yes)
	}
}
