package execution

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// An object with the mark of a former Work is removed if it names the same binding, and the Work did not move away.
func TestIsFormerCopy(t *testing.T) {
	const id, binding, clusterBinding = names.WorkPermanentIDLabel, names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel
	work := &cell.Work{Key: cell.Key{Namespace: "es", Name: "web"}, UID: "uid", ID: "new"}
	for _, test := range []struct {
		name   string
		uid    string
		stored map[string]string
		live   map[string]string
		is     bool
		fails  bool
	}{
		{name: "of the same binding", stored: map[string]string{id: "new", binding: "b"}, live: map[string]string{id: "old", binding: "b"}, is: true},
		{name: "of the same cluster-wide binding", stored: map[string]string{id: "new", clusterBinding: "b"}, live: map[string]string{id: "old", clusterBinding: "b"}, is: true},
		{name: "without the ID of a Work", stored: map[string]string{id: "new", binding: "b"}, live: map[string]string{binding: "b"}, is: true},
		{name: "of another binding", stored: map[string]string{id: "new", binding: "b"}, live: map[string]string{id: "old", binding: "c"}},
		{name: "of a binding of another kind", stored: map[string]string{id: "new", binding: "b"}, live: map[string]string{id: "old", clusterBinding: "b"}},
		{name: "of a Work without a binding", stored: map[string]string{id: "new"}, live: map[string]string{id: "old"}},
		{name: "the Work has moved", stored: map[string]string{id: "new", binding: "b", names.RebalanceStatusLabel: "migrated"}, live: map[string]string{id: "next", binding: "b"}, fails: true},
		{name: "it is another Work", uid: "other", stored: map[string]string{id: "new", binding: "b"}, live: map[string]string{id: "next", binding: "b"}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: "uid", Labels: test.stored}}
			if test.uid != "" {
				stored.UID = "other"
			}
			is, err := isFormerCopy(work, stored, test.live)
			if is != test.is || (err != nil) != test.fails {
				t.Errorf("%t, %v; want %t, failure %t", is, err, test.is, test.fails)
			}
		})
	}
}
