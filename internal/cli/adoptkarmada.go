package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/internal/karmada"
)

func newAdoptKarmada() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "karmada",
		Short: "Take the workloads of a Karmada control plane over, in place",
		Long: `Take the workloads of a Karmada control plane over in place: templates,
policies and overrides are copied, every replica stays where Karmada has
scheduled it, and no pod is restarted. See docs/karmada.md for the way from
the first rehearsal to switching Karmada off.

The clusters have to be joined under the names that they have in Karmada.
Nothing is ever dispatched by both: Karmada's dispatching of a workload is
suspended, and confirmed by Karmada, before the federation writes. Until
Karmada is switched off, "adopt karmada undo" gives workloads back.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newKarmadaPlan(), newKarmadaDiff(), newKarmadaApply(), newKarmadaUndo())
	return cmd
}

// karmadaFlags are the flags of all commands.
type karmadaFlags struct {
	adoptFlags
	karmadaKubeconfig, karmadaContext string
	clusterPolicies, suspendOthers    bool
	timeout                           time.Duration
}

func (f *karmadaFlags) add(cmd *cobra.Command) {
	f.gatewayFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.karmadaKubeconfig, "karmada-kubeconfig", "", "kubeconfig of Karmada's control plane")
	flags.StringVar(&f.karmadaContext, "karmada-context", "", "context in Karmada's kubeconfig")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the workloads")
	flags.StringVarP(&f.selector, "selector", "l", "", "labels of the templates")
}

func (f *karmadaFlags) addClusterPolicies(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.clusterPolicies, "cluster-policies", false, "create missing ClusterPropagationPolicies and ClusterOverridePolicies in the federation, too")
}

func (f *karmadaFlags) addWaiting(cmd *cobra.Command) {
	f.addParallel(cmd)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait for Karmada and the engine, for each workload")
}

// takeover is an adoption from Karmada.
type takeover struct {
	*adoption
	flags   *karmadaFlags
	karmada *karmada.ControlPlane
	chosen  []*karmada.Workload
}

// open reads both control planes. Args are KIND/NAME of the workloads, none for all.
func (f *karmadaFlags) open(ctx context.Context, args []string) (*takeover, error) {
	if f.karmadaKubeconfig == "" {
		return nil, errors.New("--karmada-kubeconfig is missing: give the kubeconfig of Karmada's control plane")
	}
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	config, err := loadKubeconfig(f.karmadaKubeconfig, f.karmadaContext)
	if err != nil {
		return nil, fmt.Errorf("--karmada-kubeconfig: %w", err)
	}
	config.QPS = -1
	plane := &karmada.ControlPlane{}
	if plane.Client, err = newClient(config); err != nil {
		return nil, fmt.Errorf("karmada: %w", err)
	}
	if plane.Objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("karmada: %w", err)
	}
	a, err := openAdoption(ctx, &f.adoptFlags)
	if err != nil {
		return nil, err
	}
	t := &takeover{adoption: a, flags: f, karmada: plane}
	all, err := plane.Read(ctx, f.namespace)
	if err != nil {
		return nil, err
	}
	wanted := slices.Clone(args)
	for _, w := range all {
		name := w.Template.GetKind() + "/" + w.Template.GetName()
		i := slices.IndexFunc(wanted, func(arg string) bool { return strings.EqualFold(arg, name) })
		if i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
		} else if len(args) > 0 {
			continue
		}
		if selector.Matches(labels.Set(w.Template.GetLabels())) {
			t.chosen = append(t.chosen, w)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("karmada does not place %q in namespace %s; workloads are named as KIND/NAME, like Deployment/web", wanted[0], f.namespace)
	}
	return t, nil
}

func newKarmadaPlan() *cobra.Command {
	var flags karmadaFlags
	cmd := &cobra.Command{
		Use:   "plan [KIND/NAME ...]",
		Short: "Show what Karmada has in a namespace, and what stands in the way",
		Long: `Show the workloads that Karmada places in a namespace, who dispatches them
now, and what stands in the way of taking them over. Nothing is written.`,
		Example: `  cellplane adopt karmada plan --karmada-kubeconfig karmada.config -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := flags.open(cmd.Context(), args)
			if err != nil {
				return err
			}
			return t.print(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags.add(cmd)
	flags.addClusterPolicies(cmd)
	return cmd
}

func (t *takeover) print(ctx context.Context, out io.Writer) error {
	table := printer{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	table.line("WORKLOAD\tPOLICY\tCLUSTERS\tDISPATCHED BY\tIN THE WAY")
	for _, w := range t.chosen {
		m, err := t.examine(ctx, w)
		if err != nil {
			return err
		}
		policy := "-"
		if w.Policy != nil {
			policy = w.Policy.GetName()
		}
		table.line("%s\t%s\t%s\t%s\t%s", w, policy, orNone(describePlaced(w.Targets())), m.state, orNone(strings.Join(m.obstacles, "; ")))
	}
	table.table()
	return table.err
}

func newKarmadaDiff() *cobra.Command {
	var flags karmadaFlags
	cmd := &cobra.Command{
		Use:   "diff [KIND/NAME ...]",
		Short: "Show what taking over would change in clusters, field by field",
		Long: `Show what the federation would change in clusters, field by field: what it
renders from Karmada's templates, policies, overrides and schedule results is
written to each cluster as a dry run. Nothing is written.

The exit code is 2 if anything would change, or cannot be taken over.`,
		Example: `  cellplane adopt karmada diff --karmada-kubeconfig karmada.config -n shop Deployment/web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := flags.open(cmd.Context(), args)
			if err != nil {
				return err
			}
			return t.diff(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags.add(cmd)
	flags.addClusterPolicies(cmd)
	return cmd
}

func (t *takeover) diff(ctx context.Context, out io.Writer) error {
	table, same := printer{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}, true
	for _, w := range t.chosen {
		m, err := t.examine(ctx, w)
		if err != nil {
			return err
		}
		table.line("%s", w)
		switch {
		case m.state == dispatchedByUs:
			table.line("  taken over already")
		case len(m.obstacles) > 0:
			same = false
			for _, obstacle := range m.obstacles {
				table.line("  cannot be taken over: %s", obstacle)
			}
		default:
			rehearsals := t.rehearseMove(ctx, m, m.rendered)
			same = same && clean(rehearsals)
			for _, line := range describeRehearsals(m.key, rehearsals) {
				table.line("%s", line)
			}
		}
	}
	table.table()
	switch {
	case table.err != nil:
		return table.err
	case !same:
		return exitError{code: 2}
	default:
		return nil
	}
}

func newKarmadaApply() *cobra.Command {
	var flags karmadaFlags
	cmd := &cobra.Command{
		Use:   "apply [KIND/NAME ...]",
		Short: "Take workloads over from Karmada",
		Long: `Take each workload over for which the rehearsal of "adopt karmada diff"
changes nothing in any cluster, several at a time:

1. suspend Karmada's dispatching in its policy and binding, together with
   preserveResourcesOnDeletion, wait until Karmada has confirmed it, and
   rehearse again;
2. create overrides, policy and template in the federation, the template with
   cellplane.io/suspend-dispatching, and give its binding Karmada's clusters;
3. rehearse what the engine has rendered, and let the engine write.

A policy of Karmada is suspended as a whole. If it places workloads that are
not taken over, --suspend-others is needed; they go on running, but changes of
them are not dispatched before they are taken over, or all are given back.

The command can be interrupted and repeated. The exit code is 2 if a workload
was not taken over.`,
		Example: `  cellplane adopt karmada apply --karmada-kubeconfig karmada.config -n shop
  cellplane adopt karmada apply --karmada-kubeconfig karmada.config -n shop Deployment/web ConfigMap/settings`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := flags.open(cmd.Context(), args)
			if err != nil {
				return err
			}
			return t.each(cmd.Context(), cmd.OutOrStdout(), t.chosen, "taken over", t.take)
		},
	}
	flags.add(cmd)
	flags.addClusterPolicies(cmd)
	flags.addWaiting(cmd)
	cmd.Flags().BoolVar(&flags.suspendOthers, "suspend-others", false, "suspend policies also if they place workloads that are not taken over")
	return cmd
}

func newKarmadaUndo() *cobra.Command {
	var flags karmadaFlags
	revert := false
	cmd := &cobra.Command{
		Use:   "undo [KIND/NAME ...]",
		Short: "Give workloads back to Karmada",
		Long: `Give workloads back to Karmada: the federation releases them, the labels and
annotations of Karmada are set again in the clusters, and Karmada's
dispatching is resumed.

What was changed through the federation meanwhile has to be changed in
Karmada's templates, too, which is safe while dispatching is suspended. A
workload that Karmada would change, create or leave in a cluster is refused,
unless --revert is given.

The command can be interrupted and repeated. The exit code is 2 if a workload
was not given back.`,
		Example: `  cellplane adopt karmada undo --karmada-kubeconfig karmada.config -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := flags.open(cmd.Context(), args)
			if err != nil {
				return err
			}
			back := slices.DeleteFunc(slices.Clone(t.chosen), func(w *karmada.Workload) bool { return !karmada.Changed(w) })
			slices.Reverse(back) // dependencies first
			return t.each(cmd.Context(), cmd.OutOrStdout(), back, "given back", func(ctx context.Context, w *karmada.Workload) (string, error) {
				return t.giveBack(ctx, w, revert)
			})
		},
	}
	flags.add(cmd)
	flags.addWaiting(cmd)
	cmd.Flags().BoolVar(&revert, "revert", false, "give workloads back also if Karmada changes them then")
	return cmd
}

// each handles workloads in parallel: those with a policy, and those that follow them, apart.
func (t *takeover) each(ctx context.Context, out io.Writer, workloads []*karmada.Workload, done string, handle func(context.Context, *karmada.Workload) (string, error)) error {
	o := &outcomes{out: out}
	for len(workloads) > 0 {
		phase := slices.IndexFunc(workloads, func(w *karmada.Workload) bool { return (w.Policy == nil) != (workloads[0].Policy == nil) })
		if phase < 0 {
			phase = len(workloads)
		}
		if err := t.flags.inParallel(ctx, func(ctx context.Context, start func(func() error)) error {
			for _, w := range workloads[:phase] {
				start(func() error {
					ctx, cancel := context.WithTimeout(ctx, t.flags.timeout)
					defer cancel()
					outcome, err := handle(ctx, w)
					if err != nil || outcome == "" {
						outcome = done
					}
					return o.print(keyOf(w), outcome, err)
				})
			}
			return nil
		}); err != nil {
			return err
		}
		workloads = workloads[phase:]
	}
	return o.result()
}
