package failover

import (
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// situation is what is known of an object of the failed cell, seen from the cell that keeps its copy.
type situation struct {
	// Old and New tell whether the keeper owns the slot before and after the change under way. Without a change they are the same.
	Old, New bool
	// Here is what the keeper has in the place of the object.
	Here handover.Status
	// There is what the other cell of a moving slot has.
	There handover.Status
	// Frozen tells that the copy was made of a frozen object.
	Frozen bool
}

// verdict is what becomes of a copy.
type verdict int

const (
	// ignore: something newer is elsewhere, or the copy was made under an earlier topology. It stays a copy.
	ignore verdict = iota
	// contest: another object has taken the place. The copy stays a copy, and is told of.
	contest
	// promote: the copy becomes the object.
	promote
	// keep: the frozen object that the keeper has is newer than the copy.
	keep
)

// String returns the verdict in a word.
func (v verdict) String() string { return [...]string{"ignore", "contest", "promote", "keep"}[v] }

// decide says what becomes of a copy. A mover may have been stopped at any step, and the copy may be older than what was lost.
//
// An object moves by being frozen, copied, committed and activated. Until the commit the object in the old cell is the one, and from
// then on the copy in the new cell, so that a frozen object counts unless the cell it belongs to tells otherwise. That one is gone: what
// is left of its word is whether the copy was made of a frozen object, and is therefore at least as new as what has been frozen.
func (s situation) decide() verdict {
	switch {
	case !s.Old && !s.New:
		return ignore
	case s.Here == handover.Active:
		return contest
	case s.There == handover.Active:
		return ignore // it had left the failed cell already, or not gone there yet
	case s.There == handover.Frozen && s.New:
		return ignore // it was on its way to the failed cell, and goes to this one instead
	case s.There == handover.Frozen && !s.Frozen:
		return ignore // it was on its way from the failed cell, where the copy is from an earlier time
	case s.Here == handover.Frozen && !s.Frozen:
		return keep // as before, with this cell as its destination
	default:
		return promote
	}
}

// standingOf returns what a stored object is to a move.
func standingOf(kv cellstore.KV) handover.Status {
	if kv.ModRevision == 0 {
		return handover.Absent
	}
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return handover.Active // nothing of ours, and therefore nothing to replace
	}
	return standing(object)
}

func standing(object *cellstore.Object) handover.Status {
	switch object.Labels[names.RebalanceStatusLabel] {
	case names.RebalanceMigrating:
		return handover.Frozen
	case names.RebalanceMigrated:
		return handover.Moved
	default:
		return handover.Active
	}
}

// unmarked returns a stored object without what a move has written on it.
func unmarked(value []byte) ([]byte, error) {
	return cellstore.WithMark(value, cellstore.Mark{
		Labels:      map[string]string{names.RebalanceStatusLabel: ""},
		Annotations: map[string]string{names.CopiedAtAnnotation: ""},
	})
}

// frozen returns a stored object as it is while it is on its way.
func frozen(value []byte) ([]byte, error) {
	return cellstore.WithMark(value, cellstore.Mark{
		Labels:      map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating},
		Annotations: map[string]string{names.CopiedAtAnnotation: ""},
	})
}
