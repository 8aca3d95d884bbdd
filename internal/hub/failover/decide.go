package failover

import (
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// placement is what the surviving cells hold of an object of the failed cell, as seen from its backup cell.
type placement struct {
	// Old and New mean that the backup cell owns the slot before and after the change under way. Without a change
	// they are the same.
	Old, New bool
	// Here is what the backup cell holds under the object's key.
	Here handover.Status
	// There is what the other cell of a moving slot holds.
	There handover.Status
	// Frozen means that the copy was made of a frozen object.
	Frozen bool
}

// decision is what happens to a copy.
type decision int

const (
	// ignore: a newer object is elsewhere, or the copy was made under an earlier topology. It stays a copy.
	ignore decision = iota
	// contest: another object has the key. The copy stays a copy, and is reported.
	contest
	// promote: the copy becomes the object.
	promote
	// keep: the frozen object of the backup cell is newer than the copy.
	keep
)

// String returns the decision in a word.
func (d decision) String() string { return [...]string{"ignore", "contest", "promote", "keep"}[d] }

// decide returns what happens to a copy. A mover may have been stopped at any step, and the copy may be older than
// what was lost.
//
// A moving object is frozen, copied, committed and activated. Until the commit the object is in the old cell,
// afterwards in the new one. A frozen object therefore counts unless the cell that it belongs to has something newer.
// If that cell is the failed one, the only evidence is the copy: made of a frozen object, it is at least as new as
// any frozen object.
func (s placement) decide() decision {
	switch {
	case !s.Old && !s.New:
		return ignore
	case s.Here == handover.Active:
		return contest
	case s.There == handover.Active:
		return ignore // it had already left the failed cell, or had not reached it
	case s.There == handover.Frozen && s.New:
		return ignore // it was moving to the failed cell, and moves to this one instead
	case s.There == handover.Frozen && !s.Frozen:
		return ignore // it was moving away from the failed cell, and the copy is older
	case s.Here == handover.Frozen && !s.Frozen:
		return keep // the same, with this cell as the destination
	default:
		return promote
	}
}

// statusOf returns the status of a stored object in a move.
func statusOf(kv cellstore.KV) handover.Status {
	if kv.ModRevision == 0 {
		return handover.Absent
	}
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return handover.Active // no API object: it must not be replaced
	}
	return statusOfObject(object)
}

func statusOfObject(object *cellstore.Object) handover.Status {
	switch object.Labels[names.RebalanceStatusLabel] {
	case names.RebalanceMigrating:
		return handover.Frozen
	case names.RebalanceMigrated:
		return handover.Moved
	default:
		return handover.Active
	}
}

// unmarked returns a stored object without the marks of a move.
func unmarked(value []byte) ([]byte, error) {
	return cellstore.WithMark(value, cellstore.Mark{
		Labels:      map[string]string{names.RebalanceStatusLabel: ""},
		Annotations: map[string]string{names.CopiedAtAnnotation: ""},
	})
}

// frozen returns a stored object as it is while it moves.
func frozen(value []byte) ([]byte, error) {
	return cellstore.WithMark(value, cellstore.Mark{
		Labels:      map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating},
		Annotations: map[string]string{names.CopiedAtAnnotation: ""},
	})
}
