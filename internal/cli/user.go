package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/gateway/login"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "user",
		GroupID: groupParts,
		Short:   "Manage users",
	}
	cmd.AddCommand(newUserCreate())
	return cmd
}

// userCreate are the flags of the user create command.
type userCreate struct {
	user       login.User
	kubeconfig string
	context    string
	output     string
	wait       time.Duration
}

func newUserCreate() *cobra.Command {
	o := userCreate{user: login.User{For: 365 * 24 * time.Hour}, wait: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Issue a client certificate and write a kubeconfig",
		Long: `Issue a client certificate for a user, signed by the hub, and write a
kubeconfig for the federation. Grant rights with RBAC: bind roles to the user
or to a group.`,
		Example: `  cellplane user create alice --group team-a
  kubectl create rolebinding alice --clusterrole=edit --user=alice -n shop
  KUBECONFIG=alice.kubeconfig kubectl get deployments -n shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.user.Name = args[0]
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVar(&o.user.Groups, "group", nil, "groups of the user")
	cmd.Flags().DurationVar(&o.user.For, "for", o.user.For, "validity of the certificate")
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: that of kubectl)")
	cmd.Flags().StringVar(&o.context, "context", "", "context in the kubeconfig (default: the current one)")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "file to write (default: NAME.kubeconfig)")
	cmd.Flags().DurationVar(&o.wait, "timeout", o.wait, "how long to wait for the hub to sign the certificate")
	return cmd
}

func (o *userCreate) run(ctx context.Context, out io.Writer) error {
	if err := o.user.Validate(); err != nil {
		return err
	}
	if o.output == "" {
		o.output = o.user.Name + ".kubeconfig"
	}
	if _, err := os.Stat(o.output); err == nil {
		return fmt.Errorf("%s exists already; choose another file with --output", o.output)
	}
	if err := useLocalKubeconfig(); err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	certificate, err := login.Issue(ctx, client, o.user)
	if err != nil && timedOut(ctx, err) {
		return fmt.Errorf("%w; is the hub's kube-controller-manager running?", err)
	}
	if err != nil {
		return err
	}
	if err := writeUserConfig(loader, o.output, o.user.Name, certificate); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s can log in with %s. Bind a role to the user or a group to grant rights.\n", o.user.Name, o.output)
	return nil
}

// writeUserConfig writes a kubeconfig for the cluster of the loader, readable by its owner only.
func writeUserConfig(loader clientcmd.ClientConfig, path, user string, certificate login.Certificate) error {
	config, err := loader.ClientConfig()
	if err != nil {
		return err
	}
	cluster := &clientcmdapi.Cluster{Server: config.Host, TLSServerName: config.ServerName, CertificateAuthorityData: config.CAData}
	if config.CAFile != "" {
		if cluster.CertificateAuthorityData, err = os.ReadFile(config.CAFile); err != nil {
			return fmt.Errorf("reading the cluster's certificate authority: %w", err)
		}
	}
	data, err := clientcmd.Write(*login.Kubeconfig(cluster, user, certificate))
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
