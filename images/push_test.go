package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestPush also covers registries that do not know referrers: there they are found by a tag.
func TestPush(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	b := built1(t)
	for name, referrers := range map[string]bool{"with referrers": true, "without referrers": false} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrers)))
			defer server.Close()
			prefix := strings.TrimPrefix(server.URL, "http://") + "/team"
			for range 2 { // the second time everything is there
				if err := push(t.Context(), b, prefix); err != nil {
					t.Fatal(err)
				}
			}
			checkPushed(t, b, prefix)
		})
	}
}

func checkPushed(t *testing.T, b *built, prefix string) {
	t.Helper()
	ref, err := name.ParseReference(prefix + "/tiny:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := index.Digest(); err != nil || digest != b.index {
		t.Errorf("the tag is %s (%v), want %s", digest, err, b.index)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	for _, image := range b.images {
		found, err := remote.Referrers(ref.Context().Digest(image.digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := found.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 1 {
			t.Fatalf("%s has the referrers %+v, want one SBOM", image.platform, manifest.Manifests)
		}
		sbom, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		// The registry of the test reports the type of the configuration instead of the type of the artifact.
		if content, err := sbom.Manifest(); err != nil || content.ArtifactType != spdxType || content.Subject == nil || content.Subject.Digest != image.digest {
			t.Errorf("%s: the manifest of the SBOM is %+v (%v)", image.platform, content, err)
		}
		if got := blobOf(t, sbom); !strings.Contains(got, `"SPDX-2.3"`) || !strings.Contains(got, image.digest.Hex) {
			t.Errorf("%s: the SBOM is %.100s", image.platform, got)
		}
	}
}

func blobOf(t *testing.T, image v1.Image) string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	blob, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(blob)
}

func TestPushRefused(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	err := push(t.Context(), built1(t), strings.TrimPrefix(server.URL, "http://")+"/team")
	if err == nil || !strings.Contains(err.Error(), "pushing tiny") || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("%v; want the program and what to do", err)
	}
}

// TestArchive unpacks an archive, which must be a layout with the same image and the name that containers use.
func TestArchive(t *testing.T) {
	b, dir := built1(t), t.TempDir()
	file := filepath.Join(dir, "tiny.tar")
	if err := writeArchive(b, "localhost/cellplane", file, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	unpacked := filepath.Join(dir, "unpacked")
	untar(t, file, unpacked)
	root, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != b.index || manifest.Manifests[0].Annotations[containerdName] != "localhost/cellplane/tiny:v1.2.3" {
		t.Errorf("the archive has %+v", manifest.Manifests)
	}
	if err := validate.Index(root); err != nil {
		t.Error(err)
	}
}

func untar(t *testing.T, file, dir string) {
	t.Helper()
	content, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		blob, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, blob, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
