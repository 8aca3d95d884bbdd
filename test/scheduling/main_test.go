// Package scheduling_test shows what the engine does about placement, failover and quotas: against real API servers, with
// clusters that exist as objects only. They are in Pull mode, and the tests report in the place of their agents.
package scheduling_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/schedule/profilefile"
)

// One hub and two cells serve all tests of the package. An engine runs for the first cell; tests that need others start
// them.
var (
	hub, cell, other                   ctrlclient.WithWatch
	hubConfig, cellConfig, otherConfig *rest.Config
	scheme                             = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctrllog.SetLogger(klog.Background())
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "cellplane-scheduling-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return 1, err
	}
	federation, err := local.Open(dir, local.Spec{Cells: 2}, local.Options{Binaries: binaries, NoFsync: true})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := federation.Stop(context.Background()); err == nil {
			err = stopErr
		}
		federation.Close()
	}()
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return 1, err
	}
	for _, at := range []struct {
		plane  *controlplane.ControlPlane
		client *ctrlclient.WithWatch
		config **rest.Config
	}{{federation.Hub, &hub, &hubConfig}, {federation.Cells[0], &cell, &cellConfig}, {federation.Cells[1], &other, &otherConfig}} {
		if *at.client, *at.config, err = connect(ctx, at.plane); err != nil {
			return 1, fmt.Errorf("connecting to %s: %w", at.plane.Name(), err)
		}
	}
	profiles, err := profilefile.Parse([]byte(leaveRetired))
	if err != nil {
		return 1, err
	}
	stop := startEngine(ctx, engine.Config{Cell: "cell-a", Config: cellConfig, HubAPI: hubConfig, Profiles: profiles, Descheduler: &descheduler.Options{Interval: time.Second, Pending: pendingPods}})
	defer stop()
	return m.Run(), nil
}

func connect(ctx context.Context, plane *controlplane.ControlPlane) (ctrlclient.WithWatch, *rest.Config, error) {
	config, err := plane.AdminConfig()
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	client, err := ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{names.ClusterNamespace, names.SystemNamespace} {
		if err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, nil, err
		}
	}
	return client, config, nil
}

// startEngine runs an engine in this process; the function stops it and waits for its end.
func startEngine(ctx context.Context, config engine.Config) (stop func()) {
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
