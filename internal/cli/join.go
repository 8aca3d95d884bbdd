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

	"github.com/cellplane/cellplane/internal/membership"
)

// joinOptions are the flags of join.
type joinOptions struct {
	hub     hubFlags
	member  memberFlags
	options membership.Options
	cells   []string
	labels  string
}

// memberFlags say how an administrator gets into a member.
type memberFlags struct {
	kubeconfig string
	context    string
}

func (f *memberFlags) add(cmd *cobra.Command, purpose string) {
	cmd.Flags().StringVar(&f.kubeconfig, "member-kubeconfig", "", "kubeconfig of an administrator of the cluster"+purpose)
	cmd.Flags().StringVar(&f.context, "member-context", "", "context of the cluster in that kubeconfig")
}

func newJoin() *cobra.Command {
	o := joinOptions{}
	cmd := &cobra.Command{
		Use:     "join CLUSTER --member-kubeconfig FILE",
		GroupID: groupClusters,
		Short:   "Take a cluster into the federation",
		Long: `Take a cluster into the federation, under the given name. In the cluster, each
cell gets an identity of its own with a role and a token, which can be replaced
and revoked one by one. The administrator's kubeconfig is used now and kept
nowhere.

Repeat the command to repair what was damaged or to change what you said.`,
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
	flags.StringSliceVar(&o.cells, "cells", nil, "cells that get an identity in the cluster (default: all)")
	flags.StringVar(&o.options.Provider, "provider", "", "who runs the cluster")
	flags.StringVar(&o.options.Region, "region", "", "region of the cluster")
	flags.StringSliceVar(&o.options.Zones, "zone", nil, "zone of the cluster; may be repeated")
	flags.StringVar(&o.labels, "labels", "", "labels of the cluster, as a=b,c=d")
	flags.StringVar(&o.options.APIEndpoint, "api-endpoint", "", "where the federation finds the cluster (default: as in the kubeconfig)")
	flags.StringVar(&o.options.ProxyURL, "proxy-url", "", "proxy on the federation's way to the cluster (default: as in the kubeconfig)")
	flags.StringToStringVar(&o.options.ProxyHeader, "proxy-header", nil, "headers for that proxy, as name=value")
	return cmd
}

func (o *joinOptions) run(ctx context.Context, out io.Writer) (err error) {
	if o.member.kubeconfig == "" {
		return errors.New("name a kubeconfig of the cluster with --member-kubeconfig")
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
	o.options.Cells = o.cells
	cluster, err := membership.Join(ctx, o.options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Cluster %s (%s) has joined the federation.\n", cluster.Name, cluster.Spec.APIEndpoint)
	return nil
}

func newRotate() *cobra.Command {
	var hub hubFlags
	var cells []string
	grace := time.Minute
	cmd := &cobra.Command{
		Use:     "rotate CLUSTER",
		GroupID: groupClusters,
		Short:   "Replace the tokens that the federation uses in a cluster",
		Long: `Replace the tokens that the federation uses in a cluster. The former tokens stay
valid for a while, so that everybody gets to know the new ones; then they are
deleted. An administrator's kubeconfig of the cluster is not needed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := hub.config()
			if err != nil {
				return err
			}
			if err := membership.Rotate(cmd.Context(), membership.RotateOptions{Hub: config, Cluster: args[0], Cells: cells, Grace: grace}); err != nil {
				return err
			}
			what := "All tokens"
			if len(cells) > 0 {
				what = "The tokens of " + strings.Join(cells, ", ")
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s in cluster %s are new, and the former no longer valid.\n", what, args[0])
			return nil
		},
	}
	hub.add(cmd)
	cmd.Flags().StringSliceVar(&cells, "cells", nil, "cells whose tokens are replaced (default: all tokens there are)")
	cmd.Flags().DurationVar(&grace, "grace", grace, "how long the former tokens stay valid")
	return cmd
}
