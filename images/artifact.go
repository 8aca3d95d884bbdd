package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// emptyType is the media type of the configuration of artifacts, which have none.
const emptyType types.MediaType = "application/vnd.oci.empty.v1+json"

var emptyConfig = []byte("{}")

// artifact is a manifest with one blob that refers to an image: a referrer, as the OCI specification 1.1 calls it.
type artifact struct {
	blob     v1.Layer
	manifest []byte
}

// newArtifact returns a referrer of a subject.
func newArtifact(content []byte, artifactType string, subject v1.Descriptor, annotations map[string]string) (v1.Image, error) {
	blob := static.NewLayer(content, types.MediaType(artifactType))
	layer, err := partial.Descriptor(blob)
	if err != nil {
		return nil, err
	}
	configHash, configSize, err := v1.SHA256(bytes.NewReader(emptyConfig))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifactType,
		Config:      v1.Descriptor{MediaType: emptyType, Size: configSize, Digest: configHash},
		Layers:      []v1.Descriptor{*layer},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest},
		Annotations: annotations,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{blob: blob, manifest: manifest})
}

func (a *artifact) RawConfigFile() ([]byte, error)      { return emptyConfig, nil }
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	digest, err := a.blob.Digest()
	if err != nil {
		return nil, err
	}
	if h != digest {
		return nil, fmt.Errorf("the artifact has no blob %s", h)
	}
	return a.blob, nil
}
