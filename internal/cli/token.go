package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/registration"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		GroupID: groupClusters,
		Short:   "Manage the bootstrap tokens with which clusters register",
		Long: `Manage the bootstrap tokens with which clusters in pull mode register. They are
Secrets in the namespace kube-system of the hub.`,
	}
	cmd.AddCommand(newTokenCreate(), newTokenList(), newTokenDelete())
	return cmd
}

// tokenCreate are the flags of the token create command.
type tokenCreate struct {
	hub          hubFlags
	gateway      reachFlags
	token        registration.Token
	ttl          time.Duration
	printCommand bool
}

// reachFlags say how clusters reach the gateway.
type reachFlags struct{ kubeconfig, context string }

func (f *reachFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "gateway-kubeconfig", "", "kubeconfig with the address and the CA of the gateway, as clusters reach it")
	cmd.Flags().StringVar(&f.context, "gateway-context", "", "context of the gateway in that kubeconfig, or in that of the hub")
}

func newTokenCreate() *cobra.Command {
	o := tokenCreate{ttl: 24 * time.Hour, token: registration.Token{Usages: []string{"signing", "authentication"}, Groups: []string{names.AgentBootstrapGroup}}}
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a bootstrap token",
		Long: `Create a bootstrap token and print it. Without TOKEN a random one is made.

Clusters that register recognize the gateway by what the hub publishes in the
ConfigMap kube-public/cluster-info, signed with the token. Give the kubeconfig
of the gateway once; a local federation needs none.`,
		Example: `  cellplane token create --print-register-command
  cellplane token create --ttl 1h --gateway-kubeconfig gateway.kubeconfig`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.token.Text = args[0]
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.hub.add(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.ttl, "ttl", o.ttl, "how long the token is valid; 0 means for ever")
	flags.StringSliceVar(&o.token.Groups, "groups", o.token.Groups, "groups of who uses the token; only those of the default group may register clusters")
	flags.StringSliceVar(&o.token.Usages, "usages", o.token.Usages, "what the token is for")
	flags.StringVar(&o.token.Description, "description", "", "description for people")
	flags.BoolVar(&o.printCommand, "print-register-command", false, "print the command that registers a cluster instead of the token")
	o.gateway.add(cmd)
	return cmd
}

func (o *tokenCreate) run(ctx context.Context, out io.Writer) error {
	hub, err := o.hub.kubernetes()
	if err != nil {
		return err
	}
	if o.ttl < 0 {
		return errors.New("--ttl must not be negative")
	}
	now := time.Now()
	if o.ttl > 0 {
		o.token.Expires = now.Add(o.ttl)
	}
	gateway, err := o.gateway.publish(ctx, &o.hub, hub)
	if err != nil {
		return err
	}
	token, err := registration.CreateToken(ctx, hub, o.token, now)
	if err != nil {
		return err
	}
	if !o.printCommand {
		fmt.Fprintln(out, token.Text)
		return nil
	}
	hashes, err := registration.HashesOf(gateway.CA)
	if err != nil {
		return fmt.Errorf("the CA of the gateway: %w", err)
	}
	fmt.Fprintf(out, "cellplane register %s --token %s --discovery-token-ca-cert-hash %s\n",
		strings.TrimPrefix(gateway.Server, "https://"), token.Text, strings.Join(hashes, ","))
	return nil
}

// publish lets the hub publish how the gateway is recognized, unless it does so already and no other gateway is named.
func (f *reachFlags) publish(ctx context.Context, hub *hubFlags, client kubernetes.Interface) (*registration.Gateway, error) {
	file, gatewayContext := f.kubeconfig, f.context
	if file == "" && gatewayContext == "" {
		published, err := registration.Published(ctx, client)
		if err != nil || published != nil {
			return published, err
		}
		gatewayContext = parts.GatewayContext
	}
	if file == "" {
		own, err := hub.localKubeconfig()
		if err != nil {
			return nil, err
		}
		if own == "" && f.context == "" {
			return nil, errors.New("--gateway-kubeconfig is missing: the hub does not know yet how clusters reach the gateway")
		}
		file = cmp.Or(own, hub.kubeconfig)
	}
	config, err := loadKubeconfig(file, gatewayContext)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the gateway: %w", err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the gateway: %w", err)
	}
	if len(config.CAData) == 0 {
		return nil, errors.New("the kubeconfig of the gateway has no certificate-authority, by which clusters would recognize it")
	}
	gateway := &registration.Gateway{Server: config.Host, ServerName: config.ServerName, CA: config.CAData}
	return gateway, registration.Publish(ctx, client, *gateway)
}

func newTokenList() *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List bootstrap tokens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := hub.kubernetes()
			if err != nil {
				return err
			}
			tokens, err := registration.ListTokens(cmd.Context(), client)
			if err != nil {
				return err
			}
			return printTokens(cmd.OutOrStdout(), tokens, time.Now())
		},
	}
	hub.add(cmd)
	return cmd
}

func printTokens(out io.Writer, tokens []registration.Token, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, token := range tokens {
		ttl, expires := "<forever>", "<never>"
		if !token.Expires.IsZero() {
			ttl, expires = "<invalid>", token.Expires.UTC().Format(time.RFC3339)
			if left := token.Expires.Sub(now); left > 0 {
				ttl = duration.ShortHumanDuration(left)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", token.Text, ttl, expires, listed(token.Usages...), listed(token.Description), listed(token.Groups...))
	}
	return table.Flush()
}

func listed(texts ...string) string {
	if text := strings.Join(texts, ","); text != "" {
		return text
	}
	return "<none>"
}

func newTokenDelete() *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete bootstrap tokens",
		Long: `Delete bootstrap tokens, given whole or by their IDs. Clusters that have
registered with them stay.`,
		Example: `  cellplane token delete abcdef`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := hub.kubernetes()
			if err != nil {
				return err
			}
			for _, token := range args {
				id, err := registration.DeleteToken(cmd.Context(), client, token)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Token %s is deleted.\n", id)
			}
			return nil
		},
	}
	hub.add(cmd)
	return cmd
}

// kubernetes returns a client for the hub that knows the kinds of Kubernetes.
func (f *hubFlags) kubernetes() (kubernetes.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
