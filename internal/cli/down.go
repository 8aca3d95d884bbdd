package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/local"
)

func newDown() *cobra.Command {
	var dir string
	var purge bool
	cmd := &cobra.Command{
		Use:     "down",
		GroupID: groupLocal,
		Short:   "Stop the local federation",
		Long: `Stop all processes of the local federation. Its state stays, and "cellplane up"
resumes it. With --purge the state is deleted too.`,
		Example: `  cellplane down           # stop; "cellplane up" resumes
  cellplane down --purge   # stop and delete everything`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := federationDir(dir)
			if err != nil {
				return err
			}
			return down(cmd.Context(), cmd.OutOrStdout(), dir, purge)
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete data, logs, certificates and chosen ports")
	return cmd
}

func down(ctx context.Context, out io.Writer, dir string, purge bool) error {
	running := local.InUse(dir)
	if running {
		if err := stopFederation(ctx, dir); err != nil {
			return err
		}
	}
	_, statErr := os.Stat(dir)
	switch {
	case purge && statErr == nil:
		if err := local.Purge(dir); err != nil {
			return err
		}
		fmt.Fprintln(out, "The federation is stopped and deleted.")
	case running:
		fmt.Fprintln(out, "The federation is stopped; `cellplane up` resumes it.")
	default:
		fmt.Fprintln(out, "The federation was not up.")
	}
	return nil
}

// stopFederation stops the supervisor of a federation and all its processes.
func stopFederation(ctx context.Context, dir string) error {
	client, err := local.NewClient(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return client.Stop(ctx)
}
