package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// containerdName is the annotation from which containerd takes the name of an imported image.
const containerdName = "io.containerd.image.name"

// writeArchive writes the images of a layout, without SBOMs, as one OCI archive, with the name that containers use. It
// replaces an older archive when it is complete.
func writeArchive(b *built, prefix, file string, created time.Time) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing the archive of %s: %w", b.program.name, err)
		}
	}()
	scratch, err := os.CreateTemp(filepath.Dir(file), ".archive-")
	if err != nil {
		return err
	}
	defer os.Remove(scratch.Name())
	defer scratch.Close()
	if err := b.archive(scratch, prefix, created); err != nil {
		return err
	}
	if err := scratch.Chmod(0o644); err != nil {
		return err
	}
	if err := scratch.Close(); err != nil {
		return err
	}
	return os.Rename(scratch.Name(), file)
}

func (b *built) archive(w io.Writer, prefix string, created time.Time) error {
	index, _, err := readLayout(b.path)
	if err != nil {
		return err
	}
	root, err := partial.Descriptor(index)
	if err != nil {
		return err
	}
	root.Annotations = map[string]string{refName: b.tag, containerdName: prefix + "/" + b.program.name + ":" + b.tag}
	rootIndex, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*root}})
	if err != nil {
		return err
	}
	blobs, err := blobsOf(index, root.Digest)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	header := func(name string, size int64) error {
		return out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR})
	}
	for _, entry := range []struct {
		name    string
		content []byte
	}{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", rootIndex}} {
		if err := header(entry.name, int64(len(entry.content))); err != nil {
			return err
		}
		if _, err := out.Write(entry.content); err != nil {
			return err
		}
	}
	for _, blob := range blobs {
		content, err := os.Open(filepath.Join(string(b.path), "blobs", blob.Algorithm, blob.Hex))
		if err != nil {
			return err
		}
		info, err := content.Stat()
		if err == nil {
			err = header("blobs/"+blob.Algorithm+"/"+blob.Hex, info.Size())
		}
		if err == nil {
			_, err = io.Copy(out, content)
		}
		content.Close()
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// blobsOf returns the digests of an index and of all that it needs, sorted.
func blobsOf(index v1.ImageIndex, digest v1.Hash) ([]v1.Hash, error) {
	blobs := map[v1.Hash]bool{digest: true}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, descriptor := range manifest.Manifests {
		blobs[descriptor.Digest] = true
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return nil, err
		}
		content, err := image.Manifest()
		if err != nil {
			return nil, err
		}
		blobs[content.Config.Digest] = true
		for _, layer := range content.Layers {
			blobs[layer.Digest] = true
		}
	}
	return slices.SortedFunc(maps.Keys(blobs), func(a, b v1.Hash) int { return strings.Compare(a.Hex, b.Hex) }), nil
}
