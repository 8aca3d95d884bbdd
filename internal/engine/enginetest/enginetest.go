// Package enginetest runs engines in tests.
package enginetest

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
)

// Scheme knows every kind that tests of engines look at.
var Scheme = runtime.NewScheme()

func init() {
	ctrllog.SetLogger(klog.Background())
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme} {
		utilruntime.Must(add(Scheme))
	}
}

// Connect returns an administrator's client.
func Connect(plane *controlplane.ControlPlane) (ctrlclient.WithWatch, *rest.Config, error) {
	config, err := plane.AdminConfig()
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	client, err := ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: Scheme})
	return client, config, err
}

// Prepare creates the namespaces that a hub manager would have created in the hub and the cells.
func Prepare(ctx context.Context, clients ...ctrlclient.Client) error {
	for _, client := range clients {
		for _, name := range []string{names.ClusterNamespace, names.SystemNamespace} {
			if err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Start runs an engine in this process. The function stops it and waits for its end. ENGINE_VERBOSE makes it log more.
func Start(ctx context.Context, config engine.Config) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	verbosity := 0
	if os.Getenv("ENGINE_VERBOSE") != "" {
		verbosity = 2
	}
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := config.Run(ctx); err != nil && ctx.Err() == nil {
			panic(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
