package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// buildImages builds archives of all images, as `make images` does.
func buildImages(ctx context.Context, dir string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the module: %w", err)
	}
	b := imageBuilder{root: strings.TrimSpace(string(out)), program: filepath.Join(dir, "cellplane-images"), to: filepath.Join(dir, "images")}
	if err := os.Mkdir(b.to, 0o755); err != nil {
		return nil, err
	}
	if _, err := run(exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(b.root, "images"), "-o", b.program, ".")); err != nil {
		return nil, err
	}
	// What the linker gets, so that the image is made again if the program has changed.
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-f", "{{.BuildID}}", "./cmd/cellplane")
	list.Dir = b.root
	sources, err := run(list)
	if err != nil {
		return nil, err
	}
	if err := b.ensure(ctx, "own", sources, own); err != nil {
		return nil, err
	}
	pins, err := os.ReadFile(filepath.Join(b.root, "kube", "go.sum"))
	if err != nil {
		return nil, err
	}
	return map[string]string{imagesData: b.to}, b.ensure(ctx, "pinned", pins, pinned...)
}

// own is the program of the image of Cellplane, and pinned are those of the others.
const own = "cellplane"

var pinned = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

func run(command *exec.Cmd) ([]byte, error) {
	out, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return out, nil
}

// imageBuilder builds images with a program, in a repository, and puts their archives into a directory.
type imageBuilder struct{ root, program, to string }

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
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	key, err := b.key(sources)
	if err != nil {
		return err
	}
	// The key is written last: without it, nothing counts.
	keyFile := filepath.Join(dir, "key")
	if present, err := os.ReadFile(keyFile); err != nil || string(present) != key {
		if err := os.RemoveAll(keyFile); err != nil {
			return err
		}
		build := exec.CommandContext(ctx, b.program, "-only", strings.Join(programs, ","), "-output", dir, "-platform", "linux/"+runtime.GOARCH, "-version", imageTag, "-prefix", imagePrefix, "-tar")
		build.Dir = b.root
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

// key depends on the sources of images and on those of the program that makes them.
func (b *imageBuilder) key(sources []byte) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, len(sources))
	h.Write(sources)
	for _, pattern := range []string{"*.go", "go.mod"} {
		files, err := filepath.Glob(filepath.Join(b.root, "images", pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, filepath.Base(file), len(content))
			h.Write(content)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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
	for _, program := range append([]string{own}, pinned...) {
		if err := node.Import(t.Context(), filepath.Join(enclosure.Inside().Data[imagesData], program+".tar")); err != nil {
			t.Fatal(err)
		}
	}
}
