package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/registration"
)

// registerOptions are the flags of the register command.
type registerOptions struct {
	options    registration.Options
	kubeconfig string
	context    string
	validity   int
}

func newRegister() *cobra.Command {
	o := registerOptions{validity: 90 * 24 * 3600}
	o.options.Timeout, o.options.SigningTimeout, o.options.Namespace = 5*time.Minute, 5*time.Minute, names.SystemNamespace
	cmd := &cobra.Command{
		Use:     "register ENDPOINT --token TOKEN --discovery-token-ca-cert-hash HASH",
		GroupID: groupClusters,
		Short:   "Register a cluster in pull mode",
		Long: `Register a cluster in pull mode at the gateway ENDPOINT. Run it with a
kubeconfig of an administrator of the cluster. The gateway is verified by the
hash of its CA and by its signature with the token. The cluster gets a
certificate for its agent, which is written to the Secret karmada-kubeconfig,
and the hub a Cluster.

An administrator of the federation creates the token, and this command, with
` + "`cellplane token create --print-register-command`" + `. Repeat the command if it
was interrupted.`,
		Example: `  cellplane register gateway.example.com:6443 --token abcdef.0123456789abcdef \
    --discovery-token-ca-cert-hash sha256:… --cluster-name member4`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.options.Endpoint = args[0]
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator of the cluster (default: that of kubectl)")
	flags.StringVar(&o.context, "context", "", "context of the cluster in the kubeconfig (default: the current one)")
	flags.StringVar(&o.options.Name, "cluster-name", "", "name of the cluster in the federation (default: its name in the kubeconfig)")
	flags.StringVar(&o.options.Namespace, "namespace", o.options.Namespace, "namespace of the cluster for the Secret of the agent")
	flags.StringVar(&o.options.Token, "token", "", "bootstrap token")
	flags.StringSliceVar(&o.options.CAHashes, "discovery-token-ca-cert-hash", nil, "hash of the public key of the gateway's CA, as sha256:…")
	flags.BoolVar(&o.options.SkipCAVerification, "discovery-token-unsafe-skip-ca-verification", false, "trust the token alone: whoever knows it can then pretend to be the gateway")
	flags.DurationVar(&o.options.Timeout, "discovery-timeout", o.options.Timeout, "how long to try to reach and verify the gateway")
	flags.DurationVar(&o.options.SigningTimeout, "signing-timeout", o.options.SigningTimeout, "how long to wait for the certificate")
	flags.StringVar(&o.options.About.Provider, "cluster-provider", "", "provider of the cluster")
	flags.StringVar(&o.options.About.Region, "cluster-region", "", "region of the cluster")
	flags.StringSliceVar(&o.options.About.Zones, "cluster-zones", nil, "zones of the cluster")
	flags.IntVar(&o.validity, "cert-expiration-seconds", o.validity, "validity of the agent's certificate")
	return cmd
}

func (o *registerOptions) run(ctx context.Context, out io.Writer) (err error) {
	loader := kubeconfigLoader(o.kubeconfig, o.context, "")
	if o.options.Member, err = loader.ClientConfig(); err != nil {
		return fmt.Errorf("reading the kubeconfig of the cluster: %w", err)
	}
	if o.options.Name == "" {
		raw, err := loader.RawConfig()
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of the cluster: %w", err)
		}
		current := raw.CurrentContext
		if o.context != "" {
			current = o.context
		}
		if raw.Contexts[current] == nil {
			return errors.New("--cluster-name is missing")
		}
		o.options.Name = raw.Contexts[current].Cluster
	}
	o.options.Validity = time.Duration(o.validity) * time.Second
	if err := registration.Register(ctx, o.options); err != nil {
		return err
	}
	fmt.Fprintf(out, "Cluster %s is registered. Secret %s/%s has the kubeconfig of its agent.\n", o.options.Name, o.options.Namespace, names.AgentSecret)
	return nil
}

func newUnregister() *cobra.Command {
	var hub hubFlags
	var member memberFlags
	options := registration.UnregisterOptions{Namespace: names.SystemNamespace}
	cmd := &cobra.Command{
		Use:     "unregister CLUSTER",
		GroupID: groupClusters,
		Short:   "Remove a cluster in pull mode from the federation",
		Long: `Remove a cluster in pull mode from the federation: its agent deletes the
propagated objects, then gateways no longer accept the agent.

Use --force for a cluster whose agent no longer runs: nothing is deleted from
it.`,
		Example: `  cellplane unregister member4 --member-kubeconfig member4.kubeconfig
  cellplane unregister member4 --force   # the agent no longer runs`,
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
			if err := registration.Unregister(cmd.Context(), options); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s has left the federation.\n", options.Name)
			return nil
		},
	}
	hub.add(cmd)
	member.add(cmd, ", to delete the Secret of its agent too")
	cmd.Flags().StringVar(&options.Namespace, "namespace", options.Namespace, "namespace of the cluster with the Secret of the agent")
	cmd.Flags().DurationVar(&options.Timeout, "wait", options.Timeout, "how long to wait until the propagated objects are deleted (default 5m)")
	cmd.Flags().BoolVar(&options.Force, "force", false, "remove the cluster at once and leave propagated objects in it")
	return cmd
}
