package history

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// The reasons why a workload cannot be rolled back.
var (
	ErrNoRevision = errors.New("no earlier revision is stored")
	ErrRolledBack = errors.New("it has been rolled back to this pod template already")
)

// RollBack gives a workload the pod template that it had before an update. It does nothing if the pod template of the workload is not that of the update any more.
func RollBack(ctx context.Context, c *cell.Cell, t *cell.Template, update string) error {
	workload, err := c.ReadTemplate(ctx, t.Key())
	if err != nil {
		return err
	}
	if workload.GetUID() != t.UID || workload.GetLabels()[names.RebalanceStatusLabel] != "" || rollout.RevisionOf(workload) != update {
		return nil
	}
	annotations := workload.GetAnnotations()
	if annotations[names.RolledBackToAnnotation] == update {
		return ErrRolledBack
	}
	stored, err := c.Revisions.List(ctx, workload)
	if err != nil {
		return err
	}
	former := newestBesides(stored, revisions.Present(workload).Template)
	if former == nil {
		return ErrNoRevision
	}
	revision, err := c.Revisions.Read(ctx, former)
	if err != nil {
		return err
	}
	template := revisions.PodTemplate(revision)
	if template == nil {
		return ErrNoRevision
	}
	if err := unstructured.SetNestedMap(workload.Object, template, "spec", "template"); err != nil {
		return err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[names.RolledBackToAnnotation] = rollout.RevisionOf(workload)
	workload.SetAnnotations(annotations)
	return c.UpdateTemplate(ctx, t, workload)
}

// newestBesides returns the newest revision with another pod template, nil if there is none.
func newestBesides(stored []*cell.Revision, template string) *cell.Revision {
	var newest *cell.Revision
	for _, revision := range stored {
		if revision.Template != template && !revision.Deleting && (newest == nil || revision.Number > newest.Number) {
			newest = revision
		}
	}
	return newest
}
