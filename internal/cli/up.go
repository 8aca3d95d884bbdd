package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// upOptions are the flags of up.
type upOptions struct {
	dir        string
	spec       local.Spec
	specGiven  bool // whether any flag of the spec was given
	foreground bool
	skipChecks bool
}

func newUp() *cobra.Command {
	o := upOptions{spec: local.DefaultSpec}
	cmd := &cobra.Command{
		Use:     "up",
		GroupID: groupLocal,
		Short:   "Start a federation on this machine, or resume it",
		Long: `Start a federation of real control planes on this machine: a hub, cells and
member clusters with simulated nodes. The first time, Kubernetes and etcd are
built from source, which takes some minutes; after that it takes seconds.

The command returns when everything is healthy and leaves a supervisor behind
that keeps it so. Run it again after "cellplane down" to resume where you were.`,
		Example: `  cellplane up                          # a hub, 2 cells, 3 members of 10 nodes
  cellplane up --cells 3 --members 5    # a larger one
  cellplane kubectl --context member1 get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.specGiven = cmd.Flags().Changed("cells") || cmd.Flags().Changed("members") || cmd.Flags().Changed("nodes")
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addDirFlag(cmd, &o.dir)
	cmd.Flags().IntVar(&o.spec.Cells, "cells", o.spec.Cells, "how many cells")
	cmd.Flags().IntVar(&o.spec.Members, "members", o.spec.Members, "how many member clusters")
	cmd.Flags().IntVar(&o.spec.Nodes, "nodes", o.spec.Nodes, "how many simulated nodes each member has")
	cmd.Flags().BoolVar(&o.foreground, "foreground", false, "stay attached; Ctrl-C stops everything")
	cmd.Flags().BoolVar(&o.skipChecks, "skip-checks", false, "do not check for enough memory and disk")
	return cmd
}

func (o *upOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.complete(); err != nil {
		return err
	}
	if local.InUse(o.dir) {
		return fmt.Errorf("the federation in %s is up already; see `cellplane status`, or stop it with `cellplane down`", o.dir)
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
		return interrupted(ctx, err, "interrupted while building; what was compiled is kept")
	}
	if o.foreground {
		return o.runForeground(ctx, binaries, progress)
	}
	return o.runBackground(ctx, binaries, progress)
}

// complete finds the directory and takes the spec that is kept there.
func (o *upOptions) complete() (err error) {
	if o.dir, err = federationDir(o.dir); err != nil {
		return err
	}
	if err := o.spec.Validate(); err != nil {
		return err
	}
	kept, found, err := local.KeptSpec(o.dir)
	if err != nil {
		return err
	}
	if found && !o.specGiven {
		o.spec = kept
	}
	if found && o.spec != kept {
		return fmt.Errorf("the federation in %s has %d cells, %d members and %d nodes each; leave the flags out to resume it, or forget it with `cellplane down --purge`",
			o.dir, kept.Cells, kept.Members, kept.Nodes)
	}
	return nil
}

func (o *upOptions) runForeground(ctx context.Context, binaries kubebin.Binaries, progress *progress) error {
	options, err := federationOptions(binaries)
	if err != nil {
		return err
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
		progress.show("stopping", "what had been started")
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

// spawnSupervisor starts this program as a supervisor that outlives it. The
// channel receives why it ended, should it end.
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
	cmd := exec.Command(self, superviseArgs(o.dir, o.spec, binaries)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not of this terminal
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		_ = cmd.Wait()
		said, _ := os.ReadFile(logFile)
		ended <- errors.New(strings.TrimPrefix(strings.TrimSpace(string(said)), "cellplane: "))
	}()
	return ended, nil
}

// waitUntilReady shows what the supervisor is doing until all is healthy.
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
			continue // it does not listen yet; if it died we hear of it above
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

// welcome says what is there and what to try next.
func (o *upOptions) welcome(out io.Writer, report local.Report) {
	fmt.Fprintf(out, "Your federation is up: %s ready in %.1fs.\n\n", controlPlanes(report.Total), report.ReadyIn.Seconds())
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
	hints := [][2]string{{"cellplane status", "every process, its health and cost"}}
	if o.spec.Cells > 0 {
		hints = append(hints,
			[2]string{"cellplane kubectl get clusters", "the members, through the gateway"},
			[2]string{"cellplane kubectl apply -f docs/examples/web.yaml", "a workload and a policy that sends it to members"},
			[2]string{"cellplane kubectl get pods -A", "the pods of all members"},
			[2]string{"cellplane cells add cell-c", "a third cell takes its share"})
	}
	if o.spec.Members > 0 {
		hints = append(hints, [2]string{"cellplane kubectl --context member1 get nodes", "a member by itself"})
	}
	return append(hints, [2]string{"cellplane down", "stop; up resumes, down --purge forgets"})
}

// interrupted replaces the error of a cancelled operation by a sentence.
func interrupted(ctx context.Context, err error, sentence string) error {
	if ctx.Err() != nil {
		return errors.New(sentence)
	}
	return err
}
