package realnode

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/cellplane/cellplane/internal/gobin"
)

// Image is an image with the commands of the program in programs/toolbox. Containers of it serve on port 8080, unless they get another command.
const Image = "localhost/test/toolbox:1"

// pauseImage is that of the container that holds the namespaces of a pod.
const pauseImage = "localhost/test/pause:1"

// commands are those that kubectl runs in containers.
var commands = []string{"cat", "echo", "hostname", "tar", "test"}

// Import adds the images in an archive to the node.
func (n *Node) Import(ctx context.Context, archive string) error {
	out, err := exec.CommandContext(ctx, n.runtime.Path(ctr), "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "--local", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("importing %s: %w: %s", filepath.Base(archive), err, out)
	}
	return nil
}

// importToolbox makes and imports the images for tests and for the containers that hold namespaces.
func (n *Node) importToolbox(ctx context.Context) error {
	archive := filepath.Join(n.dir, "toolbox.tar")
	if err := writeToolbox(n.runtime, archive); err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	return n.Import(ctx, archive)
}

// writeToolbox writes an archive with two images that have the same layer.
func writeToolbox(binaries gobin.Binaries, file string) error {
	program, err := os.ReadFile(binaries.Path(toolbox))
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(header tar.Header, content []byte) {
		header.Size = int64(len(content))
		if err == nil {
			err = w.WriteHeader(&header)
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	add(tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/" + toolbox, Typeflag: tar.TypeReg, Mode: 0o755}, program)
	for _, command := range commands {
		add(tar.Header{Name: "bin/" + command, Typeflag: tar.TypeSymlink, Linkname: toolbox, Mode: 0o777}, nil)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w = tar.NewWriter(out)
	type manifest struct {
		Config           string
		RepoTags, Layers []string
	}
	digest := sha256.Sum256(layer.Bytes())
	var manifests []manifest
	for name, argument := range map[string]string{Image: "serve", pauseImage: "pause"} {
		config, _ := json.Marshal(map[string]any{
			"os": "linux", "architecture": runtime.GOARCH,
			"config": map[string]any{"Entrypoint": []string{"/bin/" + toolbox}, "Cmd": []string{argument}, "Env": []string{"PATH=/bin"}, "User": "65532:65532"},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
		})
		add(tar.Header{Name: argument + ".json", Typeflag: tar.TypeReg, Mode: 0o644}, config)
		manifests = append(manifests, manifest{argument + ".json", []string{name}, []string{"layer.tar"}})
	}
	list, _ := json.Marshal(manifests)
	add(tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644}, layer.Bytes())
	add(tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644}, list)
	if err != nil {
		return err
	}
	return w.Close()
}
