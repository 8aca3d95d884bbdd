package gobin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hello is a set with a program of its own module, which needs no other.
func hello() *Set {
	return &Set{
		Title: "Hello", Cache: "hello/v1", Given: "CELLPLANE_HELLO", Background: true,
		Files: map[string][]byte{
			"go.mod":        []byte("module example.com/hello\n\ngo 1.26.0\n"),
			"go.sum":        nil,
			"hello/main.go": []byte("package main\n\nvar version string\n\nfunc main() { println(\"hello\", version) }\n"),
		},
		Programs: []Program{{Name: "greeter", Package: "example.com/hello/hello", Version: "v1", LDFlags: []string{"-X", "main.version=v1"}}},
	}
}

func TestEnsure(t *testing.T) {
	t.Setenv("GOCACHE", goCache(t))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	first, err := hello().Ensure(t.Context(), func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(first.Path("greeter")).CombinedOutput(); err != nil || string(out) != "hello v1\n" {
		t.Errorf("the program says %q (%v)", out, err)
	}
	second, err := hello().Ensure(t.Context(), func(what string, _ int) { t.Errorf("built again: %s", what) })
	if err != nil || second != first {
		t.Fatalf("second Ensure = %v, %v; want %v", second, err, first)
	}
	broken := hello()
	broken.Files["hello/main.go"] = []byte("package main\n\nfunc main() { undefined() }\n")
	if _, err := broken.Ensure(t.Context(), func(string, int) {}); err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("a program that does not compile: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(first.Dir), "build-*")); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

// goCache returns the build cache before the test changes where caches are.
func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(t.Context(), path, "Hello", func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	waiting, acquired := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(acquired)
		unlock2, err := Lock(t.Context(), path, "Hello", func(string, int) { close(waiting) })
		if err != nil {
			t.Error(err)
			return
		}
		unlock2()
	}()
	<-waiting
	select {
	case <-acquired:
		t.Fatal("the second build did not wait for the first")
	default:
	}
	unlock()
	<-acquired
}

func TestLockCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(t.Context(), path, "Hello", func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Lock(ctx, path, "Hello", func(string, int) { cancel() }); err == nil {
		t.Fatal("lock was taken twice")
	}
}

func TestCacheDirDependsOnContent(t *testing.T) {
	before, err := hello().cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Set){
		"a pin":        func(s *Set) { s.Files["go.sum"] = []byte("example.com/x v1.0.0 h1:x=\n") },
		"a flag":       func(s *Set) { s.Programs[0].LDFlags = []string{"-s"} },
		"a tag":        func(s *Set) { s.Programs[0].Tags = []string{"x"} },
		"the use of C": func(s *Set) { s.Programs[0].CGo = true },
	} {
		changed := hello()
		change(changed)
		if after, err := changed.cacheDir(); err != nil || after == before {
			t.Errorf("the cache directory stays %s although %s changed (%v)", after, what, err)
		}
	}
}

func TestPrebuiltProgramsMustBeComplete(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CELLPLANE_HELLO", dir)
	if _, err := hello().Ensure(t.Context(), func(string, int) {}); err == nil || !strings.Contains(err.Error(), "has no program greeter") {
		t.Errorf("Ensure = %v, want an error that names the missing program", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "greeter"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := hello().Ensure(t.Context(), func(string, int) {}); err != nil || got.Dir != dir {
		t.Errorf("Ensure = %v, %v", got, err)
	}
}
