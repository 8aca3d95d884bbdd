package cli

import (
	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/agent"
)

func newAgent() *cobra.Command {
	o := agent.NewOptions()
	cmd := &cobra.Command{
		Use:     "agent",
		GroupID: groupParts,
		Short:   "Run the agent of a member cluster",
		Long: `Run the agent of a member cluster that the federation cannot reach, such as one
behind NAT. It runs in the cluster, and connects to a gateway: it applies what
the federation places on the cluster, and reports the status of that and of the
cluster. The Cluster must have syncMode Pull: "cellplane register" creates it,
and leaves credentials in the cluster, which the agent uses and renews.

With --metrics-only it reports what the workloads of a cluster in push mode use,
for autoscalers of the federation, and does nothing else.

Run two or more with --leader-elect: one leads, the others stand by with warm
caches and take over within seconds.`,
		Example: `  cellplane agent --leader-elect   # in a pod of a cluster that has registered
  cellplane agent --cluster-name m1 --kubeconfig gateway.kubeconfig --member-kubeconfig m1.kubeconfig
  cellplane agent --metrics-only --cluster-name m2 --kubeconfig gateway.kubeconfig --member-kubeconfig m2.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLoopback(o.MetricsAddress); err != nil {
				return err
			}
			config, err := o.Complete(cmd.Context())
			if err != nil {
				return err
			}
			return runUntilSignal(cmd.Context(), config.Run)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
