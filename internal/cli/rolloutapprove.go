package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

func newRolloutApprove() *cobra.Command {
	var stage string
	var despiteFailure bool
	cmd := rolloutVerb(&cobra.Command{
		Use:   "approve KIND/NAME",
		Short: "Let a stage of a rolling update begin",
		Long: `Let a stage of a rolling update begin that waits for approval, or an update go
on that was paused because clusters have failed.

An approval is for the update that is under way; the next one has to be approved
again. It is stored on the ResourceBinding of the workload: who may patch that
may approve.`,
		Example: `  cellplane rollout approve deploy/web
  cellplane rollout approve deploy/web --stage production
  cellplane rollout approve deploy/web --despite-failure`,
	}, func(ctx context.Context, out io.Writer, w *rolloutReader) error {
		done, err := w.approve(ctx, stage, despiteFailure)
		if err == nil {
			_, err = fmt.Fprintln(out, done)
		}
		return err
	})
	cmd.Flags().StringVar(&stage, "stage", "", "the stage to approve, also in advance (default: the one that waits)")
	cmd.Flags().BoolVar(&despiteFailure, "despite-failure", false, "let an update go on that has failed")
	cmd.MarkFlagsMutuallyExclusive("stage", "despite-failure")
	return cmd
}

// approve stores an approval, and says which.
func (r *rolloutReader) approve(ctx context.Context, stage string, despiteFailure bool) (done string, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		template, binding, err := r.objects(ctx)
		if err != nil {
			return err
		}
		update := rollout.RevisionOf(template)
		record, err := stages.DecodeRecord(binding.Annotations[names.RolloutStagesAnnotation])
		if err != nil {
			return err
		}
		if record.Update != update {
			record = stages.Record{} // of an earlier update
		}
		workload := fmt.Sprintf("%s %s/%s", r.kind.Kind, r.namespace, r.name)
		approves, err := approvable(&record, stage, despiteFailure)
		if err != nil {
			return fmt.Errorf("%s: %w", workload, err)
		}
		approval, err := stages.DecodeApproval(binding.Annotations[names.RolloutApprovalAnnotation])
		if err != nil {
			approval = stages.Approval{} // what cannot be read counts for nothing
		}
		approval = approval.With(update, approves)
		text, err := approval.Encode()
		if err != nil {
			return err
		}
		before := binding.DeepCopy()
		metav1.SetMetaDataAnnotation(&binding.ObjectMeta, names.RolloutApprovalAnnotation, text)
		if done = fmt.Sprintf("%s: stage %s is approved", workload, approves); approves == "" {
			done = fmt.Sprintf("%s: goes on although it has failed in %s", workload, strings.Join(record.Failed, ", "))
		}
		// Who may patch may approve; the version makes sure that no approval of somebody else is lost.
		return r.client.Patch(ctx, binding, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	return done, err
}

// approvable returns the stage to approve; empty means the failures.
func approvable(record *stages.Record, stage string, despiteFailure bool) (string, error) {
	switch {
	case despiteFailure && len(record.Failed) == 0:
		return "", errors.New("the update has not failed")
	case despiteFailure:
		return "", nil
	case stage != "":
		return stage, nil
	case len(record.Failed) > 0:
		return "", fmt.Errorf("the update has failed in %s; correct it, or let it go on with --despite-failure", strings.Join(record.Failed, ", "))
	case record.Waiting == "":
		return "", errors.New("no stage waits for approval")
	default:
		return record.Waiting, nil
	}
}
