package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "cellplane-images-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// tinySource is a program with one dependency, which this module also has.
const tinySource = `package main

import (
	"os"

	"golang.org/x/mod/semver"
)

func main() { os.Stdout.WriteString(semver.Major("v1.2.3") + "\n") }
`

// tiny writes the source of a program into a new directory.
func tiny(source string) (*program, error) {
	dir, err := os.MkdirTemp(scratch, "tiny-")
	if err != nil {
		return nil, err
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/tiny\n\ngo 1.26.0\n\nrequire golang.org/x/mod v0.42.0\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644),
	)
	return &program{
		name: "tiny", description: "A program for tests", module: dir, pkg: ".", version: "v1.2.3", revision: "0123abc",
		source: "https://example.com/tiny", licenses: "MIT", roots: true, state: "/var/lib/tiny",
	}, err
}

func newBuilder(output string) *builder {
	return &builder{platforms: defaultPlatforms, output: output, created: time.Unix(0, 0).UTC(), log: func(string, ...any) {}}
}

// first is an image that most tests share. Nobody changes its files.
var first = sync.OnceValues(func() (*built, error) {
	p, err := tiny(tinySource)
	if err != nil {
		return nil, err
	}
	return newBuilder(filepath.Join(scratch, "first")).build(context.Background(), p)
})

func built1(t *testing.T) *built {
	t.Helper()
	b, err := first()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDigestsDependOnTheSourceAlone(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		same   bool
	}{
		"same source":  {tinySource, true},
		"other source": {strings.Replace(tinySource, "v1.2.3", "v2.0.0", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOFLAGS", "-tags=other -buildvcs=true")
			p, err := tiny(test.source)
			if err != nil {
				t.Fatal(err)
			}
			again, err := newBuilder(t.TempDir()).build(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got := again.index == built1(t).index; got != test.same {
				t.Errorf("the index is the same: %t, want %t (%s, %s)", got, test.same, again.index, built1(t).index)
			}
			want, err := os.ReadFile(filepath.Join(string(built1(t).path), "index.json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(string(again.path), "index.json"))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got, want) != test.same {
				t.Errorf("index.json, with the SBOMs, is the same: %t, want %t", !test.same, test.same)
			}
		})
	}
}

func TestLayoutIsValid(t *testing.T) {
	path := built1(t).path
	index, referrers, err := readLayout(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if len(referrers) != len(defaultPlatforms) {
		t.Errorf("there are %d SBOMs, want %d", len(referrers), len(defaultPlatforms))
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		if descriptor.ArtifactType != "" {
			t.Errorf("an image has the artifact type %s", descriptor.ArtifactType)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %s, want %s", platforms, want)
	}
	if manifest.Annotations["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("the index has the annotations %v", manifest.Annotations)
	}
	root, err := layout.ImageIndexFromPath(string(path))
	if err != nil {
		t.Fatal(err)
	}
	top, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := top.Manifests[0].Annotations[refName]; got != "v1.2.3" {
		t.Errorf("the tag in the layout is %q", got)
	}
}

func TestConfig(t *testing.T) {
	index, _, err := readLayout(built1(t).path)
	if err != nil {
		t.Fatal(err)
	}
	for _, done := range built1(t).images {
		image, err := index.Image(done.digest)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config := file.Config
		if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/usr/local/bin/tiny"}) || len(config.Cmd) != 0 || config.WorkingDir != "/" {
			t.Errorf("%s: config %+v", done.platform, config)
		}
		if file.Platform().String() != done.platform.String() || !file.Created.IsZero() && file.Created.Unix() != 0 {
			t.Errorf("%s: platform %s, created %s", done.platform, file.Platform(), file.Created)
		}
		if _, ok := config.Volumes["/var/lib/tiny"]; !ok || len(config.Volumes) != 1 {
			t.Errorf("%s: volumes %v", done.platform, config.Volumes)
		}
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"source": "https://example.com/tiny", "version": "v1.2.3", "revision": "0123abc", "licenses": "MIT", "title": "tiny"} {
			key = "org.opencontainers.image." + key
			if config.Labels[key] != want || manifest.Annotations[key] != want {
				t.Errorf("%s: label %s is %q, annotation %q, want %q", done.platform, key, config.Labels[key], manifest.Annotations[key], want)
			}
		}
	}
}

// TestFiles lists everything in an image: there is no shell, nothing that the user may change but its state, and the
// program is static and of the right architecture.
func TestFiles(t *testing.T) {
	want := []string{
		"drwxr-xr-x 0:0 etc/",
		"drwxr-xr-x 0:0 etc/ssl/",
		"drwxr-xr-x 0:0 etc/ssl/certs/",
		"-rw-r--r-- 0:0 etc/ssl/certs/ca-certificates.crt",
		"drwxr-xr-x 0:0 usr/",
		"drwxr-xr-x 0:0 usr/local/",
		"drwxr-xr-x 0:0 usr/local/bin/",
		"-rwxr-xr-x 0:0 usr/local/bin/tiny",
		"drwxr-xr-x 0:0 var/",
		"drwxr-xr-x 0:0 var/lib/",
		"drwx------ 65532:65532 var/lib/tiny/",
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	index, _, err := readLayout(built1(t).path)
	if err != nil {
		t.Fatal(err)
	}
	for _, done := range built1(t).images {
		image, err := index.Image(done.digest)
		if err != nil {
			t.Fatal(err)
		}
		files, contents := filesOf(t, image)
		if !slices.Equal(files, want) {
			t.Errorf("%s: files\n%s\nwant\n%s", done.platform, strings.Join(files, "\n"), strings.Join(want, "\n"))
		}
		program, err := elf.NewFile(bytes.NewReader(contents["usr/local/bin/tiny"]))
		if err != nil {
			t.Fatal(err)
		}
		if program.Machine != machines[done.platform.Architecture] {
			t.Errorf("%s: the program is for %s", done.platform, program.Machine)
		}
		for _, segment := range program.Progs {
			if segment.Type == elf.PT_INTERP {
				t.Errorf("%s: the program is not static", done.platform)
			}
		}
		if n := bytes.Count(contents[rootsFile], []byte("BEGIN CERTIFICATE")); n < 100 {
			t.Errorf("%s: there are %d certificates", done.platform, n)
		}
	}
}

// filesOf returns a line about each file of an image, and the contents by name.
func filesOf(t *testing.T, image v1.Image) (lines []string, contents map[string][]byte) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	contents = map[string][]byte{}
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return lines, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s has the time %s and the owner %s:%s", header.Name, header.ModTime, header.Uname, header.Gname)
		}
		lines = append(lines, fmt.Sprintf("%s %d:%d %s", header.FileInfo().Mode(), header.Uid, header.Gid, header.Name))
		if contents[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFailedBuild(t *testing.T) {
	output := t.TempDir()
	p, err := tiny(tinySource)
	if err != nil {
		t.Fatal(err)
	}
	before, err := newBuilder(output).build(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.module, "broken_arm64.go"), []byte("package main\n\nvar _ = missing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = newBuilder(output).build(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "building tiny for linux/arm64") || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("the build failed with %v; want the program, the platform and the cause", err)
	}
	index, _, err := readLayout(before.path)
	if err != nil {
		t.Fatalf("the earlier image is gone: %v", err)
	}
	if digest, err := index.Digest(); err != nil || digest != before.index {
		t.Errorf("the earlier image is now %s (%v), want %s", digest, err, before.index)
	}
	left, err := filepath.Glob(filepath.Join(output, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the failed build left %s behind (%v)", left, err)
	}
}

func TestOptions(t *testing.T) {
	t.Chdir("..") // the repository
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is built
	for args, want := range map[string]string{
		"-only kubelet":           `-only: there is no program "kubelet"; choose from cellplane, etcd, kube-apiserver, kube-controller-manager`,
		"-platform windows/amd64": `-platform: "windows/amd64" is not supported; choose from linux/amd64,linux/arm64`,
		"-push registry.io/UPPER": `-push: "registry.io/UPPER" is not a registry with a path in lower case`,
		"-push cellplane":         `-push: "cellplane" is not a registry`,
		"-tag a/b":                `-tag: "a/b" cannot be the tag of an image`,
		"-version 1+2":            `the version "1+2" of cellplane cannot be the tag of an image`,
		"cellplane":               `unexpected argument "cellplane"`,
		"-frobnicate":             `flag provided but not defined: -frobnicate`,
		"-prefix localhost//a":    `-prefix: "localhost//a" is not a registry`,
	} {
		err := run(ctx, strings.Fields(args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %s", args, err, want)
		}
	}
	for _, args := range []string{"", "-push localhost:5000", "-push 127.0.0.1:5000/a/b_c", "-prefix registry.example.com/cellplane/", "-platform linux/arm64,linux/amd64 -only etcd,cellplane"} {
		if err := run(ctx, strings.Fields(args), io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v, want a build that is interrupted", args, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run(ctx, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("a bad date: %v", err)
	}
	t.Chdir(t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if err := run(ctx, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "run it in the root of the repository") {
		t.Errorf("outside of the repository: %v", err)
	}
}

func TestPrograms(t *testing.T) {
	all, err := allPrograms(t.Context(), "..", "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.pkg == "" || p.version == "" || p.source == "" || p.licenses == "" || p.description == "" {
			t.Errorf("%s lacks something: %+v", p.name, p)
		}
		if (p.revision != "") != (p.name == "cellplane") && p.name != "cellplane" {
			t.Errorf("%s has the revision %s of this repository", p.name, p.revision)
		}
	}
}
