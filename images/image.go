package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// userID is the user and group of the programs, which own nothing in an image but their state. It has no name.
	userID = 65532
	binDir = "usr/local/bin"
)

// newImage returns the image of a compiled program.
func newImage(p *program, platform v1.Platform, binary string, created time.Time) (v1.Image, error) {
	layer, err := newLayer(p, binary, created)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "cellplane images", Comment: p.name + " " + p.version},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: created}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", userID, userID),
		Entrypoint: []string{"/" + path.Join(binDir, p.name)},
		Env:        []string{"PATH=/" + binDir},
		WorkingDir: "/",
		Labels:     p.labels(),
	}
	if p.state != "" {
		config.Config.Volumes = map[string]struct{}{p.state: {}}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, p.labels()).(v1.Image), nil
}

// labels returns the labels of an image, which are also the annotations of its manifest and index.
func (p *program) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       p.name,
		"org.opencontainers.image.description": p.description,
		"org.opencontainers.image.source":      p.source,
		"org.opencontainers.image.version":     p.version,
		"org.opencontainers.image.licenses":    p.licenses,
	}
	if p.revision != "" {
		labels["org.opencontainers.image.revision"] = p.revision
	}
	return labels
}

// newLayer returns the only layer of an image: the program, its directory for state, and certificates if it needs them.
func newLayer(p *program, binary string, created time.Time) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(writeFiles(writer, p, binary, created)) }()
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// file is an entry of a layer. Directories end with a slash.
type file struct {
	name  string
	mode  int64
	owner int
	size  int64
	open  func() (io.ReadCloser, error)
}

// writeFiles writes the files of an image, sorted by name.
func writeFiles(w io.Writer, p *program, binary string, created time.Time) error {
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	files := []file{{name: path.Join(binDir, p.name), mode: 0o755, size: info.Size(), open: func() (io.ReadCloser, error) { return os.Open(binary) }}}
	if p.roots {
		content := publicRoots()
		files = append(files, file{name: rootsFile, mode: 0o644, size: int64(len(content)), open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}})
	}
	if p.state != "" {
		files = append(files, file{name: strings.TrimPrefix(p.state, "/") + "/", mode: 0o700, owner: userID})
	}
	archive := tar.NewWriter(w)
	for _, f := range withParents(files) {
		if err := f.write(archive, created); err != nil {
			return fmt.Errorf("adding %s to the image of %s: %w", f.name, p.name, err)
		}
	}
	return archive.Close()
}

// withParents adds the directories above the files, and sorts them all.
func withParents(files []file) []file {
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.name] = true
	}
	for _, f := range slices.Clone(files) {
		for dir := path.Dir(strings.TrimSuffix(f.name, "/")); dir != "."; dir = path.Dir(dir) {
			if !seen[dir+"/"] {
				seen[dir+"/"] = true
				files = append(files, file{name: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

func (f *file) write(archive *tar.Writer, created time.Time) error {
	header := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: f.size, ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if f.open == nil {
		header.Typeflag = tar.TypeDir
	}
	if err := archive.WriteHeader(header); err != nil || f.open == nil {
		return err
	}
	content, err := f.open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(archive, content)
	return err
}
