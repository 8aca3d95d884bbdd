package cli

import (
	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/clustergateway"
)

func newClusterGateway() *cobra.Command {
	o := clustergateway.NewOptions()
	cmd := &cobra.Command{
		Use:     "cluster-gateway",
		GroupID: groupParts,
		Short:   "Cache the pods of all member clusters for gateways",
		Long: `Cache the pods, events, nodes and replica sets of all member clusters in a
compact form and serve them to gateways, which authorize users.

The cache is rebuilt from the members at start. Run two or more replicas for
availability, each with all clusters or a part of them (--clusters).`,
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
			server, err := clustergateway.New(completed)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
