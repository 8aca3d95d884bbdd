package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// groupClusters are the commands about member clusters.
const groupClusters = "clusters"

var unschedulable = corev1.Taint{Key: names.UnschedulableTaint, Effect: corev1.TaintEffectNoSchedule}

func newCordon() *cobra.Command {
	return newTaintChange("cordon CLUSTER...", "Stop placing new workloads in clusters; running ones stay", "closed to new workloads", func(taints []corev1.Taint) []corev1.Taint {
		return addTaint(taints, unschedulable)
	})
}

func newUncordon() *cobra.Command {
	return newTaintChange("uncordon CLUSTER...", "Allow new workloads in clusters again", "open to new workloads", func(taints []corev1.Taint) []corev1.Taint {
		return removeTaint(taints, unschedulable.Key, unschedulable.Effect)
	})
}

func newTaintChange(use, short, outcome string, change func([]corev1.Taint) []corev1.Taint) *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:     use,
		GroupID: groupClusters,
		Short:   short,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, clusters []string) error {
			return changeTaints(cmd.Context(), cmd.OutOrStdout(), &hub, clusters, outcome, change)
		},
	}
	hub.add(cmd)
	return cmd
}

func newTaint() *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:     "taint CLUSTER KEY[=VALUE]:EFFECT... | KEY[:EFFECT]-...",
		GroupID: groupClusters,
		Short:   "Add taints to a cluster, or remove them",
		Long: `Add taints to a cluster, or remove them. NoSchedule repels new workloads that
do not tolerate the taint; NoExecute also evicts running ones. A dash at the
end removes a taint.`,
		Example: `  cellplane taint member1 maintenance=tonight:NoExecute
  cellplane taint member1 maintenance-`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := parseTaints(args[1:])
			if err != nil {
				return err
			}
			return changeTaints(cmd.Context(), cmd.OutOrStdout(), &hub, args[:1], "tainted", change)
		},
	}
	hub.add(cmd)
	return cmd
}

// changeTaints changes the taints of clusters and prints the outcome, also if nothing changed.
func changeTaints(ctx context.Context, out io.Writer, hub *hubFlags, clusters []string, outcome string, change func([]corev1.Taint) []corev1.Taint) error {
	c, err := hub.client()
	if err != nil {
		return err
	}
	for _, name := range clusters {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return changeTaintsOf(ctx, c, name, change) })
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("changing the taints of cluster %s: %w", name, err)
		}
		if err != nil {
			return fmt.Errorf("the federation has no cluster %s; list them with `cellplane kubectl get clusters`", name)
		}
		fmt.Fprintf(out, "Cluster %s is %s.\n", name, outcome)
	}
	return nil
}

func changeTaintsOf(ctx context.Context, c client.Client, name string, change func([]corev1.Taint) []corev1.Taint) error {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	cluster.Spec.Taints = change(cluster.Spec.Taints)
	return c.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// addTaint adds a taint, or replaces the one with the same key and effect.
func addTaint(taints []corev1.Taint, taint corev1.Taint) []corev1.Taint {
	for i := range taints {
		if taints[i].MatchTaint(&taint) {
			if taints[i].Value != taint.Value {
				taints[i] = taint
			}
			return taints
		}
	}
	return append(taints, taint)
}

// removeTaint removes the taints with a key: those of one effect, or all.
func removeTaint(taints []corev1.Taint, key string, effect corev1.TaintEffect) []corev1.Taint {
	return slices.DeleteFunc(taints, func(t corev1.Taint) bool {
		return t.Key == key && (effect == "" || t.Effect == effect)
	})
}

// parseTaints parses taints in the notation of kubectl and returns the change.
func parseTaints(args []string) (func([]corev1.Taint) []corev1.Taint, error) {
	var changes []func([]corev1.Taint) []corev1.Taint
	for _, arg := range args {
		text, remove := strings.CutSuffix(arg, "-")
		taint, err := parseTaint(text, remove)
		if err != nil {
			return nil, fmt.Errorf("%q is not a taint: %w", arg, err)
		}
		if remove {
			changes = append(changes, func(taints []corev1.Taint) []corev1.Taint { return removeTaint(taints, taint.Key, taint.Effect) })
		} else {
			changes = append(changes, func(taints []corev1.Taint) []corev1.Taint { return addTaint(taints, taint) })
		}
	}
	return func(taints []corev1.Taint) []corev1.Taint {
		for _, change := range changes {
			taints = change(taints)
		}
		return taints
	}, nil
}

func parseTaint(text string, remove bool) (corev1.Taint, error) {
	key, effect, hasEffect := strings.Cut(text, ":")
	key, value, _ := strings.Cut(key, "=")
	taint := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return taint, fmt.Errorf("invalid key: %s", strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return taint, fmt.Errorf("invalid value: %s", strings.Join(problems, "; "))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	if remove && !hasEffect {
		return taint, nil
	}
	if !slices.Contains(effects, taint.Effect) {
		return taint, errors.New("the effect must be NoSchedule or NoExecute")
	}
	return taint, nil
}
