package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cellplane/cellplane/internal/kubebin"
)

const (
	repositoryURL = "https://github.com/cellplane/cellplane"
	kubernetesURL = "https://github.com/kubernetes/kubernetes"
	etcdURL       = "https://github.com/etcd-io/etcd"
	apache        = "Apache-2.0"
)

// program is a program that gets an image.
type program struct {
	name        string
	description string
	module      string // directory of the module in which it is built
	pkg         string // main package
	ldflags     []string

	version  string
	revision string // of the source; empty if it is not known
	source   string // URL of the source
	licenses string // SPDX expression

	roots bool   // whether it calls servers with public certificates
	state string // directory that it writes to; empty if there is none
}

// allPrograms returns the programs of a repository in the order in which they are built.
func allPrograms(ctx context.Context, root, version string) ([]program, error) {
	kube := filepath.Join(root, "kube")
	for _, file := range []string{filepath.Join(root, "cmd", "cellplane"), filepath.Join(kube, "go.mod")} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("there is no %s: run it in the root of the repository of Cellplane", file)
		}
	}
	revision := git(ctx, root, "rev-parse", "HEAD")
	if version == "" {
		version = git(ctx, root, "describe", "--tags", "--always", "--dirty")
	}
	if version == "" {
		version = "devel"
	}
	all := []program{
		{
			name: "cellplane", description: "All parts of Cellplane: many Kubernetes clusters as one",
			module: root, pkg: "./cmd/cellplane", ldflags: []string{"-X", "github.com/cellplane/cellplane/internal/cli.stamped=" + version},
			version: version, revision: revision, source: repositoryURL, licenses: apache,
			roots: true, state: "/var/lib/cellplane",
		},
		{
			name: kubebin.Etcd, description: "etcd, as Cellplane runs it", source: etcdURL, licenses: apache,
			state: "/var/lib/etcd",
		},
		{name: kubebin.KubeAPIServer, description: "The API server of Kubernetes, as Cellplane runs it", source: kubernetesURL, licenses: apache, roots: true},
		{name: kubebin.KubeControllerManager, description: "The controllers of Kubernetes, as Cellplane runs them", source: kubernetesURL, licenses: apache},
	}
	for i := range all[1:] {
		p := &all[1+i]
		pinned, err := kubebin.SourceOf(p.name)
		if err != nil {
			return nil, err
		}
		p.module, p.pkg, p.version, p.ldflags = kube, pinned.Package, pinned.Version, pinned.LDFlags
	}
	for _, p := range all {
		if !tag.MatchString(p.version) {
			return nil, fmt.Errorf("the version %q of %s cannot be the tag of an image; give another one with -version", p.version, p.name)
		}
	}
	return all, nil
}

// tag matches what a registry accepts as a tag.
var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// git returns the output of a git command, or nothing if the source is not in a repository of git.
func git(ctx context.Context, dir string, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
