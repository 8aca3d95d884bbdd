package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/cellcontrolplane"
)

func newClusterAPI() *cobra.Command {
	var config cellcontrolplane.Config
	var release, kubeconfig, kubeContext string
	cmd := &cobra.Command{
		Use:     "cluster-api",
		GroupID: groupParts,
		Short:   "Run the control plane provider for Cluster API",
		Long: `Run the control plane provider for Cluster API, in the cluster on which a
federation is installed: it makes a cell of each Cluster that has a
CellControlPlane, and drains it before it is deleted. The Helm chart and
"cellplane install" run it with clusterAPI.enabled.

Run two or more replicas for availability: one leads, the others stand by.`,
		Example: `  cellplane cluster-api --release release.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if release == "" {
				return errors.New("--release is missing")
			}
			if config.Release, err = cellcontrolplane.ReadRelease(release); err != nil {
				return err
			}
			if config.Cluster, err = loadKubeconfig(kubeconfig, kubeContext); err != nil {
				return err
			}
			return runUntilSignal(cmd.Context(), config.Run)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&release, "release", "", "file that describes the installation; the chart writes it")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: $KUBECONFIG, or the service account of this pod)")
	flags.StringVar(&kubeContext, "context", "", "context of the kubeconfig to use")
	flags.StringVar(&config.HealthAddress, "health-address", "", "address for /healthz and /readyz, for probes of a kubelet, like :8081 (default: none)")
	return cmd
}
