package kubebin

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPinsMatchKubeModule(t *testing.T) {
	for name, embedded := range map[string][]byte{
		"go.mod": pinnedMod, "go.sum": pinnedSum, "metrics-server/go.mod": metricsServerMod, "metrics-server/go.sum": metricsServerSum,
	} {
		want, err := os.ReadFile(filepath.Join("..", "..", "kube", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, embedded) {
			t.Errorf("the embedded %s differs from kube/%s: run `make generate`", name, name)
		}
	}
}

func TestEnsure(t *testing.T) {
	progress := func(what string, packages int) { t.Logf("building %s: %d packages", what, packages) }
	first, err := Ensure(t.Context(), progress)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Ensure(t.Context(), func(what string, _ int) { t.Errorf("built again: %s", what) })
	if err != nil || second != first {
		t.Fatalf("second Ensure = %v, %v; want %v", second, err, first)
	}
	for _, p := range programs {
		out, err := exec.Command(first.Path(p.name), "--version").CombinedOutput()
		if err != nil {
			t.Errorf("%s --version: %v\n%s", p.name, err, out)
		}
		if want := strings.TrimPrefix(version(p.module), "v"); !strings.Contains(string(out), want) {
			t.Errorf("%s reports %q, want %s", p.name, out, want)
		}
	}
}

func TestEnsureMetricsServer(t *testing.T) {
	binaries, err := EnsureMetricsServer(t.Context(), func(what string, packages int) { t.Logf("building %s: %d packages", what, packages) })
	if err != nil || !MetricsServerBuilt() {
		t.Fatal(err)
	}
	out, err := exec.Command(binaries.Path(MetricsServer), "--version").CombinedOutput()
	if want := versionIn(metricsServerMod, metricsServerModule) + "\n"; err != nil || string(out) != want {
		t.Errorf("it reports %q, %v, want %q", out, err, want)
	}
}

func TestPrebuiltProgramsMustBeComplete(t *testing.T) {
	t.Setenv(DirEnv, t.TempDir())
	_, err := Ensure(t.Context(), func(string, int) {})
	if err == nil || !strings.Contains(err.Error(), "has no program etcd") {
		t.Fatalf("Ensure = %v, want an error that names the missing program", err)
	}
	if _, err := EnsureMetricsServer(t.Context(), func(string, int) {}); err == nil || !strings.Contains(err.Error(), "has no program metrics-server") {
		t.Fatalf("EnsureMetricsServer = %v, want an error that names the program", err)
	}
}
