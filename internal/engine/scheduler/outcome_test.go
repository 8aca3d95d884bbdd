package scheduler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// TestRecord checks that the newest decision for a binding counts.
func TestRecord(t *testing.T) {
	key, changes := cell.Key{Namespace: "shop", Name: "web-deployment"}, 0
	s := &Scheduler{outcomes: map[cell.Key]Outcome{}, waiting: map[string]map[cell.Key]struct{}{}, waitingUnder: map[cell.Key]string{}, changed: func(cell.Key) { changes++ }, now: func() time.Time { return time.Unix(0, 0) }}
	for _, step := range []struct {
		what         string
		generation   int64
		made         bool
		affinity     string
		wantAffinity string
		wantChanges  int
	}{
		{"placed", 1, true, "home", "home", 1}, // the event of the creation may have been handled before
		{"evicted", 2, true, "away", "away", 2},
		{"an attempt for the state before the eviction ends late", 1, false, "home", "away", 2},
		{"an attempt that began before the eviction was recorded finds nothing to do", 2, false, "home", "away", 2},
		{"nothing to do", 2, false, "away", "away", 2},
	} {
		binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: step.generation}}
		s.record(binding, &decision{made: step.made, Outcome: Outcome{Affinity: step.affinity}})
		if last, _ := s.Last(key); last.Affinity != step.wantAffinity || changes != step.wantChanges {
			t.Errorf("%s: affinity %s, %d changes, want %s and %d", step.what, last.Affinity, changes, step.wantAffinity, step.wantChanges)
		}
	}
}
