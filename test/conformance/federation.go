package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/local"
)

// federation is a local federation in a directory, run by the command line.
type federation struct{ program, dir string }

func (f federation) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.program, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+f.dir, "KUBECONFIG=")
	cmd.Stderr = os.Stderr
	return cmd
}

func (f federation) start(ctx context.Context) error {
	if err := f.command(ctx, "up", "--cells", "3", "--members", "1", "--nodes", "1", "--metrics-server=false", "--skip-checks").Run(); err != nil {
		return fmt.Errorf("starting the federation: %w", err)
	}
	return nil
}

func (f federation) purge() error {
	if err := f.command(context.Background(), "down", "--purge").Run(); err != nil {
		return fmt.Errorf("stopping the federation: %w", err)
	}
	return nil
}

// kubeconfig writes a kubeconfig for a surface of the gateway and returns its path.
func (f federation) kubeconfig(surface string) (string, error) {
	config, err := clientcmd.LoadFromFile(local.KubeconfigFile(f.dir))
	if err != nil {
		return "", err
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server += strings.TrimSuffix(surface, "/")
	}
	file := filepath.Join(f.dir, fileName(surface)+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// move adds and drains a cell, with pauses, until stop is called. stop waits for the end of a change, and says how many there were. The output
// of the changes goes to a file beside the federation.
func (f federation) move(ctx context.Context, seed uint64) (stop func() error, err error) {
	log, err := os.Create(filepath.Join(filepath.Dir(f.dir), "changes.log"))
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a schedule that can be repeated
	ctx, cancel := context.WithCancel(ctx)
	var ended atomic.Int64
	done := make(chan error, 1)
	go func() {
		defer log.Close()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(time.Duration(random.IntN(10_000)) * time.Millisecond):
			}
			change := []string{"add", "drain"}[i%2]
			cmd := f.command(context.WithoutCancel(ctx), "cells", change, "cell-d")
			cmd.Stdout = log
			if err := cmd.Run(); err != nil {
				done <- fmt.Errorf("cellplane cells %s: %w", change, err)
				return
			}
			ended.Add(1)
		}
	}()
	return func() error {
		cancel()
		fmt.Printf("%d changes of cells ended meanwhile; waiting for the last one.\n", ended.Load())
		return <-done
	}, nil
}
