package cli

import (
	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/hub/manager"
)

func newHubManager() *cobra.Command {
	o := manager.NewOptions()
	cmd := &cobra.Command{
		Use:     "hub-manager",
		GroupID: groupParts,
		Short:   "Run the controllers of the hub",
		Long: `Run the controllers of the hub: they copy namespaces, definitions, policies,
clusters and other global objects into the cells, label policies with their
IDs, collect the status of clusters and install the admission policies of the
API.

Run two or more replicas for availability: one leads, the others stand by. A
replica that loses its lease exits and must be restarted.`,
		Example: `  cellplane hub-manager --kubeconfig hub.kubeconfig`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := completed.Validate(); err != nil {
				return err
			}
			return completed.Config().Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
