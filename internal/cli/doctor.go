package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/doctor"
)

func newDoctor() *cobra.Command {
	var hub hubFlags
	var output string
	cmd := &cobra.Command{
		Use:     "doctor",
		GroupID: groupCells,
		Short:   "Examine the federation and say what to do",
		Long: `Examine a running federation: certificates, versions and clocks of API servers,
hub manager and gateways, cells and their backups, alarms and space of etcds,
quotas, clusters and agents, orphaned objects, identities that are left over,
and flow control. Nothing is changed.

Each finding says what to do, and where docs/operations.md says more. The exit
code is 0 if nothing was found, 1 if there are only warnings, and 2 if there are
errors, or if the federation could not be examined.`,
		Example: `  cellplane doctor
  cellplane doctor --kubeconfig hub.kubeconfig -o json`,
		Args: func(cmd *cobra.Command, args []string) error { return notExamined(cmd, cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return notExamined(cmd, fmt.Errorf("there is no output format %q; the only one is json", output))
			}
			report, err := examine(cmd, &hub)
			if err == nil {
				err = printDiagnosis(cmd.OutOrStdout(), output, report)
			}
			switch {
			case err != nil:
				return notExamined(cmd, err)
			case report.Worst() == doctor.Error:
				return exitError{code: 2}
			case report.Worst() == doctor.Warning:
				return exitError{code: 1}
			default:
				return nil
			}
		},
	}
	cmd.SetFlagErrorFunc(notExamined)
	hub.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: a table)")
	return cmd
}

// notExamined prints an error. The exit code 1 would tell of warnings.
func notExamined(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "cellplane:", err)
	return exitError{code: 2}
}

func examine(cmd *cobra.Command, hub *hubFlags) (*doctor.Report, error) {
	config, err := hub.config()
	if err != nil {
		return nil, err
	}
	d, err := doctor.Open(config)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Examine(cmd.Context())
}

func printDiagnosis(out io.Writer, format string, report *doctor.Report) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	if len(report.Findings) == 0 {
		_, err := fmt.Fprintf(out, "Nothing was found by %d checks.\n", len(report.Checks))
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tFINDING\tOBJECT\tMESSAGE")
	var kinds []doctor.Finding
	told := map[doctor.Kind]bool{}
	for _, f := range report.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Severity, f.Kind, f.Object, f.Message)
		if !told[f.Kind] {
			told[f.Kind] = true
			kinds = append(kinds, f)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWhat to do:")
	for _, f := range kinds {
		fmt.Fprintf(out, "* %s: %s See %s.\n", f.Kind, f.Advice, f.Runbook)
	}
	return nil
}
