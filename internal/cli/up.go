package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// upOptions are the flags of up.
type upOptions struct {
	dir      string
	spec     local.Spec
	config   string // a file
	settings *local.Settings
	// metricsServer is nil if the flag is not given.
	metricsServer *bool
	foreground    bool
	skipChecks    bool
}

const metricsServerFlag = "metrics-server"

func newUp() *cobra.Command {
	o := upOptions{spec: local.DefaultSpec}
	var metricsServer bool
	cmd := &cobra.Command{
		Use:     "up",
		GroupID: groupLocal,
		Short:   "Start or resume a federation on this machine",
		Long: `Start a federation of real control planes on this machine: a hub, cells and
member clusters with simulated nodes. The first time, Kubernetes and etcd are
built from source, which takes some minutes; later starts take seconds.
metrics-server is built while the federation runs already.

The command returns when all processes are healthy. A supervisor stays in the
background and restarts processes that die. After "cellplane down", run it
again to resume the federation.`,
		Example: `  cellplane up                          # a hub, 2 cells, 3 members with 10 nodes each
  cellplane up --cells 3 --members 5    # a larger one
  cellplane up --config local.yaml      # sizes, and flags of the parts, from a file
  cellplane kubectl --context member1 get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags().Changed); err != nil {
				return err
			}
			if cmd.Flags().Changed(metricsServerFlag) {
				o.metricsServer = &metricsServer
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addDirFlag(cmd, &o.dir)
	cmd.Flags().StringVar(&o.config, "config", "", "YAML file with sizes, and flags of the parts; remembered until another file is given")
	cmd.Flags().IntVar(&o.spec.Cells, "cells", o.spec.Cells, "number of cells")
	cmd.Flags().IntVar(&o.spec.Members, "members", o.spec.Members, "number of member clusters")
	cmd.Flags().IntVar(&o.spec.Nodes, "nodes", o.spec.Nodes, "number of simulated nodes in each member")
	cmd.Flags().IntVar(&o.spec.Pull, "pull", o.spec.Pull, "number of members, the last ones, that are in pull mode: an agent applies what is placed there")
	cmd.Flags().BoolVar(&metricsServer, metricsServerFlag, true, "run metrics-server in each member, for kubectl top and autoscalers; remembered until it is given again")
	cmd.Flags().BoolVar(&o.foreground, "foreground", false, "stay in the foreground; Ctrl-C stops the federation")
	cmd.Flags().BoolVar(&o.skipChecks, "skip-checks", false, "start even if memory or disk space seem too small")
	return cmd
}

func (o *upOptions) run(ctx context.Context, out io.Writer) error {
	if local.InUse(o.dir) {
		return fmt.Errorf("the federation in %s is up already; inspect it with `cellplane status` or stop it with `cellplane down`", o.dir)
	}
	if !o.skipChecks {
		if err := local.CheckResources(o.dir, o.spec); err != nil {
			return err
		}
	}
	progress := newProgress(out)
	defer progress.end()
	binaries, err := kubebin.Ensure(ctx, func(what string, packages int) {
		progress.show("building", fmt.Sprintf("%s from source (%d packages compiled)", what, packages))
	})
	if err != nil {
		return interrupted(ctx, err, "interrupted while building; compiled packages stay cached")
	}
	if o.foreground {
		return o.runForeground(ctx, binaries, progress)
	}
	return o.runBackground(ctx, binaries, progress)
}

// complete finds the directory and merges the sizes: flags win over the configuration file, which wins over the
// federation in the directory, which wins over the defaults.
func (o *upOptions) complete(changed func(flag string) bool) (err error) {
	if o.dir, err = federationDir(o.dir); err != nil {
		return err
	}
	kept, found, err := local.KeptSpec(o.dir)
	if err != nil {
		return err
	}
	spec := local.DefaultSpec
	if found {
		spec = kept
	}
	var config *local.Config
	if o.config != "" {
		if config, err = o.readConfig(); err != nil {
			return err
		}
		spec = config.Resize(spec)
	}
	for flag, size := range map[string]struct{ from, to *int }{
		"cells": {&o.spec.Cells, &spec.Cells}, "members": {&o.spec.Members, &spec.Members}, "nodes": {&o.spec.Nodes, &spec.Nodes}, "pull": {&o.spec.Pull, &spec.Pull},
	} {
		if changed(flag) {
			*size.to = *size.from
		}
	}
	o.spec = spec
	if err := o.spec.Validate(); err != nil {
		return err
	}
	if found && o.spec != kept {
		return fmt.Errorf("the federation in %s has %d cells, and %d members with %d nodes each, %d of them in pull mode; leave the sizes out to resume it, or delete it with `cellplane down --purge`",
			o.dir, kept.Cells, kept.Members, kept.Nodes, kept.Pull)
	}
	if config == nil {
		return nil
	}
	if err := config.Validate(o.dir, o.spec); err != nil {
		return fmt.Errorf("%s: %w", o.config, err)
	}
	return nil
}

// readConfig reads the configuration file and checks the flags of Cellplane's own parts.
func (o *upOptions) readConfig() (config *local.Config, err error) {
	if o.config, err = filepath.Abs(o.config); err != nil {
		return nil, err
	}
	if config, err = local.ReadConfig(o.config); err != nil {
		return nil, err
	}
	o.settings = &config.Settings
	root := newRoot()
	for _, name := range slices.Sorted(maps.Keys(config.Parts)) {
		part, _, err := root.Find([]string{path.Base(name)})
		if err != nil {
			continue // a part of Kubernetes, or an unknown one
		}
		for _, flag := range slices.Sorted(maps.Keys(config.Parts[name].Flags)) {
			if part.Flag(flag) == nil {
				return nil, fmt.Errorf("%s: %s has no flag %q; see `cellplane %s --help`", o.config, name, flag, part.Name())
			}
		}
	}
	return config, nil
}

func (o *upOptions) runForeground(ctx context.Context, binaries kubebin.Binaries, progress *progress) error {
	options, err := federationOptions(binaries)
	if err != nil {
		return err
	}
	options.Settings = o.settings
	if o.metricsServer != nil {
		options.Adjust = func(s *local.Settings) { s.MetricsServer = o.metricsServer }
	}
	superviseCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- local.Supervise(superviseCtx, o.dir, o.spec, options)
	}()
	report, err := o.waitUntilReady(ctx, progress, ended)
	if err != nil {
		stop()
		<-ended
		return interrupted(ctx, err, "interrupted; everything has been stopped")
	}
	progress.end()
	o.welcome(progress.out, report)
	return <-ended
}

func (o *upOptions) runBackground(ctx context.Context, binaries kubebin.Binaries, progress *progress) error {
	ended, err := o.spawnSupervisor(binaries)
	if err != nil {
		return err
	}
	report, err := o.waitUntilReady(ctx, progress, ended)
	if err != nil {
		progress.show("stopping", "the processes that were started")
		if stopErr := stopFederation(context.WithoutCancel(ctx), o.dir); stopErr != nil {
			return errors.Join(err, stopErr)
		}
		progress.end()
		return interrupted(ctx, err, "interrupted; everything has been stopped")
	}
	progress.end()
	o.welcome(progress.out, report)
	return nil
}

// spawnSupervisor starts this program as a supervisor that outlives it. If the supervisor ends, the channel receives the
// reason.
func (o *upOptions) spawnSupervisor(binaries kubebin.Binaries) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	logFile := filepath.Join(o.dir, "supervisor.log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, o.superviseArgs(binaries)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // detached from this terminal
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		_ = cmd.Wait()
		text, _ := os.ReadFile(logFile)
		ended <- errors.New(strings.TrimPrefix(strings.TrimSpace(string(text)), "cellplane: "))
	}()
	return ended, nil
}

// waitUntilReady shows the progress of the supervisor until all processes are healthy.
func (o *upOptions) waitUntilReady(ctx context.Context, progress *progress, ended <-chan error) (local.Report, error) {
	client, err := local.NewClient(o.dir)
	if err != nil {
		return local.Report{}, err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return local.Report{}, ctx.Err()
		case err := <-ended:
			return local.Report{}, err
		case <-ticker.C:
		}
		report, err := client.Report(ctx)
		if err != nil {
			continue // not listening yet; its end is handled above
		}
		switch report.Phase {
		case local.PhaseReady:
			return report, nil
		case local.PhaseFailed:
			return report, errors.New(report.Error)
		}
		text := controlPlanes(report.Total)
		if len(report.Ready) > 0 {
			text += fmt.Sprintf(", %d ready: %s", len(report.Ready), strings.Join(report.Ready, ", "))
		}
		progress.show("starting", text)
	}
}

// welcome prints what was started and what to try next.
func (o *upOptions) welcome(out io.Writer, report local.Report) {
	fmt.Fprintf(out, "Your federation is up: %s ready in %.1fs.\n\n", controlPlanes(report.Total), report.ReadyIn.Seconds())
	if report.Note != "" {
		fmt.Fprintf(out, "Note: %s.\n\n", report.Note)
	}
	fmt.Fprintln(out, "Try next:")
	for _, hint := range o.hints() {
		fmt.Fprintf(out, "  %-54s # %s\n", hint[0], hint[1])
	}
}

func controlPlanes(n int) string {
	if n == 1 {
		return "1 control plane"
	}
	return fmt.Sprintf("%d control planes", n)
}

func (o *upOptions) hints() [][2]string {
	hints := [][2]string{{"cellplane status", "all processes, their health and cost"}}
	if o.spec.Cells > 0 {
		hints = append(hints,
			[2]string{"cellplane kubectl get clusters", "the members, through the gateway"},
			[2]string{"cellplane kubectl apply -f docs/examples/web.yaml", "a workload, and a policy that places it"},
			[2]string{"cellplane kubectl get pods -A", "the pods of all members"},
			[2]string{"cellplane cells add cell-c", "add a third cell"})
	}
	if o.spec.Members > 0 {
		hints = append(hints, [2]string{"cellplane kubectl --context member1 get nodes", "a single member"})
	}
	return append(hints, [2]string{"cellplane down", "stop; up resumes, down --purge deletes"})
}

// interrupted replaces the error of a cancelled operation.
func interrupted(ctx context.Context, err error, sentence string) error {
	if ctx.Err() != nil {
		return errors.New(sentence)
	}
	return err
}
