package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gobin"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
)

// name is that of the node.
const name = "node"

// Node is a cluster with one real node. It ends with the test program.
type Node struct {
	Config *rest.Config
	Client kubernetes.Interface
	// Address is where its API server listens, and other programs of the test can.
	Address string

	dir                 string
	kube, node, runtime gobin.Binaries
	plane               *controlplane.ControlPlane
}

// Start starts a cluster, and waits until its node is ready for pods.
func Start(ctx context.Context) (*Node, error) {
	e := enclosure.Inside()
	if e == nil {
		return nil, errors.New("a real node needs the enclosure of realnode.Main")
	}
	n := &Node{
		Address: enclosure.Address, dir: filepath.Join(e.Dir, "node"),
		kube: gobin.Binaries{Dir: e.Data[KubeData]}, node: gobin.Binaries{Dir: e.Data[nodeData]}, runtime: gobin.Binaries{Dir: e.Data[runtimeData]},
	}
	if err := DependOn(programsDir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return nil, err
	}
	if err := n.prepare(); err != nil {
		return nil, fmt.Errorf("preparing a node: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.startContainerd(groupCtx) })
	group.Go(func() error { return n.plane.Start(groupCtx) })
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	for _, start := range []func(context.Context) error{n.startKubelet, n.startProxy, n.startDNS, n.startVolumes, n.waitReady} {
		if err := start(ctx); err != nil {
			return nil, fmt.Errorf("starting a node: %w", err)
		}
	}
	return n, nil
}

// prepare configures the control plane.
func (n *Node) prepare() error {
	ports, err := controlplane.ChoosePorts()
	if err != nil {
		return err
	}
	n.plane, err = controlplane.New(controlplane.Config{
		Name: "meta", Role: controlplane.Nodeless, Dir: filepath.Join(n.dir, "meta"), Binaries: n.kube, Ports: ports, Address: n.Address, NoFsync: true,
	})
	if err != nil {
		return err
	}
	if n.Config, err = n.plane.AdminConfig(); err != nil {
		return err
	}
	n.Client, err = kubernetes.NewForConfig(n.Config)
	return err
}

// start starts a program that runs as long as the test, and waits until it is ready.
func (n *Node) start(ctx context.Context, path string, args []string, check func(context.Context) error) error {
	program := filepath.Base(path)
	p := process.New(process.Spec{
		Name: name + "/" + program, Path: path, Args: args, LogFile: n.logFile(program), Check: check,
		Env: []string{"PATH=" + n.runtime.Dir + ":" + os.Getenv("PATH")},
	})
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (n *Node) logFile(program string) string { return filepath.Join(n.dir, "logs", program+".log") }

// write writes a configuration file and returns its path.
func (n *Node) write(file, content string) (string, error) {
	path := filepath.Join(n.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// waitReady waits until the node runs pods. They need the ServiceAccount of their namespace.
func (n *Node) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var node *corev1.Node
		if _, last = n.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); last != nil {
			return false, nil
		}
		if node, last = n.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); last != nil {
			return false, nil
		}
		last = errors.New("it has no condition Ready")
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				last = errors.New(condition.Message)
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the node is not ready: %w", last)
	}
	return nil
}
