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
		Short:   "Let a cluster go from the federation",
		Long: `Let a cluster go from the federation: what was propagated there is taken back,
then the identities of the federation are removed from it.

A cluster that is gone for good cannot be asked to give anything back; --force
forgets it.`,
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
	member.add(cmd, ", to remove the namespace of the identities too")
	cmd.Flags().DurationVar(&options.Patience, "wait", options.Patience, "how long to wait until the cluster holds nothing of the federation any more (default 5m)")
	cmd.Flags().BoolVar(&options.Force, "force", false, "forget the cluster at once, whatever it may still hold")
	return cmd
}
