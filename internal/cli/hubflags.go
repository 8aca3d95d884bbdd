package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/internal/local"
)

// hubFlags select the federation of a command.
type hubFlags struct {
	kubeconfig string
	context    string
	dir        string
}

func (f *hubFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the hub (default: $KUBECONFIG, or that of the local federation)")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the hub in the kubeconfig")
	addDirFlag(cmd, &f.dir)
}

// config returns the client configuration of the hub. Flags and $KUBECONFIG win over the local federation.
func (f *hubFlags) config() (*rest.Config, error) {
	file, context := f.kubeconfig, f.context
	own, err := f.localKubeconfig()
	if err != nil {
		return nil, err
	}
	if own != "" {
		file, context = own, cmp.Or(context, local.HubName)
	}
	config, err := loadKubeconfig(file, context)
	if err != nil {
		return nil, fmt.Errorf("finding the hub: %w; set its kubeconfig with --kubeconfig, or start a federation with `cellplane up`", err)
	}
	return config, nil
}

// localKubeconfig returns the kubeconfig of the local federation if there is one and no other is named, otherwise nothing.
func (f *hubFlags) localKubeconfig() (string, error) {
	if f.kubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return "", nil
	}
	dir, err := federationDir(f.dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(local.KubeconfigFile(dir)); err != nil {
		return "", nil
	}
	return local.KubeconfigFile(dir), nil
}

// client returns a client for the hub that knows the kinds of Cellplane and of Kubernetes.
func (f *hubFlags) client() (client.Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return newClient(config)
}

// newClient returns a client that knows the kinds of Cellplane and of Kubernetes, and definitions of further ones.
func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	connected, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the federation: %w", err)
	}
	return connected, nil
}

// loadKubeconfig reads a context of a kubeconfig. Empty names mean the defaults of kubectl.
func loadKubeconfig(file, context string) (*rest.Config, error) {
	return kubeconfigLoader(file, context, "").ClientConfig()
}

func kubeconfigLoader(file, context, namespace string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	overrides.Context.Namespace = namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
