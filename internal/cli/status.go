package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
)

func newStatus() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:     "status",
		GroupID: groupLocal,
		Short:   "Show the processes of the local federation",
		Long: `Show the processes of the local federation: whether each is healthy, how often
it was restarted, and how much memory and CPU time it uses. The exit code is 0
only if all are healthy.`,
		Example: `  cellplane status
  cellplane status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := federationDir(dir)
			if err != nil {
				return err
			}
			report, err := reportOf(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if err := printReport(cmd.OutOrStdout(), report, output); err != nil {
				return err
			}
			if !healthy(report) {
				return exitError{code: 1}
			}
			return nil
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: a table)")
	return cmd
}

func reportOf(ctx context.Context, dir string) (local.Report, error) {
	if !local.InUse(dir) {
		return local.Report{}, fmt.Errorf("the federation in %s is not up; start it with `cellplane up`", dir)
	}
	client, err := local.NewClient(dir)
	if err != nil {
		return local.Report{}, err
	}
	return client.ReportWithProcesses(ctx)
}

func healthy(report local.Report) bool {
	for _, p := range report.Processes {
		if !p.Healthy {
			return false
		}
	}
	return report.Phase == local.PhaseReady
}

func printReport(out io.Writer, report local.Report, format string) error {
	switch format {
	case "":
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	default:
		return fmt.Errorf("there is no output format %q; the only one is json", format)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tHEALTH\tPID\tRESTARTS\tUPTIME\tRSS\tCPU\tMESSAGE")
	var rss int64
	var cpu time.Duration
	for _, p := range report.Processes {
		rss, cpu = rss+p.RSS, cpu+p.CPU
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", p.Name, health(p), p.PID, p.Restarts, p.Uptime, mebibytes(p.RSS), seconds(p.CPU), p.Message)
	}
	fmt.Fprintf(w, "%d processes\t%s\t\t\t%s\t%s\t%s\t%s\n", len(report.Processes), report.Phase, time.Since(report.Started).Round(time.Second), mebibytes(rss), seconds(cpu), report.Error)
	if err := w.Flush(); err != nil || report.Note == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "Note: %s.\n", report.Note)
	return err
}

func health(p process.Status) string {
	switch {
	case p.Healthy:
		return "healthy"
	case p.State == process.StateRunning:
		return "unhealthy"
	default:
		return p.State
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
