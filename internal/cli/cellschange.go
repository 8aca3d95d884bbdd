package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/local"
)

// cellsChange are the flags of commands that change the topology.
type cellsChange struct {
	hub  hubFlags
	wait bool
}

func (o *cellsChange) add(cmd *cobra.Command) {
	o.hub.add(cmd)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the change is complete")
}

// run edits the topology and waits for the change.
func (o *cellsChange) run(ctx context.Context, out io.Writer, edit cells.Edit) error {
	api, err := o.hub.client()
	if err != nil {
		return err
	}
	if err := editTopology(ctx, api, edit); err != nil {
		return err
	}
	if !o.wait {
		fmt.Fprintln(out, "The change has started; watch it with `cellplane cells watch`.")
		return nil
	}
	return followChange(ctx, api, o.hub.heldRequests(), out)
}

// editTopology edits the topology and retries on conflicts.
func editTopology(ctx context.Context, api client.Client, edit cells.Edit) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		topology, err := readTopology(ctx, api)
		if err != nil {
			return err
		}
		if err := edit(&topology.Spec); err != nil {
			return err
		}
		err = api.Update(ctx, topology)
		if apierrors.IsInvalid(err) {
			return fmt.Errorf("the hub refused the change: %w", err)
		}
		return err
	})
}

func newCellsAdd() *cobra.Command {
	var o cellsChange
	var manifest cellManifest
	var weight int32
	cmd := &cobra.Command{
		Use:   "add CELL",
		Short: "Add a cell and move its share to it",
		Long: `Add a cell to the topology: its share of the objects moves to it from the other
cells, while clients continue. In a federation of "cellplane up" the cell is
started too. Elsewhere give its addresses and credentials, unless the hub
already has a Cell of that name.`,
		Example: `  cellplane cells add cell-c
  cellplane cells add cell-c --cell-kubeconfig front-proxy.kubeconfig --etcd https://etcd-c:2379 --etcd-ca-file etcd-ca.crt \
    --etcd-cert-file etcd.crt --etcd-key-file etcd.key
  cellplane cells add cell-c --weight 2 --server https://cell-c:6443 --ca-file ca.crt --client-cert-file front-proxy.crt \
    --client-key-file front-proxy.key --etcd https://etcd-c:2379 --etcd-ca-file etcd-ca.crt --etcd-cert-file etcd.crt --etcd-key-file etcd.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := o.prepare(cmd.Context(), cmd.OutOrStdout(), name, weight, manifest); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cells.Add(name, weight))
		},
	}
	o.add(cmd)
	manifest.add(cmd)
	cmd.Flags().Int32Var(&weight, "weight", 1, "share of the cell, relative to the weights of the others")
	return cmd
}

// prepare makes sure that the hub has the Cell.
func (o *cellsChange) prepare(ctx context.Context, out io.Writer, name string, weight int32, manifest cellManifest) error {
	api, err := o.hub.client()
	if err != nil {
		return err
	}
	topology, err := readTopology(ctx, api)
	if err != nil {
		return err
	}
	if err := cells.Add(name, weight)(&topology.Spec); err != nil {
		return err // fail before anything is started
	}
	if manifest.given() {
		if err := manifest.apply(ctx, o.hub, name, weight); err != nil {
			return err
		}
		return awaitCell(ctx, api, out, name)
	}
	err = api.Get(ctx, types.NamespacedName{Name: name}, &v1alpha1.Cell{})
	switch {
	case err == nil:
		return awaitCell(ctx, api, out, name)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("looking for the Cell %s: %w", name, err)
	}
	dir, err := federationDir(o.hub.dir)
	if err != nil {
		return err
	}
	if !local.InUse(dir) {
		return fmt.Errorf("the hub has no Cell %s; give its address with --cell-kubeconfig or --server and the related flags, or create the Cell", name)
	}
	supervisor, err := local.NewClient(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Starting %s…\n", name)
	if err := supervisor.AddCell(ctx, name); err != nil {
		return err
	}
	return awaitCell(ctx, api, out, name)
}

// serveWithin bounds the wait for a joining cell. The change itself waits for it, too.
const serveWithin = 2 * time.Minute

// awaitCell waits until a joining cell serves and has the global objects, among them CustomResourceDefinitions. The watch
// cache of a kind starts when the kind is first served: watches continue without a gap if that is before the cell joins.
func awaitCell(ctx context.Context, api client.Client, out io.Writer, name string) error {
	fmt.Fprintf(out, "Waiting until %s serves and has the global objects…\n", name)
	err := wait.PollUntilContextTimeout(ctx, followInterval, serveWithin, true, func(ctx context.Context) (bool, error) {
		var cell v1alpha1.Cell
		if err := api.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellReady) &&
			meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellGlobalsCopied), nil
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted before the change started; %s runs and can be added at any time", name)
	case wait.Interrupted(err):
		return nil // the change reports what it waits for
	default:
		return err
	}
}

func newCellsDrain() *cobra.Command {
	return changeCommand("drain CELL", "Empty a cell and remove it", `Empty a cell: its objects move to the other cells, each to its backup cell,
while clients continue. Then the cell is removed from the topology.`, 1, func(args []string) (cells.Edit, error) { return cells.Drain(args[0]), nil })
}

func newCellsWeight() *cobra.Command {
	return changeCommand("weight CELL WEIGHT", "Change the weight of a cell", "", 2, func(args []string) (cells.Edit, error) {
		weight, err := parseWeight(args[1])
		return cells.Weight(args[0], weight), err
	})
}

func newCellsFailover() *cobra.Command {
	return changeCommand("failover CELL", "Fail over a lost cell", `Declare a cell lost. The tokens of its engine are revoked in every member, and
its share moves to its backup cells. Writes that had not reached the backup are
reported and kept when the cell returns.`, 1, func(args []string) (cells.Edit, error) { return cells.Fail(args[0]), nil })
}

func newCellsRejoin() *cobra.Command {
	var o cellsChange
	cmd := &cobra.Command{
		Use:   "rejoin CELL",
		Short: "Return a failed cell to service",
		Long: `Return a failed cell to service as soon as it serves. A snapshot of its store
is kept, objects that had not reached the backup are reported and kept as
files, and the cell is emptied before it gets its share.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.hub.client()
			if err != nil {
				return err
			}
			topology, err := readTopology(cmd.Context(), api)
			if err != nil {
				return err
			}
			rejoin := cells.Rejoin(args[0])
			if err := rejoin(&topology.Spec); err != nil {
				return err // fail before waiting
			}
			if err := awaitCell(cmd.Context(), api, cmd.OutOrStdout(), args[0]); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), rejoin)
		},
	}
	o.add(cmd)
	return cmd
}

func newCellsAbort() *cobra.Command {
	return changeCommand("abort", "Revert the change in progress", "", 0, func([]string) (cells.Edit, error) { return cells.Reverse, nil })
}

func changeCommand(use, short, long string, args int, edit func([]string) (cells.Edit, error)) *cobra.Command {
	var o cellsChange
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := edit(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), wanted)
		},
	}
	o.add(cmd)
	return cmd
}

func parseWeight(text string) (int32, error) {
	weight, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a weight; use a whole number of at least 1", text)
	}
	return int32(weight), nil
}

func newCellsWatch() *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the progress of the current change",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := hub.client()
			if err != nil {
				return err
			}
			return followChange(cmd.Context(), api, hub.heldRequests(), cmd.OutOrStdout())
		},
	}
	hub.add(cmd)
	return cmd
}

// followInterval is how often the progress of a change is shown.
const followInterval = 250 * time.Millisecond

// followChange shows a change until it is complete. The change continues if this is interrupted.
func followChange(ctx context.Context, api client.Client, held func(context.Context) string, out io.Writer) error {
	progress := newProgress(out)
	defer progress.end()
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	var pace pace
	for {
		topology, err := readTopology(ctx, api)
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted; the change continues, watch it with `cellplane cells watch`")
		case err != nil:
			progress.show("waiting", "the hub cannot be reached: "+err.Error())
		case finished(topology):
			progress.end()
			if change := topology.Status.Change; change != nil && change.Epoch == topology.Generation-1 {
				pace.observe(change, time.Now()) // it may have finished between two polls
			}
			fmt.Fprintf(out, "Done: epoch %d, %s.\n", topology.Generation, pace.summary())
			return nil
		default:
			stage, text := describeChange(topology, &pace, time.Now())
			progress.show(stage, text+held(ctx))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// finished reports whether the current topology needs no more changes.
func finished(topology *v1alpha1.CellTopology) bool {
	return topology.Status.ObservedGeneration == topology.Generation && topology.Status.Phase == v1alpha1.TopologyStable &&
		cells.Running(&topology.Spec) == ""
}
