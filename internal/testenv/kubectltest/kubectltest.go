// Package kubectltest runs kubectl in tests as a separate process: the test binary itself.
package kubectltest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/kubectl/pkg/cmd"
)

// env makes a test binary run kubectl instead of its tests.
const env = "CELLPLANE_TEST_KUBECTL"

// Main is the TestMain of packages that use kubectl.
func Main(m *testing.M) {
	Run()
	os.Exit(m.Run())
}

// Run runs kubectl and exits if the process was started for that. It is for packages with a TestMain of their own.
func Run() {
	if os.Getenv(env) == "" {
		return
	}
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Kubectl is kubectl with a kubeconfig file.
type Kubectl string

// Must runs a command that must succeed and returns its output.
func (k Kubectl) Must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := k.Try(t.Context(), t, "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Try runs a command and returns its output.
func (k Kubectl) Try(ctx context.Context, t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	out := &Output{}
	err := k.To(ctx, t, out, stdin, args...)
	return out.String(), err
}

// To runs a command whose output can be read while it runs.
func (k Kubectl) To(ctx context.Context, t testing.TB, out *Output, stdin string, args ...string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--kubeconfig=" + string(k), "--cache-dir=" + filepath.Join(filepath.Dir(string(k)), "cache")}, args...)
	command := exec.CommandContext(ctx, self, args...)
	command.Env = append(os.Environ(), env+"=1")
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), out, out
	return command.Run()
}

// Output collects the output of a command.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
