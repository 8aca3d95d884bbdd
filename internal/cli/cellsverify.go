package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellcheck"
	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore"
)

func newCellsVerify() *cobra.Command {
	var hub hubFlags
	settle := 10 * time.Second
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare all cells and their backups with the topology",
		Long: `Read the stores of all cells and report each federated object that is in a
wrong cell, in two cells, or whose backup is missing or differs. It can run at
any time: objects that are moving are checked again. The exit code is 0 only if
there are no problems. Of cells that encrypt what they store it also counts what
is under another key than the first: do not remove a key before that is nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := verifyCells(cmd.Context(), hub, settle)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, finding := range report.Findings {
				fmt.Fprintln(out, finding)
			}
			fmt.Fprintf(out, "%d objects, %d backups, %d left behind by moves, %d problems\n", report.Objects, report.Copies, report.StaleCopies, len(report.Findings))
			if report.Outdated > 0 {
				fmt.Fprintf(out, "%d values are not encrypted with the first key of their Secret\n", report.Outdated)
			}
			if len(report.Findings) > 0 {
				return exitError{code: 1}
			}
			return nil
		},
	}
	hub.add(cmd)
	cmd.Flags().DurationVar(&settle, "settle", settle, "how long a problem must last to be reported")
	return cmd
}

func verifyCells(ctx context.Context, hub hubFlags, settle time.Duration) (cellcheck.Report, error) {
	api, err := hub.client()
	if err != nil {
		return cellcheck.Report{}, err
	}
	topology, err := readTopology(ctx, api)
	if err != nil {
		return cellcheck.Report{}, err
	}
	compiled, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		return cellcheck.Report{}, err
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // it logs closed connections
	stores := map[string]*cellstore.Store{}
	pool := &cellconn.Pool{Hub: api, Secrets: api}
	defer pool.Close()
	for _, listed := range topology.Spec.Cells {
		if listed.State == v1alpha1.CellStateFailed {
			continue
		}
		if stores[listed.Name], err = pool.Store(ctx, listed.Name); err != nil {
			return cellcheck.Report{}, fmt.Errorf("reaching the store of cell %s: %w", listed.Name, err)
		}
	}
	report, err := cellcheck.Check(ctx, compiled, stores, settle)
	if errors.Is(err, context.DeadlineExceeded) {
		return report, errors.New("a store does not answer; see `cellplane cells list`")
	}
	return report, err
}
