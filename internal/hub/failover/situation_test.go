package failover

import (
	"testing"

	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

func TestDecide(t *testing.T) {
	const absent, active, frozen, left = handover.Absent, handover.Active, handover.Frozen, handover.Moved
	for _, test := range []struct {
		name string
		situation
		want verdict
	}{
		{"the ordinary case", situation{Old: true, New: true}, promote},
		{"it has been here before", situation{Old: true, New: true, Here: left}, promote},
		{"its place is taken", situation{Old: true, New: true, Here: active}, contest},
		{"kept here by an earlier topology", situation{}, ignore},
		{"kept here by an earlier topology, and here", situation{Here: active, Frozen: true}, ignore},
		{"lost on the way here, by a late backup", situation{Old: true, New: true, Here: frozen}, keep},
		{"lost on the way here", situation{Old: true, New: true, Here: frozen, Frozen: true}, promote},
		{"the destination is lost before it had anything", situation{New: true, There: active}, ignore},
		{"the destination is lost with a copy", situation{New: true, There: frozen, Frozen: true}, ignore},
		{"the destination is lost with the object", situation{New: true, There: left}, promote},
		{"the source is lost before anything was copied", situation{Old: true}, promote},
		{"the source is lost when it was copied", situation{Old: true, There: frozen, Frozen: true}, promote},
		{"the source is lost when it was copied, by a late backup", situation{Old: true, There: frozen}, ignore},
		{"the source is lost after it had handed over", situation{Old: true, There: active, Frozen: true}, ignore},
		{"the source is lost, and its place is taken by what is left", situation{Old: true, Here: left, There: absent}, promote},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.decide(); got != test.want {
				t.Errorf("%+v: %s, want %s", test.situation, got, test.want)
			}
		})
	}
}
