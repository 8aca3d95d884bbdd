package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
)

// newSupervise returns the background process that up starts.
func newSupervise() *cobra.Command {
	var dir, bin, config string
	var spec local.Spec
	var metricsServer bool
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "Run a local federation in the foreground",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := federationOptions(kubebin.Binaries{Dir: bin})
			if err != nil {
				return err
			}
			if options.Settings, err = readSettings(config); err != nil {
				return err
			}
			if cmd.Flags().Changed(metricsServerFlag) {
				options.Adjust = func(s *local.Settings) { s.MetricsServer = &metricsServer }
			}
			return local.Supervise(cmd.Context(), dir, spec, options)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the federation")
	cmd.Flags().StringVar(&bin, "kube-bin", "", "directory of the Kubernetes programs")
	cmd.Flags().StringVar(&config, "config", "", "configuration file with settings of the parts")
	cmd.Flags().IntVar(&spec.Cells, "cells", 0, "number of cells")
	cmd.Flags().IntVar(&spec.Members, "members", 0, "number of member clusters")
	cmd.Flags().IntVar(&spec.Nodes, "nodes", 0, "number of simulated nodes in each member")
	cmd.Flags().IntVar(&spec.Pull, "pull", 0, "number of members in pull mode")
	cmd.Flags().BoolVar(&metricsServer, metricsServerFlag, true, "run metrics-server in members")
	return cmd
}

// federationOptions makes this program run the parts of Cellplane. With Streams, commands that are executed in simulated
// pods run on this machine, as its user.
func federationOptions(binaries kubebin.Binaries) (local.Options, error) {
	self, err := os.Executable()
	return local.Options{Binaries: binaries, Parts: parts.Of(self), Streams: true, MetricsAgents: true, MetricsServer: true}, err
}

// readSettings returns the settings in a configuration file. Without a file they are nil.
func readSettings(file string) (*local.Settings, error) {
	if file == "" {
		return nil, nil
	}
	config, err := local.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	return &config.Settings, nil
}

func (o *upOptions) superviseArgs(binaries kubebin.Binaries) []string {
	args := []string{
		"supervise", "--dir", o.dir, "--config", o.config, "--kube-bin", binaries.Dir,
		"--cells", strconv.Itoa(o.spec.Cells), "--members", strconv.Itoa(o.spec.Members), "--nodes", strconv.Itoa(o.spec.Nodes), "--pull", strconv.Itoa(o.spec.Pull),
	}
	if o.metricsServer != nil {
		args = append(args, fmt.Sprintf("--%s=%t", metricsServerFlag, *o.metricsServer))
	}
	return args
}
