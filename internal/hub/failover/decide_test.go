package failover

import (
	"testing"

	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

func TestDecide(t *testing.T) {
	const absent, active, frozen, moved = handover.Absent, handover.Active, handover.Frozen, handover.Moved
	for _, test := range []struct {
		name string
		placement
		want decision
	}{
		{"the ordinary case", placement{Old: true, New: true}, promote},
		{"it has been here before", placement{Old: true, New: true, Here: moved}, promote},
		{"another object has its key", placement{Old: true, New: true, Here: active}, contest},
		{"copied here under an earlier topology", placement{}, ignore},
		{"copied here under an earlier topology, and here", placement{Here: active, Frozen: true}, ignore},
		{"lost while moving here, outdated copy", placement{Old: true, New: true, Here: frozen}, keep},
		{"lost while moving here", placement{Old: true, New: true, Here: frozen, Frozen: true}, promote},
		{"the destination is lost before it had anything", placement{New: true, There: active}, ignore},
		{"the destination is lost with a copy", placement{New: true, There: frozen, Frozen: true}, ignore},
		{"the destination is lost with the object", placement{New: true, There: moved}, promote},
		{"the source is lost before anything was copied", placement{Old: true}, promote},
		{"the source is lost when it was copied", placement{Old: true, There: frozen, Frozen: true}, promote},
		{"the source is lost when it was copied, outdated copy", placement{Old: true, There: frozen}, ignore},
		{"the source is lost after the activation", placement{Old: true, There: active, Frozen: true}, ignore},
		{"the source is lost, and a stale copy has the key", placement{Old: true, Here: moved, There: absent}, promote},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.decide(); got != test.want {
				t.Errorf("%+v: %s, want %s", test.placement, got, test.want)
			}
		})
	}
}
