// Package cli implements the command line of cellplane.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
)

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	defer logs.FlushLogs()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	fmt.Fprintf(os.Stderr, "cellplane: %v\n", err)
	return 1
}

// exitError ends the program with an exit code and no further message.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func newRoot() *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	root := &cobra.Command{
		Use:   "cellplane",
		Short: "Many Kubernetes clusters as one, at any size",
		Long: `Cellplane makes many Kubernetes clusters look like one, beyond the size of a
single control plane.

Start a federation on this machine with "cellplane up", inspect it with
"cellplane status", and use it with "cellplane kubectl".`,
		Example: `  cellplane up                     # start a federation on this machine
  cellplane kubectl get clusters   # use it through the gateway
  cellplane status                 # inspect its processes
  cellplane down                   # stop it`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			cmd.SetContext(klog.NewContext(cmd.Context(), klog.Background()))
			return nil
		},
	}
	logsapi.AddFlags(logging, root.PersistentFlags())
	hideLoggingFlags(root)
	root.AddGroup(
		&cobra.Group{ID: groupLocal, Title: "Local federation:"},
		&cobra.Group{ID: groupClusters, Title: "Clusters and workloads:"},
		&cobra.Group{ID: groupCells, Title: "Cells of the control plane:"},
		&cobra.Group{ID: groupParts, Title: "Parts of a federation:"},
	)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root.AddCommand(
		newUp(), newDown(), newStatus(), newConsole(), newSupervise(), newKubectl(),
		newJoin(), newUnjoin(), newToken(), newRegister(), newUnregister(), newRotate(), newCordon(), newUncordon(), newTaint(), newSchedule(), newInterpret(), newAdopt(), newRollout(), newEntry(),
		newGet(streams), newDescribe(streams), newLogs(streams), newExec(streams), newAttach(streams), newTop(streams), newPromote(),
		newCells(), newDoctor(), newSnapshot(), newRestore(),
		newUser(), newSize(),
		newHubManager(), newEngine(), newGateway(), newClusterGateway(), newAgent(), newFederate(), newClusterAPI(), newInstall(), newUninstall(),
		newVersion(),
	)
	root.SetHelpCommandGroupID("")
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// The groups of commands in the help text.
const (
	groupLocal = "local"
	groupParts = "parts"
)

// hideLoggingFlags hides the logging flags except -v and --logging-format.
func hideLoggingFlags(root *cobra.Command) {
	for _, name := range []string{"log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream", "vmodule"} {
		if flag := root.PersistentFlags().Lookup(name); flag != nil {
			flag.Hidden = true
		}
	}
}

const (
	dirName = ".cellplane"
	dirEnv  = "CELLPLANE_DIR"
)

// addDirFlag adds --dir, the directory of the local federation.
func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory of the local federation (default: $"+dirEnv+", or "+dirName+" in the working directory or a parent)")
}

// federationDir returns the given directory, or $CELLPLANE_DIR, or the nearest .cellplane in the working directory or its
// parents. If there is none, it returns .cellplane in the working directory.
func federationDir(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if dir := os.Getenv(dirEnv); dir != "" {
		return filepath.Abs(dir)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		candidate := filepath.Join(dir, dirName)
		if info, err := os.Stat(candidate); err == nil && info.IsDir() {
			return candidate, nil
		}
		if dir == filepath.Dir(dir) {
			return filepath.Join(here, dirName), nil
		}
	}
}
