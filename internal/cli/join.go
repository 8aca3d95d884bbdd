package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/registration"
)

// joinOptions are the flags of the join command.
type joinOptions struct {
	hub     hubFlags
	member  memberFlags
	options membership.Options
	cells   []string
	labels  string
	agent   bool
	gateway reachFlags
}

// The first certificate of an agent, which renews it, and how long to wait for it.
const (
	agentValidity = 90 * 24 * time.Hour
	agentTimeout  = 5 * time.Minute
)

// memberFlags select an administrator's kubeconfig of a member.
type memberFlags struct {
	kubeconfig string
	context    string
}

func (f *memberFlags) add(cmd *cobra.Command, purpose string) {
	cmd.Flags().StringVar(&f.kubeconfig, "member-kubeconfig", "", "kubeconfig of an administrator of the cluster"+purpose)
	cmd.Flags().StringVar(&f.context, "member-context", "", "context of the cluster in the member kubeconfig")
}

func newJoin() *cobra.Command {
	o := joinOptions{}
	cmd := &cobra.Command{
		Use:     "join CLUSTER --member-kubeconfig FILE",
		GroupID: groupClusters,
		Short:   "Add a cluster to the federation",
		Long: `Add a cluster to the federation under the given name. In the cluster, each cell
gets a service account of its own with a role and a token, which can be rotated
and revoked separately. The administrator's kubeconfig is not stored.

With --agent the cluster also gets credentials for an agent that reports what
its workloads use, and its Cluster the label cellplane.io/agent=metrics, by
which a policy places the agent there.

Repeat the command to repair the registration or to change its settings.`,
		Example: `  cellplane join member4 --member-kubeconfig ~/.kube/config --member-context prod-4 --region north
  cellplane kubectl --context hub get cluster member4`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.options.Name = args[0]
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.hub.add(cmd)
	o.member.add(cmd, "")
	flags := cmd.Flags()
	flags.StringSliceVar(&o.cells, "cells", nil, "cells that get a service account in the cluster (default: all)")
	flags.StringVar(&o.options.Provider, "provider", "", "provider of the cluster")
	flags.StringVar(&o.options.Region, "region", "", "region of the cluster")
	flags.StringSliceVar(&o.options.Zones, "zone", nil, "zones of the cluster")
	flags.StringVar(&o.labels, "labels", "", "labels of the cluster, as a=b,c=d")
	flags.BoolVar(&o.agent, "agent", false, "give the cluster credentials for an agent that reports metrics of workloads")
	o.gateway.add(cmd)
	flags.StringVar(&o.options.APIEndpoint, "api-endpoint", "", "URL at which the federation reaches the cluster (default: that of the kubeconfig)")
	flags.StringVar(&o.options.ProxyURL, "proxy-url", "", "proxy through which the federation reaches the cluster (default: that of the kubeconfig)")
	flags.StringToStringVar(&o.options.ProxyHeader, "proxy-header", nil, "headers for the proxy, as name=value")
	return cmd
}

func (o *joinOptions) run(ctx context.Context, out io.Writer) (err error) {
	if o.member.kubeconfig == "" {
		return errors.New("--member-kubeconfig is missing: give a kubeconfig of an administrator of the cluster")
	}
	if o.options.Member, err = loadKubeconfig(o.member.kubeconfig, o.member.context); err != nil {
		return fmt.Errorf("reading %s: %w", o.member.kubeconfig, err)
	}
	if o.options.Hub, err = o.hub.config(); err != nil {
		return err
	}
	if o.labels != "" {
		if o.options.Labels, err = labels.ConvertSelectorToLabelsMap(o.labels); err != nil {
			return fmt.Errorf("reading --labels: %w", err)
		}
	}
	if o.agent {
		if o.options.Labels == nil {
			o.options.Labels = map[string]string{}
		}
		o.options.Labels[names.AgentLabel] = names.AgentMetrics
	}
	o.options.Cells = o.cells
	cluster, err := membership.Join(ctx, o.options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Cluster %s (%s) has joined the federation.\n", cluster.Name, cluster.Spec.APIEndpoint)
	if !o.agent {
		return nil
	}
	return o.giveCredentials(ctx, out)
}

// giveCredentials gives the agent of the cluster its credentials.
func (o *joinOptions) giveCredentials(ctx context.Context, out io.Writer) error {
	hub, err := o.hub.kubernetes()
	if err != nil {
		return err
	}
	if _, err := o.gateway.publish(ctx, &o.hub, hub); err != nil {
		return err
	}
	if err := registration.Issue(ctx, hub, registration.Options{
		Discovery: registration.Discovery{Timeout: agentTimeout}, Member: o.options.Member, Name: o.options.Name, Validity: agentValidity, SigningTimeout: agentTimeout,
	}); err != nil {
		return err
	}
	fmt.Fprintf(out, "Its agent has credentials, in Secret %s/%s of the cluster.\n", names.SystemNamespace, names.AgentSecret)
	return nil
}

func newRotate() *cobra.Command {
	var hub hubFlags
	var cells []string
	grace := time.Minute
	cmd := &cobra.Command{
		Use:     "rotate CLUSTER",
		GroupID: groupClusters,
		Short:   "Rotate the tokens of the federation in a cluster",
		Long: `Rotate the tokens that the federation uses in a cluster. The old tokens stay
valid for the grace period, until all parts use the new ones; then they are
deleted. No administrator's kubeconfig of the cluster is needed.`,
		Example: `  cellplane rotate member4
  cellplane rotate member4 --cells cell-a --grace 5m`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := hub.config()
			if err != nil {
				return err
			}
			if err := membership.Rotate(cmd.Context(), membership.RotateOptions{Hub: config, Cluster: args[0], Cells: cells, Grace: grace}); err != nil {
				return err
			}
			what := "all tokens"
			if len(cells) > 0 {
				what = "the tokens of " + strings.Join(cells, ", ")
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Rotated %s in cluster %s; the old ones are no longer valid.\n", what, args[0])
			return nil
		},
	}
	hub.add(cmd)
	cmd.Flags().StringSliceVar(&cells, "cells", nil, "cells whose tokens are rotated (default: all)")
	cmd.Flags().DurationVar(&grace, "grace", grace, "how long the old tokens stay valid")
	return cmd
}
