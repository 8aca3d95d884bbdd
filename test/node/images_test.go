package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/gobin"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

const (
	// imageTag is that of the image of Cellplane. It does not depend on the commit.
	imageTag = "under-test"
	// imagePrefix begins the names of all images.
	imagePrefix = "localhost/cellplane"
)

// imagesData is the key of the directory with the archives in the data of the enclosure.
const imagesData = "images"

// imageSources are the directories from which the images are made. What they import of this repository is in the test program too.
var imageSources = []string{"images", "cmd/cellplane", "kube"}

// buildImages builds archives of all images, as `make images` does.
func buildImages(ctx context.Context, o realnode.Outside) (map[string]string, error) {
	b := imageBuilder{Outside: o, program: filepath.Join(o.Dir, "cellplane-images"), to: filepath.Join(o.Dir, "images")}
	if err := os.Mkdir(b.to, 0o755); err != nil {
		return nil, err
	}
	o.Progress("the program that makes images", 0)
	if _, err := run(exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(o.Root, "images"), "-trimpath", "-buildvcs=false", "-o", b.program, ".")); err != nil {
		return nil, err
	}
	// What the linker gets, so that the image is made again if the program has changed.
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-f", "{{.BuildID}}", "./cmd/cellplane")
	list.Dir = o.Root
	packages, err := run(list)
	if err != nil {
		return nil, err
	}
	if err := b.ensure(ctx, "own", packages, own); err != nil {
		return nil, err
	}
	var pins []byte
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(o.Root, "kube", file))
		if err != nil {
			return nil, err
		}
		pins = append(pins, content...)
	}
	return map[string]string{imagesData: b.to}, b.ensure(ctx, "pinned", pins, pinned...)
}

// own is the program of the image of Cellplane, and pinned are those of the others.
const own = "cellplane"

var pinned = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

// run runs a command and returns its standard output.
func run(command *exec.Cmd) ([]byte, error) {
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", command, err, &out, &messages)
	}
	return out.Bytes(), nil
}

// imageBuilder builds images with a program, and puts their archives into a directory.
type imageBuilder struct {
	realnode.Outside
	program, to string
}

// ensure puts the images of programs into the directory. They come from the user's cache if nothing has changed. Concurrent builds wait for each other.
func (b *imageBuilder) ensure(ctx context.Context, name string, sources []byte, programs ...string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "cellplane", "node", "images", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	what := "the images of " + strings.Join(programs, ", ")
	unlock, err := gobin.Lock(ctx, dir+".lock", what, b.Progress)
	if err != nil {
		return err
	}
	defer unlock()
	args := []string{"-only", strings.Join(programs, ","), "-output", dir, "-platform", "linux/" + runtime.GOARCH, "-version", imageTag, "-prefix", imagePrefix, "-tar"}
	// The program contains how all others are built.
	program, err := os.ReadFile(b.program)
	if err != nil {
		return err
	}
	key := gobin.Key(program, []byte(strings.Join(args, " ")), sources)
	// The key is written last: without it, nothing counts.
	keyFile := filepath.Join(dir, "key")
	if present, err := os.ReadFile(keyFile); err != nil || string(present) != key {
		if err := os.RemoveAll(keyFile); err != nil {
			return err
		}
		b.Progress(what, 0)
		build := exec.CommandContext(ctx, b.program, args...)
		build.Dir = b.Root
		if _, err := run(build); err != nil {
			return err
		}
		if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
			return err
		}
	}
	for _, program := range programs {
		if err := copyFile(filepath.Join(dir, program+".tar"), filepath.Join(b.to, program+".tar")); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// importImages adds the images of the chart to the node.
func importImages(t *testing.T, node *realnode.Node) {
	t.Helper()
	if err := realnode.DependOn(imageSources...); err != nil {
		t.Fatal(err)
	}
	for _, program := range append([]string{own}, pinned...) {
		if err := node.Import(t.Context(), filepath.Join(enclosure.Inside().Data[imagesData], program+".tar")); err != nil {
			t.Fatal(err)
		}
	}
}
