package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// lifetime bounds the tests of one package.
const lifetime = 20 * time.Minute

// FederationMain is the TestMain of packages whose tests share a federation: it starts the federation, calls run, which
// prepares it and runs the tests, and exits.
func FederationMain(spec local.Spec, run func(context.Context, *local.Federation) (code int, err error)) {
	ConfiguredFederationMain(spec, local.Settings{}, run)
}

// ConfiguredFederationMain is [FederationMain] for processes with other settings.
func ConfiguredFederationMain(spec local.Spec, settings local.Settings, run func(context.Context, *local.Federation) (code int, err error)) {
	code, err := withFederation(spec, settings, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withFederation(spec local.Spec, settings local.Settings, run func(context.Context, *local.Federation) (int, error)) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	defer cancel()
	dir, err := os.MkdirTemp("", "cellplane-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return 1, err
	}
	federation, err := local.Open(dir, spec, local.Options{Binaries: binaries, NoFsync: true, Settings: &settings})
	if err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, federation.Stop(context.Background()))
		federation.Close()
	}()
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return 1, err
	}
	return run(ctx, federation)
}

// ProgramMain is the TestMain of packages that test the program: it builds cellplane, sets path, runs the tests and exits.
// Such packages must import internal/cli, so that the test cache depends on the program.
func ProgramMain(m *testing.M, path *string) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cellplane-program-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		*path = filepath.Join(dir, "cellplane")
		build := exec.Command("go", "build", "-o", *path, "github.com/cellplane/cellplane/cmd/cellplane")
		if output, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building cellplane: %v\n%s", err, output)
			return 1
		}
		return m.Run()
	}())
}
