package cli

import (
	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/gateway"
)

func newGateway() *cobra.Command {
	o := gateway.NewOptions()
	cmd := &cobra.Command{
		Use:     "gateway",
		GroupID: groupParts,
		Short:   "Serve one Kubernetes API over all cells",
		Long: `Serve one Kubernetes API over the hub and all cells. Clients use it like any
API server: kubectl, client-go and controller-runtime need no change.

Gateways are stateless: run any number of them behind a TCP load balancer.`,
		Example: `  cellplane gateway --hub-kubeconfig gateway.kubeconfig --client-ca-file ca.crt \
    --hub-proxy-client-cert-file front-proxy.crt --hub-proxy-client-key-file front-proxy.key \
    --tls-cert-file gateway.crt --tls-private-key-file gateway.key --cluster-gateway https://cluster-gateway:8443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := completed.Validate(); err != nil {
				return err
			}
			config, err := gateway.NewConfig(completed)
			if err != nil {
				return err
			}
			server, err := config.NewServer()
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
