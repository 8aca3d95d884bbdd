package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/membership"
)

func newUnjoin() *cobra.Command {
	var hub hubFlags
	var member memberFlags
	var options membership.UnjoinOptions
	cmd := &cobra.Command{
		Use:     "unjoin CLUSTER",
		GroupID: groupClusters,
		Short:   "Remove a cluster from the federation",
		Long: `Remove a cluster from the federation: propagated objects are deleted from it,
then the service accounts of the federation.

Use --force for a cluster that no longer exists: nothing is deleted from it.`,
		Example: `  cellplane unjoin member4
  cellplane unjoin member4 --force   # the cluster no longer exists`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			options.Name = args[0]
			if options.Hub, err = hub.config(); err != nil {
				return err
			}
			if member.kubeconfig != "" {
				if options.Member, err = loadKubeconfig(member.kubeconfig, member.context); err != nil {
					return fmt.Errorf("reading %s: %w", member.kubeconfig, err)
				}
			}
			if err := membership.Unjoin(cmd.Context(), options); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s has left the federation.\n", options.Name)
			return nil
		},
	}
	hub.add(cmd)
	member.add(cmd, ", to delete the namespace of the service accounts too")
	cmd.Flags().DurationVar(&options.Timeout, "wait", options.Timeout, "how long to wait until the propagated objects are deleted (default 5m)")
	cmd.Flags().BoolVar(&options.Force, "force", false, "remove the cluster at once and leave propagated objects in it")
	return cmd
}
