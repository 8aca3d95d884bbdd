package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// bench is a federation of three cells with a gateway, and a cell with all objects for comparison.
type bench struct {
	settings
	dir        string
	federation *local.Federation
	gateway    *exec.Cmd
	floor      *exec.Cmd
	ways       []way
	configs    map[string]*rest.Config
}

const (
	cells = 3
	// gatewayCommand runs this program as a gateway.
	gatewayCommand = "gateway"
)

func start(ctx context.Context, s settings) (_ *bench, err error) {
	b := &bench{settings: s, configs: map[string]*rest.Config{}}
	if b.dir, err = os.MkdirTemp("", "cellplane-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return nil, err
	}
	// As of a cell in operation.
	if err := os.Setenv("GOGC", "200"); err != nil {
		return nil, err
	}
	if b.federation, err = local.Open(filepath.Join(b.dir, "federation"), local.Spec{Cells: cells + 1}, local.Options{Binaries: binaries, NoFsync: true}); err != nil {
		return nil, err
	}
	if err := b.federation.Start(ctx, func(string) {}); err != nil {
		return nil, err
	}
	if err := b.startGateway(ctx); err != nil {
		return nil, err
	}
	if err := b.startFloor(); err != nil {
		return nil, err
	}
	alone, err := b.federation.Cells[cells].AdminConfig()
	if err != nil {
		return nil, err
	}
	b.configs["direct"] = alone
	if err := waitReady(ctx, b.configs["bare"]); err != nil {
		return nil, fmt.Errorf("the bare proxy: %w", err)
	}
	for _, name := range []string{"direct", "gateway", "bare"} {
		client, err := rest.HTTPClientFor(b.configs[name])
		if err != nil {
			return nil, err
		}
		client.Transport = uncompressed(client.Transport)
		b.ways = append(b.ways, way{name: name, client: client, base: b.configs[name].Host})
	}
	owners, err := b.newOwners()
	if err != nil {
		return nil, err
	}
	b.ways = append(b.ways, way{name: "owners", client: &http.Client{Transport: uncompressed(owners)}, base: "https://owners"})
	return b, b.fill(ctx)
}

// uncompressed disables compression, whose cost would hide everything else.
func uncompressed(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Accept-Encoding", "identity")
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *bench) startGateway(ctx context.Context) error {
	hub := b.federation.Hub
	admin, err := hub.AdminConfig()
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.dir, "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"hub": admin}, "hub"), kubeconfig); err != nil {
		return err
	}
	proxy, err := hub.FrontProxy()
	if err != nil {
		return err
	}
	file, err := b.cellsFile(ctx)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	certs := filepath.Join(b.dir, "gateway")
	b.gateway = exec.Command(self, gatewayCommand, "--hub-kubeconfig="+kubeconfig, "--hub-proxy-client-cert-file="+proxy.CertFile, "--hub-proxy-client-key-file="+proxy.KeyFile,
		"--cells-file="+file, "--client-ca-file="+hub.CAFile(), "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port), "--cert-dir="+certs, "--state-dir="+certs)
	if b.profile != "" {
		b.gateway.Args = append(b.gateway.Args, "--profiling")
	}
	b.gateway.Stderr = os.Stderr
	b.gateway.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.gateway.Start(); err != nil {
		return err
	}
	config := rest.CopyConfig(admin)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	config.CAFile = filepath.Join(certs, "apiserver.crt")
	b.configs["gateway"] = config
	return waitReady(ctx, config)
}

func (b *bench) cellsFile(ctx context.Context) (string, error) {
	var list []map[string]any
	for _, cell := range b.federation.Cells[:cells] {
		config, err := cell.AdminConfig()
		if err != nil {
			return "", err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return "", err
		}
		if err := fleet.GrantGateways(ctx, client); err != nil {
			return "", err
		}
		if err := fence.Install(ctx, client); err != nil { // without it the gateway reads every object before it writes it
			return "", err
		}
		proxy, err := cell.FrontProxy()
		if err != nil {
			return "", err
		}
		list = append(list, map[string]any{"name": cell.Name(), "weight": 1, "server": cell.URL(), "caFile": cell.CAFile(), "certFile": proxy.CertFile, "keyFile": proxy.KeyFile})
	}
	data, err := yaml.Marshal(map[string]any{"epoch": 1, "cells": list})
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, "cells.yaml")
	return file, os.WriteFile(file, data, 0o600)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func waitReady(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if client, err := rest.HTTPClientFor(config); err == nil {
			response, err := client.Get(config.Host + "/readyz")
			if err == nil {
				response.Body.Close()
				if response.StatusCode == http.StatusOK {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it did not become ready")
		case <-ticker.C:
		}
	}
}

// onAll does something on the hub and in each cell.
func (b *bench) onAll(do func(kubernetes.Interface) error) error {
	for _, plane := range append([]*controlplane.ControlPlane{b.federation.Hub}, b.federation.Cells...) {
		config, err := plane.AdminConfig()
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := do(client); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the same objects behind the gateway and in the directly used cell.
func (b *bench) fill(ctx context.Context) error {
	err := b.onAll(func(client kubernetes.Interface) error {
		for _, name := range []string{"small", "large"} {
			if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"direct", "gateway"} {
		config := rest.CopyConfig(b.configs[name])
		config.QPS, config.ContentType = -1, protobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for namespace, count := range map[string]int{"small": b.small, "large": b.large} {
			for i := range count {
				group.Go(func() error {
					_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, object(i), metav1.CreateOptions{})
					return err
				})
			}
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// object returns an object of about one KiB, a typical size.
func object(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", i), Labels: map[string]string{"app": "bench", "index": strconv.Itoa(i)}},
		Data:       map[string]string{"value": "0", "content": string(bytes.Repeat([]byte("x"), 700))},
	}
}

// cpu returns the CPU time of the cells' API servers, and of the process in front of them.
func (b *bench) cpu() (servers, proxies time.Duration) {
	for _, cell := range b.federation.Cells {
		if p, err := cell.Process(kubebin.KubeAPIServer); err == nil {
			servers += cpuOf(p.Status(context.Background()).PID)
		}
	}
	return servers, cpuOf(b.gateway.Process.Pid) + cpuOf(b.floor.Process.Pid)
}

// printCPU prints the CPU time of each process over the whole run.
func (b *bench) printCPU() {
	fmt.Println("CPU seconds of every process, filling included:")
	for _, plane := range append([]*controlplane.ControlPlane{b.federation.Hub}, b.federation.Cells...) {
		for _, program := range []string{kubebin.Etcd, kubebin.KubeAPIServer} {
			if p, err := plane.Process(program); err == nil {
				fmt.Printf("  %-28s %8.1f\n", plane.Name()+"/"+program, cpuOf(p.Status(context.Background()).PID).Seconds())
			}
		}
	}
	fmt.Printf("  %-28s %8.1f\n", gatewayCommand, cpuOf(b.gateway.Process.Pid).Seconds())
	fmt.Printf("  %-28s %8.1f\n", "this client", cpuOf(os.Getpid()).Seconds())
}

// cpuOf returns the user and system time of a process. The kernel counts it in hundredths of a second.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (b *bench) stop() {
	for _, process := range []*exec.Cmd{b.gateway, b.floor} {
		if process != nil && process.Process != nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	}
	if b.federation != nil {
		_ = b.federation.Stop(context.Background())
		b.federation.Close()
	}
	_ = os.RemoveAll(b.dir)
}

// runGateway is the process of the gateway.
func runGateway(args []string) error {
	o := gateway.NewOptions()
	flags := pflag.NewFlagSet(gatewayCommand, pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if err := completed.Validate(); err != nil {
		return err
	}
	config, err := gateway.NewConfig(completed)
	if err != nil {
		return err
	}
	server, err := config.NewServer()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return server.Run(ctx)
}
