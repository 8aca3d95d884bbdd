package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with the tag of an image in a layout.
const refName = "org.opencontainers.image.ref.name"

// builder builds images into a directory.
type builder struct {
	platforms []v1.Platform
	output    string // directory
	tag       string // of all images; empty for the version of each
	created   time.Time
	log       func(format string, args ...any)
}

// built is a finished image.
type built struct {
	program *program
	tag     string
	path    layout.Path
	index   v1.Hash
	images  []builtImage
}

// builtImage is the image of one platform.
type builtImage struct {
	platform v1.Platform
	digest   v1.Hash
	size     int64 // of the compressed layer
}

// build compiles a program for all platforms and writes its OCI layout, which replaces an older one when it is complete.
func (b *builder) build(ctx context.Context, p *program) (*built, error) {
	if err := os.MkdirAll(b.output, 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory for images: %w", err)
	}
	scratch, err := os.MkdirTemp(b.output, ".build-")
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", p.name, err)
	}
	defer os.RemoveAll(scratch)
	result := &built{program: p, tag: b.tag, path: layout.Path(filepath.Join(b.output, p.name))}
	if result.tag == "" {
		result.tag = p.version
	}

	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var sboms []v1.Image
	for _, platform := range b.platforms {
		b.log("building %s %s for %s", p.name, p.version, platform)
		image, sbom, document, err := b.buildPlatform(ctx, p, platform, scratch)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(b.output, documentName(p, platform)), document, 0o644); err != nil {
			return nil, err
		}
		done, err := describe(image, platform)
		if err != nil {
			return nil, err
		}
		result.images = append(result.images, done)
		sboms = append(sboms, sbom)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: plain{image}, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	index = mutate.Annotations(index, p.labels()).(v1.ImageIndex)
	if result.index, err = index.Digest(); err != nil {
		return nil, err
	}
	if err := writeLayout(filepath.Join(scratch, "layout"), result.tag, index, sboms); err != nil {
		return nil, fmt.Errorf("writing the image of %s: %w", p.name, err)
	}
	if err := replace(filepath.Join(scratch, "layout"), string(result.path), filepath.Join(scratch, "old")); err != nil {
		return nil, fmt.Errorf("writing the image of %s: %w", p.name, err)
	}
	return result, nil
}

// buildPlatform returns the image for a platform, and its SBOM as a referrer and as a document.
func (b *builder) buildPlatform(ctx context.Context, p *program, platform v1.Platform, scratch string) (image, sbom v1.Image, document []byte, err error) {
	binary := filepath.Join(scratch, strings.ReplaceAll(platform.String(), "/", "-"), p.name)
	if err := compile(ctx, p, platform, binary); err != nil {
		return nil, nil, nil, err
	}
	if image, err = newImage(p, platform, binary, b.created); err != nil {
		return nil, nil, nil, fmt.Errorf("making the image of %s for %s: %w", p.name, platform, err)
	}
	subject, err := partial.Descriptor(plain{image})
	if err != nil {
		return nil, nil, nil, err
	}
	if document, err = newSBOM(p, platform, binary, subject.Digest, b.created); err != nil {
		return nil, nil, nil, err
	}
	sbom, err = newArtifact(document, spdxType, *subject, map[string]string{"org.opencontainers.image.created": b.created.Format(time.RFC3339)})
	return image, sbom, document, err
}

func documentName(p *program, platform v1.Platform) string {
	return fmt.Sprintf("%s-%s-%s.spdx.json", p.name, platform.OS, platform.Architecture)
}

// plain is an image that is not an artifact: descriptors of it have no artifact type.
type plain struct{ v1.Image }

// ArtifactType implements an optional method of images.
func (plain) ArtifactType() (string, error) { return "", nil }

func describe(image v1.Image, platform v1.Platform) (builtImage, error) {
	digest, err := image.Digest()
	if err != nil {
		return builtImage{}, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return builtImage{}, err
	}
	return builtImage{platform: platform, digest: digest, size: manifest.Layers[0].Size}, nil
}

// writeLayout writes an index with its tag, and the SBOMs of its images, into a new directory.
func writeLayout(dir, tag string, index v1.ImageIndex, sboms []v1.Image) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
		return err
	}
	for _, sbom := range sboms {
		if err := path.AppendImage(sbom); err != nil {
			return err
		}
	}
	return nil
}

// replace renames a directory over another one, which goes to old.
func replace(dir, target, old string) error {
	if err := os.Rename(target, old); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Rename(dir, target)
}
