package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"

	"github.com/cellplane/cellplane/internal/local"
)

// newKubectl returns kubectl itself. It parses all arguments.
func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use:     "kubectl [ARGUMENTS]",
		GroupID: groupLocal,
		Short:   "Run the built-in kubectl against the local federation",
		Long: `Run the built-in kubectl. It uses $KUBECONFIG if set, otherwise the kubeconfig
of the local federation, whose default context is the gateway.`,
		Example: `  cellplane kubectl get pods -A                     # the pods of all members
  cellplane kubectl --context member1 get nodes     # a single member`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := stampKubernetesVersion(); err != nil {
				return fmt.Errorf("setting the version of kubectl: %w", err)
			}
			if err := useLocalKubeconfig(); err != nil {
				return err
			}
			kubectl := cmd.NewKubectlCommand(cmd.KubectlOptions{
				PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
				Arguments:     append([]string{"kubectl"}, args...),
				ConfigFlags:   genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50.0),
				IOStreams:     genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
			})
			logs.AddFlags(kubectl.PersistentFlags()) // -v and other logging flags
			kubectl.SetArgs(args)
			return kubectl.ExecuteContext(c.Context())
		},
	}
}

// useLocalKubeconfig makes the kubeconfig of the local federation the default, unless $KUBECONFIG is set.
func useLocalKubeconfig() error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return nil
	}
	dir, err := federationDir("")
	if err != nil {
		return err
	}
	file := local.KubeconfigFile(dir)
	if _, err := os.Stat(file); err != nil {
		return nil // kubectl's own default
	}
	return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, file)
}
