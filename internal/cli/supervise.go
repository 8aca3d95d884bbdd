package cli

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
)

// newSupervise is what up leaves behind.
func newSupervise() *cobra.Command {
	var dir, bin string
	var spec local.Spec
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "Run a local federation in the foreground, silently",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := federationOptions(kubebin.Binaries{Dir: bin})
			if err != nil {
				return err
			}
			return local.Supervise(cmd.Context(), dir, spec, options)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "where the federation lives")
	cmd.Flags().StringVar(&bin, "kube-bin", "", "where the Kubernetes programs are")
	cmd.Flags().IntVar(&spec.Cells, "cells", 0, "how many cells")
	cmd.Flags().IntVar(&spec.Members, "members", 0, "how many member clusters")
	cmd.Flags().IntVar(&spec.Nodes, "nodes", 0, "how many simulated nodes each member has")
	return cmd
}

// federationOptions has this program run the parts of Cellplane too. Simulated pods can be looked into: what is executed in
// one runs on this machine, as its user.
func federationOptions(binaries kubebin.Binaries) (local.Options, error) {
	self, err := os.Executable()
	return local.Options{Binaries: binaries, Parts: parts.Of(self), Streams: true}, err
}

func superviseArgs(dir string, spec local.Spec, binaries kubebin.Binaries) []string {
	return []string{
		"supervise", "--dir", dir, "--kube-bin", binaries.Dir,
		"--cells", strconv.Itoa(spec.Cells), "--members", strconv.Itoa(spec.Members), "--nodes", strconv.Itoa(spec.Nodes),
	}
}
