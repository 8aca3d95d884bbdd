package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
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
	pinned      = "etcd,kube-apiserver,kube-controller-manager"
)

// The keys of data from outside.
const (
	ownImageData     = "ownImage"
	pinnedImagesData = "pinnedImages"
)

// buildImages builds archives of all images, as `make images` does. Those of the pinned programs are cached.
func buildImages(ctx context.Context, dir string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	b := imageBuilder{root: root, program: filepath.Join(dir, "cellplane-images")}
	if err := run(exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(root, "images"), "-o", b.program, ".")); err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "images")
	if err := b.build(ctx, own, "cellplane"); err != nil {
		return nil, err
	}
	cached, err := b.cached(ctx)
	return map[string]string{ownImageData: own, pinnedImagesData: cached}, err
}

type imageBuilder struct{ root, program string }

func (b *imageBuilder) build(ctx context.Context, dir, programs string) error {
	command := exec.CommandContext(ctx, b.program, "-only", programs, "-output", dir, "-platform", "linux/"+runtime.GOARCH, "-version", imageTag, "-prefix", imagePrefix, "-tar")
	command.Dir = b.root
	return run(command)
}

func run(command *exec.Cmd) error {
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(command.Path), err, out)
	}
	return nil
}

// cached returns a directory with the images of the pinned programs, and builds them if they have changed. Concurrent builds wait for each other.
func (b *imageBuilder) cached(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := b.key()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "cellplane", "node", "images-"+key)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := b.build(ctx, scratch, pinned); err != nil {
		return "", err
	}
	return dir, os.Rename(scratch, dir)
}

// key depends on the pins and on the sources of the program that builds images.
func (b *imageBuilder) key() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH)
	for _, module := range []string{"kube", "images"} {
		err := fs.WalkDir(os.DirFS(filepath.Join(b.root, module)), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(filepath.Join(b.root, module, path))
			fmt.Fprintln(h, module, path, len(content))
			h.Write(content)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// importImages adds the images of the chart to the node.
func importImages(t *testing.T, node *realnode.Node) {
	t.Helper()
	data := enclosure.Inside().Data
	archives := []string{filepath.Join(data[ownImageData], "cellplane.tar")}
	for name := range strings.SplitSeq(pinned, ",") {
		archives = append(archives, filepath.Join(data[pinnedImagesData], name+".tar"))
	}
	for _, archive := range archives {
		if err := node.Import(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
}
