package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// rolloutVerb returns a command that does something with one workload.
func rolloutVerb(cmd *cobra.Command, do func(ctx context.Context, out io.Writer, w *rolloutReader) error) *cobra.Command {
	var flags workloadFlags
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w, err := openRollout(&flags, args[0])
		if err != nil {
			return err
		}
		return do(cmd.Context(), cmd.OutOrStdout(), w)
	}
	flags.gatewayFlags.add(cmd)
	cmd.Flags().StringVarP(&flags.namespace, "namespace", "n", "default", "namespace of the workload")
	return cmd
}

func newRolloutHistory() *cobra.Command {
	var revision int64
	cmd := rolloutVerb(&cobra.Command{
		Use:   "history KIND/NAME",
		Short: "Show the revisions of a workload, or one of them",
		Example: `  cellplane rollout history deploy/web
  cellplane rollout history deploy/web --revision 3`,
	}, func(_ context.Context, out io.Writer, w *rolloutReader) error {
		viewer, err := polymorphichelpers.HistoryViewerFor(w.kind.GroupKind(), w.typed)
		if err != nil {
			return err
		}
		text, err := viewer.ViewHistory(w.namespace, w.name, revision)
		if err == nil {
			_, err = fmt.Fprintln(out, text)
		}
		return err
	})
	cmd.Flags().Int64Var(&revision, "revision", revision, "show the pod template of this revision")
	return cmd
}

func newRolloutUndo() *cobra.Command {
	var revision int64
	cmd := rolloutVerb(&cobra.Command{
		Use:   "undo KIND/NAME",
		Short: "Go back to an earlier revision of a workload",
		Long: `Go back to an earlier revision of a workload. That is a rolling update like any
other: it keeps to maxSurge and maxUnavailable.`,
		Example: `  cellplane rollout undo deploy/web
  cellplane rollout undo deploy/web --to-revision 3`,
	}, func(_ context.Context, out io.Writer, w *rolloutReader) error {
		rollbacker, err := polymorphichelpers.RollbackerFor(w.kind.GroupKind(), w.typed)
		if err != nil {
			return err
		}
		said, err := rollbacker.Rollback(w.object(), nil, revision, cmdutil.DryRunNone)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s %s/%s: %s\n", w.kind.Kind, w.namespace, w.name, said)
		}
		return err
	})
	cmd.Flags().Int64Var(&revision, "to-revision", revision, "the revision to go back to; 0 means the one before")
	return cmd
}

func newRolloutPause() *cobra.Command {
	return rolloutVerb(&cobra.Command{
		Use:     "pause deploy/NAME",
		Short:   "Stop the rolling update of a Deployment in all clusters",
		Example: `  cellplane rollout pause deploy/web`,
	}, func(ctx context.Context, out io.Writer, w *rolloutReader) error { return w.setPaused(ctx, out, true) })
}

func newRolloutResume() *cobra.Command {
	return rolloutVerb(&cobra.Command{
		Use:     "resume deploy/NAME",
		Short:   "Continue the rolling update of a paused Deployment",
		Example: `  cellplane rollout resume deploy/web`,
	}, func(ctx context.Context, out io.Writer, w *rolloutReader) error { return w.setPaused(ctx, out, false) })
}

func (r *rolloutReader) object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.kind)
	obj.SetNamespace(r.namespace)
	obj.SetName(r.name)
	return obj
}

// setPaused pauses a Deployment or lets it continue.
func (r *rolloutReader) setPaused(ctx context.Context, out io.Writer, paused bool) error {
	if r.kind != revisions.Deployment {
		return fmt.Errorf("only Deployments can be paused, not a %s", r.kind.Kind)
	}
	obj := r.object()
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	state := map[bool]string{true: "paused", false: "resumed"}[paused]
	if revisions.Paused(obj) == paused {
		state = map[bool]string{true: "is already paused", false: "is not paused"}[paused]
	} else {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused))
		if err := r.client.Patch(ctx, obj, patch); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "Deployment %s/%s: %s\n", r.namespace, r.name, state)
	return err
}
