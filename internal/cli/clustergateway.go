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
		Long: `Keep the pods, events, nodes and replica sets of all member clusters in little
memory, and serve them to gateways, which show them to everybody who may see
them.

It keeps nothing that members do not have. Run two or more for availability,
each with all clusters or with a share of them (--clusters).`,
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
