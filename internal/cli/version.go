package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/kubebin"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of Cellplane and of its local Kubernetes",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "cellplane %s (%s, local Kubernetes %s)\n", version(), runtime.Version(), kubebin.Version())
		},
	}
}

// stamped is the version that the build of an image sets with the linker.
var stamped string

// version returns the stamped version, or the module version that the Go tool stamps.
func version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
