package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
)

// measuredCell is a real hub and a real cell with an engine, whose members exist as objects and ledgers.
type measuredCell struct {
	client  ctrlclient.WithWatch
	members *members
	writes  *writes
	// cell and hub count the writes through them.
	cell, hub *rest.Config
	// used is the CPU time of the processes at the start of the step.
	used map[string]time.Duration
	// cpu returns the CPU time of each process.
	cpu func() map[string]time.Duration
}

const (
	startBound = 10 * time.Minute
	stopBound  = time.Minute
	// stepTimeout is far above the duration of any step on a busy machine.
	stepTimeout = 15 * time.Minute
)

// measureCell starts a hub, a cell and an engine, and prints the results of the steps.
func measureCell(ctx context.Context, o *options, out io.Writer) (err error) {
	ctrllog.SetLogger(klog.Background())
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return err
	}
	planes, err := local.Open(filepath.Join(dir, "federation"), local.Spec{Cells: 1}, local.Options{Binaries: binaries})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopBound)
		defer cancel()
		err = errors.Join(err, planes.Stop(ctx))
		planes.Close()
	}()
	starting, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	if err := planes.Start(starting, func(string) {}); err != nil {
		return err
	}
	c, stop, err := openCell(ctx, planes)
	if err != nil {
		return err
	}
	defer stop()
	c.cpu = func() map[string]time.Duration {
		used := map[string]time.Duration{}
		for _, status := range planes.Status(ctx) {
			used[status.Name] = status.CPU
		}
		if own, err := process.UsageOf(os.Getpid()); err == nil {
			used["engine, observer and clients"] = own.CPU
		}
		return used
	}
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return c.run(ctx, o, out)
}

// openCell connects to the control planes and starts a observer of ledgers in this process.
func openCell(ctx context.Context, planes *local.Federation) (_ *measuredCell, stop func(), err error) {
	hub, _, err := connect(ctx, planes.Hub)
	if err != nil {
		return nil, nil, err
	}
	cell, client, err := connect(ctx, planes.Cells[0])
	if err != nil {
		return nil, nil, err
	}
	observer, err := ledger.NewObserver(hub, 10*time.Second)
	if err != nil {
		return nil, nil, err
	}
	c := &measuredCell{client: client, members: newMembers(observer), writes: newWrites()}
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	c.cell, c.hub = rest.CopyConfig(cell), rest.CopyConfig(hub)
	c.cell.Wrap(c.writes.count)
	c.hub.Wrap(c.writes.count)
	group.Go(func() error { return observer.Run(ctx) })
	c.members.watch(ctx, client)
	return c, func() { cancel(); _ = group.Wait() }, nil
}

// startEngine starts an engine in this process and returns the function that stops it.
func (c *measuredCell) startEngine(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	config := engine.Config{Cell: "cell-a", Config: c.cell, HubAPI: c.hub}
	var running errgroup.Group
	running.Go(func() error { return config.Run(ctx) })
	return func() { cancel(); _ = running.Wait() }
}

func connect(ctx context.Context, plane *controlplane.ControlPlane) (*rest.Config, ctrlclient.WithWatch, error) {
	config, err := plane.AdminConfig()
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	client, err := ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{names.ClusterNamespace, names.SystemNamespace} {
		if err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, nil, fmt.Errorf("creating namespace %s in %s: %w", name, plane.Name(), err)
		}
	}
	return config, client, nil
}

// roundTripper is an http.RoundTripper function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
