package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

func newRolloutExplain() *cobra.Command {
	return rolloutVerb(&cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Show why clusters have not begun or finished",
		Long: `Show why clusters have not begun or finished the rolling update of a workload:
the bounds of its template, how much of them is in use by what clusters were
told, and what each cluster waits for.`,
		Example: `  cellplane rollout explain deploy/web -n shop`,
	}, func(ctx context.Context, out io.Writer, w *rolloutReader) error {
		template, binding, err := w.objects(ctx)
		if err != nil {
			return err
		}
		return explainRollout(out, template, binding)
	})
}

// explainRollout prints why a rollout is where it is.
func explainRollout(out io.Writer, template *unstructured.Unstructured, binding *workv1alpha2.ResourceBinding) error {
	state, err := newRolloutState(template, binding)
	if err != nil {
		return err
	}
	ledger, err := rollout.DecodeLedger(binding.Annotations[names.RolloutAnnotation])
	if err != nil {
		return err
	}
	text := &strings.Builder{}
	fmt.Fprintln(text, state.title())
	explainBounds(text, template, state, ledger)
	if err := explainStages(text, template, binding); err != nil {
		return err
	}
	for i := range state.Clusters {
		c := &state.Clusters[i]
		fmt.Fprintf(text, "\n%s: %s\n", c.Name, c.State)
		if entry, told := ledger[c.Name]; told {
			fmt.Fprintf(text, "  told to have %d replicas%s by command %d\n", entry.Command.Replicas, budgetOf(&entry.Command), entry.Seq)
			fmt.Fprintf(text, "  may have up to %d pods, and as few as %d available\n", entry.Loosened.Pods, entry.Loosened.Available)
		}
	}
	_, err = io.WriteString(out, text.String())
	return err
}

// budgetOf describes what a cluster may do during its update; empty if nothing.
func budgetOf(c *rollout.Command) string {
	switch {
	case c.Paused:
		return ", paused,"
	case c.Surge > 0 || c.Unavailable > 0:
		return fmt.Sprintf(" with maxSurge %d and maxUnavailable %d", c.Surge, c.Unavailable)
	default:
		return ""
	}
}

// explainBounds compares the bounds of the template with what clusters may do.
func explainBounds(out io.Writer, template *unstructured.Unstructured, state *rolloutState, ledger rollout.Ledger) {
	if len(ledger) == 0 {
		fmt.Fprintln(out, "No bounds are divided among clusters: the workload is not being changed, its replicas are not divided, or its kind is updated in all clusters at once.")
		return
	}
	var sums rollout.Envelope
	for _, entry := range ledger {
		sums.Pods, sums.Available = sums.Pods+entry.Loosened.Pods, sums.Available+entry.Loosened.Available
	}
	if bounds, err := rollout.TemplateBounds(template, int(state.Replicas)); err == nil { // those of an interpreted kind are not known here
		fmt.Fprintf(out, "The template allows up to %d pods, and as few as %d available.\n", bounds.Replicas+bounds.Surge, max(0, bounds.Replicas-bounds.Unavailable))
	}
	fmt.Fprintf(out, "By what clusters were told there may be up to %d pods, and as few as %d available.\n", sums.Pods, sums.Available)
}

// explainStages says what the stages of the rollout wait for.
func explainStages(out io.Writer, template *unstructured.Unstructured, binding *workv1alpha2.ResourceBinding) error {
	record, err := stages.DecodeRecord(binding.Annotations[names.RolloutStagesAnnotation])
	if err != nil {
		return err
	}
	if record.Update != rollout.RevisionOf(template) {
		return nil
	}
	of := fmt.Sprintf("%s/%s -n %s", strings.ToLower(template.GetKind()), template.GetName(), template.GetNamespace())
	if len(record.Failed) > 0 {
		fmt.Fprintf(out, "The update has failed in %s. Correct it, or let it go on: cellplane rollout approve %s --despite-failure\n", strings.Join(record.Failed, ", "), of)
	}
	if record.Waiting != "" {
		fmt.Fprintf(out, "Stage %s waits for approval: cellplane rollout approve %s\n", record.Waiting, of)
	}
	return nil
}
