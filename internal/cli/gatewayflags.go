package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/local"
)

// gatewayFlags select the gateway of a command.
type gatewayFlags struct {
	kubeconfig, context, dir string
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the federation (default: $KUBECONFIG, or that of the local federation)")
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig")
	addDirFlag(cmd, &f.dir)
}

// config returns the client configuration of the gateway: that of the flags, of $KUBECONFIG, or of the local federation.
func (f *gatewayFlags) config() (*rest.Config, error) {
	loader, err := f.loader("")
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the federation: %w; set its kubeconfig with --kubeconfig, or start one with `cellplane up`", err)
	}
	return config, nil
}

// loader returns the kubeconfig with a namespace in place of that of its context, unless it is empty.
func (f *gatewayFlags) loader(namespace string) (clientcmd.ClientConfig, error) {
	file := f.kubeconfig
	if file == "" && os.Getenv("KUBECONFIG") == "" {
		dir, err := federationDir(f.dir)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(local.KubeconfigFile(dir)); err == nil {
			file = local.KubeconfigFile(dir)
		}
	}
	return kubeconfigLoader(file, f.context, namespace), nil
}
