package kubebin

import (
	"context"
	_ "embed" // for the pins
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/cellplane/cellplane/internal/gobin"
)

// The file names of the programs.
const (
	Etcd                  = "etcd"
	KubeAPIServer         = "kube-apiserver"
	KubeControllerManager = "kube-controller-manager"
	KubeScheduler         = "kube-scheduler"
	Kwok                  = "kwok"
	Kubelet               = "kubelet"
	KubeProxy             = "kube-proxy"
)

// DirEnv is the environment variable with a directory of prebuilt programs.
const DirEnv = "CELLPLANE_KUBE_BIN"

var (
	//go:embed pin/go.mod.txt
	pinnedMod []byte
	//go:embed pin/go.sum.txt
	pinnedSum []byte
)

// program is a program, its package, and the module with its version.
type program struct{ name, pkg, module string }

var programs = []program{
	{Etcd, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"},
	{KubeAPIServer, "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes"},
	{KubeControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes"},
	{KubeScheduler, "k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes"},
	{Kwok, "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"},
}

// nodePrograms run real nodes. Only tests need them.
var nodePrograms = []program{
	{Kubelet, "k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes"},
	{KubeProxy, "k8s.io/kubernetes/cmd/kube-proxy", "k8s.io/kubernetes"},
}

// Binaries is a directory with all programs.
type Binaries = gobin.Binaries

// Progress is called with the program being built and the number of compiled packages.
type Progress = gobin.Progress

// Ensure returns the programs of control planes and builds them if they are not cached. Concurrent builds wait for each other.
func Ensure(ctx context.Context, progress Progress) (Binaries, error) {
	s := set("Kubernetes "+Version(), "kube/"+Version(), programs)
	s.Given = DirEnv
	return s.Ensure(ctx, progress)
}

// EnsureNode returns the programs of nodes, kubelet and kube-proxy, like [Ensure].
func EnsureNode(ctx context.Context, progress Progress) (Binaries, error) {
	return set("a node of Kubernetes "+Version(), "kube/node-"+Version(), nodePrograms).Ensure(ctx, progress)
}

func set(title, cache string, programs []program) *gobin.Set {
	s := &gobin.Set{Title: title, Cache: cache, Files: map[string][]byte{"go.mod": pinnedMod, "go.sum": pinnedSum}}
	for _, p := range programs {
		s.Programs = append(s.Programs, gobin.Program{Name: p.name, Package: p.pkg, Version: version(p.module), LDFlags: ldflags(p)})
	}
	return s
}

// Version returns the pinned Kubernetes version, for example v1.36.3.
func Version() string { return version("k8s.io/kubernetes") }

func version(module string) string { return versionIn(pinnedMod, module) }

// versionIn returns the version of a module in pins.
func versionIn(pins []byte, module string) string {
	f, err := modfile.Parse("go.mod", pins, nil)
	if err != nil {
		panic(err) // the file is embedded and tested
	}
	for _, r := range f.Require {
		if r.Mod.Path == module {
			return r.Mod.Version
		}
	}
	panic("kubebin: the pins lack " + module)
}

// ldflags returns linker flags that strip a program and stamp its version.
func ldflags(p program) []string {
	flags := []string{"-s", "-w"}
	v := version(p.module)
	switch p.module {
	case "k8s.io/kubernetes":
		major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(v), "v"), ".")
		for _, stamp := range []string{"gitVersion=" + v, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X", "k8s.io/component-base/version."+stamp)
		}
	case "sigs.k8s.io/kwok":
		flags = append(flags, "-X", "sigs.k8s.io/kwok/pkg/consts.Version="+v)
	}
	return flags
}

// Source is how a program is built in a module with the pins.
type Source struct {
	Package string
	Version string // of the module of the package
	LDFlags []string
}

// SourceOf returns how a program is built, for builds other than those of Ensure.
func SourceOf(name string) (Source, error) {
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
	if i < 0 {
		return Source{}, fmt.Errorf("there is no pinned program %q", name)
	}
	p := programs[i]
	return Source{Package: p.pkg, Version: version(p.module), LDFlags: ldflags(p)}, nil
}
