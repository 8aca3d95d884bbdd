// Package helmtest runs Helm in tests. Helm has its own go.mod, in program, because it is a test client and not a dependency.
package helmtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Helm is a Helm with its own configuration.
type Helm struct{ program, home, kubeconfig string }

// New builds Helm, which uses the current context of a kubeconfig.
func New(t testing.TB, kubeconfig string) *Helm {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("looking for the module: %v", err)
	}
	home := t.TempDir()
	h := &Helm{program: filepath.Join(home, "helm"), home: home, kubeconfig: kubeconfig}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", h.program, "helm.sh/helm/v4/cmd/helm")
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "internal", "testenv", "helmtest", "program")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building Helm: %v: %s", err, out)
	}
	return h
}

// Command returns a command of Helm for a namespace.
func (h *Helm) Command(ctx context.Context, namespace string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, h.program, append([]string{"--namespace", namespace}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HOME="+h.home, "HELM_CACHE_HOME="+h.home, "HELM_CONFIG_HOME="+h.home, "HELM_DATA_HOME="+h.home)
	return command
}
