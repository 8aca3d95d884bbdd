package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// lagWarning is the age of the last proof of a backup from which on it is told of. A hub manager writes one every few seconds.
const lagWarning = 2 * time.Minute

// checkCells looks at the health and the backups of cells, as the hub manager sees them.
func (d *Doctor) checkCells(context.Context) ([]Finding, error) {
	var findings []Finding
	known := map[string]bool{}
	for i := range d.cells {
		cell := &d.cells[i]
		known[cell.Name] = true
		switch d.state(cell.Name) {
		case "": // it is not used
		case cellplanev1alpha1.CellStateFailed:
			findings = append(findings, find(CellFailed, Warning, "Cell "+cell.Name, "it has failed, and others hold its share"))
		default:
			findings = append(findings, d.cell(cell)...)
		}
	}
	for _, c := range d.topology.Spec.Cells {
		if !known[c.Name] {
			findings = append(findings, find(CellNotReady, Error, "Cell "+c.Name, "the topology lists it, but there is no such Cell"))
		}
	}
	return findings, nil
}

func (d *Doctor) cell(cell *cellplanev1alpha1.Cell) []Finding {
	var findings []Finding
	object := "Cell " + cell.Name
	if ready := meta.FindStatusCondition(cell.Status.Conditions, names.CellReady); ready == nil || ready.Status != metav1.ConditionTrue {
		message := "the hub manager has not looked at it yet"
		if ready != nil {
			message = ready.Message
		}
		findings = append(findings, find(CellNotReady, Error, object, message))
	}
	backedUp, backup := meta.FindStatusCondition(cell.Status.Conditions, names.CellBackedUp), cell.Status.Backup
	switch {
	case backedUp == nil || backedUp.Reason == names.ReasonNoBackupCell: // whoever runs a single cell knows that it has no backup
	case backedUp.Status == metav1.ConditionFalse:
		findings = append(findings, find(BackupBehind, Error, object, backedUp.Message))
	case backedUp.Status == metav1.ConditionUnknown:
		findings = append(findings, find(BackupBehind, Warning, object, backedUp.Message))
	case backup == nil || backup.UpToDateAt == nil:
	case d.now().Sub(backup.UpToDateAt.Time) > lagWarning:
		findings = append(findings, find(BackupBehind, Warning, object, fmt.Sprintf("the last proof of its backup is %s old", d.now().Sub(backup.UpToDateAt.Time).Round(time.Second))))
	}
	return findings
}
