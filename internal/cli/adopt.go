package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/adopt"
)

func newAdopt() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "adopt",
		GroupID: groupClusters,
		Short:   "Bring what already runs in clusters under the federation",
		Long: `Bring workloads that already run in member clusters under the federation in
place: no object is created anew, no pod is restarted, and every replica stays
where it is.

Objects of the same kind and name in several clusters become one template. What
differs between the clusters becomes an override, and the policy keeps the
replicas of each cluster.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newAdoptPlan(), newAdoptDiff(), newAdoptApply(), newAdoptRelease(), newAdoptKarmada())
	return cmd
}

// adoptFlags are the flags of all commands.
type adoptFlags struct {
	gatewayFlags
	namespace, selector string
	clusters, resources []string
	parallel            int
}

func (f *adoptFlags) add(cmd *cobra.Command) {
	f.addBasic(cmd)
	cmd.Flags().StringSliceVar(&f.clusters, "clusters", nil, "clusters to look at (default: all)")
}

// addBasic adds the flags that do not choose clusters.
func (f *adoptFlags) addBasic(cmd *cobra.Command) {
	f.gatewayFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the workloads")
	flags.StringVarP(&f.selector, "selector", "l", "", "labels of the workloads, and of nothing else: what belongs to them is found")
	flags.StringSliceVar(&f.resources, "resource", nil, "further kinds, such as rollouts.argoproj.io, or clusterroles, which are cluster-scoped")
}

// addParallel adds the flag of commands that write.
func (f *adoptFlags) addParallel(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.parallel, "parallel", 16, "how many workloads at once")
}

// config returns the client configuration of the gateway.
func (f *adoptFlags) config() (*rest.Config, error) {
	if names.IsReservedNamespace(f.namespace) || f.namespace == "kube-system" {
		return nil, fmt.Errorf("namespace %s belongs to the clusters themselves; nothing in it can be adopted", f.namespace)
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	config, err := f.gatewayFlags.config()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the servers limit the rate
	return config, nil
}

func newAdoptPlan() *cobra.Command {
	var flags adoptFlags
	output := "table"
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what can be adopted, and how",
		Long: `Show what can be adopted in a namespace, and what stands in the way. Nothing is
written.

With -o yaml it prints the manifests of what can be adopted: the namespace, and
for each group its OverridePolicy, its PropagationPolicy and its template. The
policies suspend dispatching: see docs/adoption.md for how to lift it. Secrets
are printed with their values.`,
		Example: `  cellplane adopt plan -n shop
  cellplane adopt plan -n shop --clusters member1,member2 -l app=web -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return planAdoption(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), &flags, output)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", output, "output format: table or yaml")
	return cmd
}

func planAdoption(ctx context.Context, out, warnings io.Writer, flags *adoptFlags, output string) error {
	var printer adoptionPrinter
	switch output {
	case "table":
		printer = newAdoptionTable(out)
	case "yaml":
		printer = &adoptionYAML{out: out, warnings: warnings}
	default:
		return fmt.Errorf("--output must be table or yaml, not %q", output)
	}
	a, err := openAdoption(ctx, flags)
	if err != nil {
		return err
	}
	if err := printer.begin(a); err != nil {
		return err
	}
	if err := a.each(ctx, func(_ adopt.Group, item *adopt.Item) error { return printer.item(item) }); err != nil {
		return err
	}
	if err := a.eachShared(ctx, printer.shared); err != nil {
		return err
	}
	return printer.end()
}

func newAdoptDiff() *cobra.Command {
	var flags adoptFlags
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what the federation would change in clusters, field by field",
		Long: `Show what the federation would change in clusters, field by field. For each
object the result of the federation is written to its cluster as a dry run, and
compared with what is there. Labels and annotations of the federation itself are
left out. If a template exists in the federation already, the result of its
engine is used: for what is managed already, a difference is drift that the
engine has not set back, such as while an entry is open.

The exit code is 2 if anything would change, or cannot be adopted.`,
		Example: `  cellplane adopt diff -n shop`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return diffAdoption(cmd.Context(), cmd.OutOrStdout(), &flags)
		},
	}
	flags.add(cmd)
	return cmd
}

func diffAdoption(ctx context.Context, out io.Writer, flags *adoptFlags) error {
	a, err := openAdoption(ctx, flags)
	if err != nil {
		return err
	}
	clean := true
	err = a.each(ctx, func(group adopt.Group, item *adopt.Item) error {
		lines, same := a.describeRehearsal(ctx, group, item)
		clean = clean && same
		for _, line := range append([]string{item.Key.String()}, lines...) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !clean:
		return exitError{code: 2}
	default:
		return nil
	}
}

func newAdoptApply() *cobra.Command {
	var flags adoptFlags
	timeout := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Adopt what would not change",
		Long: `Adopt each group for which the rehearsal of "adopt diff" changes nothing in any
cluster, several at a time:

1. create its override, its policy with suspended dispatching, and its template;
2. wait until the engine has rendered it for every cluster, and rehearse that;
3. lift the suspension, and wait until the objects are marked.

A group that would change is refused. The command can be interrupted and
repeated. The exit code is 2 if a group was not adopted.`,
		Example: `  cellplane adopt apply -n shop -l app=web`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return applyAdoption(cmd.Context(), cmd.OutOrStdout(), &flags, timeout)
		},
	}
	flags.add(cmd)
	flags.addParallel(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the engine, for each group")
	return cmd
}

func applyAdoption(ctx context.Context, out io.Writer, flags *adoptFlags, timeout time.Duration) error {
	a, err := openAdoption(ctx, flags)
	if err != nil {
		return err
	}
	o := &outcomes{out: out}
	err = flags.inParallel(ctx, func(ctx context.Context, start func(func() error)) error {
		return a.each(ctx, func(group adopt.Group, item *adopt.Item) error {
			if item.Managed {
				return o.print(item.Key, "managed already", nil)
			}
			start(func() error { return o.print(item.Key, "adopted", a.adopt(ctx, group, item, timeout)) })
			return nil
		})
	})
	if err != nil {
		return interrupted(ctx, err, "interrupted; repeat the command to go on")
	}
	return o.result()
}

// unknownCluster returns the first name that is not in a list.
func unknownCluster(given, known []string) (string, bool) {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return name, true
		}
	}
	return "", false
}
