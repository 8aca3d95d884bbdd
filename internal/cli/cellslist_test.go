package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
)

// atNoon is the time of the list.
var atNoon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// known returns a Cell with a status.
func known(name string, ready metav1.ConditionStatus, message string, templates, pending int64, lag time.Duration) v1alpha1.Cell {
	cell := v1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cell.Status.Conditions = []metav1.Condition{{Type: names.CellReady, Status: ready, Message: message}, {Type: names.CellBackedUp, Status: ready}}
	cell.Status.Objects = &v1alpha1.CellObjects{Templates: templates}
	cell.Status.Backup = &v1alpha1.CellBackup{PendingKeys: pending, UpToDateAt: ptr.To(metav1.NewTime(atNoon.Add(-lag)))}
	return cell
}

func TestListOfCells(t *testing.T) {
	topology := &v1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	topology.Status.Phase = v1alpha1.TopologyMoving
	topology.Spec.Cells = []v1alpha1.TopologyCell{
		{Name: "cell-a", Weight: 1, State: v1alpha1.CellStateNormal},
		{Name: "cell-b", Weight: 1, TargetWeight: ptr.To(int32(3)), State: v1alpha1.CellStateNormal},
		{Name: "cell-c", Weight: 1, State: v1alpha1.CellStateFailed},
		{Name: "cell-d", Weight: 2, State: v1alpha1.CellStateNormal},
	}
	rows, err := describeCells(topology, []v1alpha1.Cell{
		known("cell-a", metav1.ConditionTrue, "fine", 12, 0, time.Second),
		known("cell-b", metav1.ConditionTrue, "fine", 7, 3, 1440*time.Millisecond),
		known("cell-c", metav1.ConditionFalse, "the store does not answer", 5, 0, time.Hour),
		{ObjectMeta: metav1.ObjectMeta{Name: "cell-e"}},
	}, atNoon)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := cells.Compile(7, &topology.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for i, holding := range compiled.Balance() {
		if rows[i].Name != holding.Cell || rows[i].Slots != holding.Before {
			t.Errorf("%s has %d slots, want %+v", rows[i].Name, rows[i].Slots, holding)
		}
		rows[i].Slots, rows[i].Share = 1000*i, float64(i)/10 // the assignment of slots is tested elsewhere
	}
	var out bytes.Buffer
	if err := printCells(&out, "", topology, rows); err != nil {
		t.Fatal(err)
	}
	const want = `
CELL    STATE   WEIGHT  SLOTS  SHARE   TEMPLATES  BACKUP LAG  HEALTH     MESSAGE
cell-a  Normal  1       0      0.0 %   12         none        ready      
cell-b  Normal  1>3     1000   10.0 %  7          1.4s        ready      
cell-c  Failed  1       2000   20.0 %  5          1h0m0s      not ready  the store does not answer
cell-d  Normal  2       3000   30.0 %  -          -           unknown    there is no such Cell
cell-e  -       -       0      0.0 %   -          -           unknown    

A change is in progress: cell-b goes from weight 1 to 3. Watch it with ` + "`cellplane cells watch`.\n"
	if got := "\n" + out.String(); got != want {
		t.Errorf("the list is\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	var read struct {
		Epoch int64
		Phase string
		Cells []cellRow
	}
	if err := printCells(&out, "json", topology, rows); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || read.Epoch != 7 || read.Phase != "Moving" || len(read.Cells) != 5 || read.Cells[1].BackupLag != "1.4s" {
		t.Errorf("the JSON form is %s (%v)", out.String(), err)
	}
	if err := printCells(&out, "xml", topology, rows); err == nil || !strings.Contains(err.Error(), "the only one is json") {
		t.Errorf("an unknown format: %v", err)
	}
}

func TestPlanIsShown(t *testing.T) {
	var spec v1alpha1.CellTopologySpec
	for _, name := range []string{"cell-a", "cell-b"} {
		spec.Cells = append(spec.Cells, v1alpha1.TopologyCell{Name: name, Weight: 1, State: v1alpha1.CellStateNormal})
	}
	plan, err := cells.Preview(spec, cells.Add("cell-c", 2))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printPlan(&out, plan); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CELL    BEFORE  AFTER   BY WEIGHT", "cell-c  0.0 %   ", "FROM    TO      SLOTS   SHARE", "cell-a  cell-c  ", "cell-b  cell-c  ", "% of all objects would move. Nothing has been changed.", "To do it by hand, add this to the cells of the CellTopology: {name: cell-c, weight: 2, seed: "} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the plan does not show %q:\n%s", line, out.String())
		}
	}
}

// TestBackupLag checks that no lag is shown only if that was proved recently.
func TestBackupLag(t *testing.T) {
	for _, test := range []struct {
		name     string
		backedUp metav1.ConditionStatus
		proved   time.Duration
		want     string
	}{
		{"it follows", metav1.ConditionTrue, time.Second, "none"},
		{"the hub manager no longer runs", metav1.ConditionTrue, time.Minute, "1m0s"},
		{"a store cannot be read", metav1.ConditionUnknown, 45 * time.Second, "unknown, 45s since the last proof"},
		{"it is behind", metav1.ConditionFalse, 12 * time.Second, "12s"},
		{"the clock is a little behind that of the hub manager", metav1.ConditionTrue, -time.Second, "none"},
		{"the clock is far behind", metav1.ConditionTrue, -time.Minute, "unknown, the clocks of this machine and of the hub manager differ"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cell := known("cell-a", metav1.ConditionTrue, "fine", 1, 0, test.proved)
			cell.Status.Conditions[1].Status = test.backedUp
			var row cellRow
			if row.describe(&cell, atNoon); row.BackupLag != test.want {
				t.Errorf("got %q, want %q", row.BackupLag, test.want)
			}
		})
	}
}
