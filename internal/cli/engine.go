package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/engine"
)

func newEngine() *cobra.Command {
	o := engine.NewOptions()
	cmd := &cobra.Command{
		Use:     "engine",
		GroupID: groupParts,
		Short:   "Run the federation controllers of one cell",
		Long: `Run the federation controllers of one cell: they propagate the templates in
the cell to the member clusters that policies choose, and report their status.

Run two or more with --leader-elect: one leads, the others stand by with warm
caches and take over within seconds.`,
		Example: `  cellplane engine --cell cell-a --kubeconfig cell-a.kubeconfig --leader-elect
  cellplane engine --cell hub --hub --kubeconfig hub.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLoopback(o.MetricsAddress); err != nil {
				return err
			}
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := completed.Validate(); err != nil {
				return err
			}
			return runUntilSignal(cmd.Context(), engine.NewConfig(completed).Run)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

// checkLoopback refuses an address that others could reach: what is served there is not protected.
func checkLoopback(address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--metrics-address %s is not a loopback address; what is served there is not protected", address)
	}
	return nil
}

// runUntilSignal runs a component of a federation. A signal to stop is not an error.
func runUntilSignal(ctx context.Context, run func(context.Context) error) error {
	if err := run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
