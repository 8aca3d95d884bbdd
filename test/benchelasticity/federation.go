package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/internal/local"
)

var clusters = []string{"member1", "member2", "member3"}

// configuration has agents, which are stopped: their identities report instead.
const configuration = `
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
cells: 1
members: 3
nodes: 1
metricsServer: false
`

// federation is a running federation.
type federation struct {
	dir        string
	binary     string
	supervisor *local.Client
	gateway    client.Client
	members    map[string]client.WithWatch
}

func start(ctx context.Context, binary string) (_ *federation, err error) {
	top, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return nil, err
	}
	f := &federation{dir: filepath.Join(top, "federation"), binary: binary, members: map[string]client.WithWatch{}}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	config := filepath.Join(top, "config.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		return nil, err
	}
	if output, err := exec.CommandContext(ctx, binary, "up", "--dir", f.dir, "--config", config).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cellplane up: %w\n%s", err, output)
	}
	if f.supervisor, err = local.NewClient(f.dir); err != nil {
		return nil, err
	}
	if f.gateway, err = f.client("cellplane"); err != nil {
		return nil, err
	}
	for _, cluster := range clusters {
		if f.members[cluster], err = f.client(cluster); err != nil {
			return nil, err
		}
		if err := f.supervisor.Signal(ctx, cluster+"/agent", "halt"); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// stop ends and removes the federation.
func (f *federation) stop() {
	if output, err := exec.CommandContext(context.Background(), f.binary, "down", "--purge", "--dir", f.dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cellplane down: %v\n%s", err, output)
	}
	_ = os.RemoveAll(filepath.Dir(f.dir))
}

// address returns where a part of Cellplane serves its metrics.
func (f *federation) address(part string) (string, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, "federation.json"))
	if err != nil {
		return "", err
	}
	var state struct{ PartPorts map[string]int }
	if err := json.Unmarshal(data, &state); err != nil {
		return "", err
	}
	port, found := state.PartPorts[part]
	if !found {
		return "", fmt.Errorf("%s has no port", part)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

func (f *federation) config(name string) (*rest.Config, error) {
	return read(local.KubeconfigFile(f.dir), name)
}

func read(file, context string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

func (f *federation) client(name string) (client.WithWatch, error) {
	config, err := f.config(name)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// cpu returns the CPU time of the processes with one of the names, such as cell-a/engine.
func (f *federation) cpu(ctx context.Context, names ...string) (time.Duration, error) {
	report, err := f.supervisor.ReportWithProcesses(ctx)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	var known []string
	found := 0
	for _, p := range report.Processes {
		if known = append(known, p.Name); slices.Contains(names, p.Name) {
			sum += p.CPU
			found++
		}
	}
	if found != len(names) {
		return 0, fmt.Errorf("there are no processes %s among %s", strings.Join(names, ", "), strings.Join(known, ", "))
	}
	return sum, nil
}

// cores returns how many cores processes use while something is done, and how long that takes.
func (f *federation) cores(ctx context.Context, names []string, do func() error) (float64, error) {
	before, err := f.cpu(ctx, names...)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := f.cpu(ctx, names...)
	return (after - before).Seconds() / took.Seconds(), err
}
