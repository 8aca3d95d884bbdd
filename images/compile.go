package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// compile builds a static program. What it writes depends on the source and the version of Go alone: no paths of this
// machine, no build ID, no state of the version control.
func compile(ctx context.Context, p *program, platform v1.Platform, out string) error {
	ldflags := append([]string{"-s", "-w", "-buildid="}, p.ldflags...)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", strings.Join(ldflags, " "), "-o", out, p.pkg)
	cmd.Dir = p.module
	// The variables also override what `go env -w` has set.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-trimpath", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the Go tool then ends its compilers
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("building %s for %s: %w%s", p.name, platform, err, indented(stderr.String()))
	}
	return nil
}

// indented returns the last lines of an output, each on a line of its own.
func indented(output string) string {
	if output == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	return "\n  " + strings.Join(lines, "\n  ")
}
