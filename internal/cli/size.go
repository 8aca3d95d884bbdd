package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/size"
)

func newSize() *cobra.Command {
	in, output, explain := size.Defaults, "table", false
	cmd := &cobra.Command{
		Use:   "size --nodes N --services N --pods N --clusters N --changes-per-day N",
		Short: "Compute the cells, replicas, processors, memory and storage of a federation",
		Long: `Compute what a federation of a given size needs: the number of cells, and the
replicas, cores, memory and storage of each part. The costs were measured with
"make bench-..."; docs/sizing.md explains them. Nothing is read or changed.`,
		Example: `  cellplane size --nodes 210000 --services 100000 --pods 10000000 --clusters 500 --changes-per-day 30000
  cellplane size --nodes 500 --services 200 --pods 4000 --clusters 5 --changes-per-day 50 --explain`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"table", "json", "yaml"}, output) {
				return fmt.Errorf("--output must be table, json or yaml, not %q", output)
			}
			for _, flag := range []string{"nodes", "services", "pods", "clusters", "changes-per-day"} {
				if !cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s is missing: the size depends on --nodes, --services, --pods, --clusters and --changes-per-day", flag)
				}
			}
			// A service in a small federation cannot be in more clusters than there are.
			if !cmd.Flags().Changed("clusters-per-service") && in.Clusters > 0 {
				in.ClustersPerService = min(in.ClustersPerService, in.Clusters)
			}
			plan, err := size.New(in, size.MeasuredCosts())
			if err != nil {
				return err
			}
			return plan.Print(cmd.OutOrStdout(), output, explain)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&in.Nodes, "nodes", 0, "nodes of all clusters")
	flags.IntVar(&in.Services, "services", 0, "services in the federation")
	flags.IntVar(&in.Pods, "pods", 0, "pods of all clusters")
	flags.IntVar(&in.Clusters, "clusters", 0, "member clusters")
	flags.IntVar(&in.ChangesPerDay, "changes-per-day", 0, "changes of services per day, such as new images")
	flags.IntVar(&in.TemplatesPerService, "templates-per-service", in.TemplatesPerService, "objects of a service that policies propagate, such as a Deployment and a Service")
	flags.IntVar(&in.ClustersPerService, "clusters-per-service", in.ClustersPerService, "clusters in which a service runs")
	flags.IntVar(&in.RequestsPerSecond, "requests-per-second", in.RequestsPerSecond, "requests of clients per second at the peak, besides changes (default: 5 per 1000 services)")
	flags.StringVarP(&output, "output", "o", output, "output format: table, json or yaml")
	flags.BoolVar(&explain, "explain", false, "show the reason of each figure")
	return cmd
}
