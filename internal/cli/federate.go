package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/federate"
)

func newFederate() *cobra.Command {
	var file, kubeconfig, kubeContext string
	timeout := 15 * time.Minute
	cmd := &cobra.Command{
		Use:     "federate",
		GroupID: groupParts,
		Short:   "Make control planes on a cluster a federation",
		Long: `Make control planes that run on a cluster a federation: issue their
certificates, install the API, register the cells and grant the parts their
rights. The Helm chart and "cellplane install" run it as a Job.

It can be repeated and interrupted at any time. Certificates are renewed in the
last third of their time. Certificate authorities and the topology are kept.`,
		Example: `  cellplane federate --config federation.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return errors.New("--config is missing")
			}
			config, err := federate.ReadConfig(file)
			if err != nil {
				return err
			}
			own, err := loadKubeconfig(kubeconfig, kubeContext)
			if err != nil {
				return err
			}
			cluster, err := kubernetes.NewForConfig(own)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return federate.Run(ctx, cluster, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "config", "", "file that describes the federation; the chart writes it")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: $KUBECONFIG, or the service account of this pod)")
	flags.StringVar(&kubeContext, "context", "", "context of the kubeconfig to use")
	flags.DurationVar(&timeout, "timeout", timeout, "how long to wait for control planes that do not answer yet")
	return cmd
}
