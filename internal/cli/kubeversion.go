package cli

import (
	"runtime/debug"
	"strings"

	componentversion "k8s.io/component-base/version"

	_ "unsafe" // for go:linkname
)

// Kubernetes' own build stamps these variables with linker flags. They are linked by name here, so that a plain
// `go build` or `go install` stamps them too: `kubectl version` fails without a version.
var (
	//go:linkname gitVersion k8s.io/component-base/version.gitVersion
	gitVersion string
	//go:linkname gitMajor k8s.io/component-base/version.gitMajor
	gitMajor string
	//go:linkname gitMinor k8s.io/component-base/version.gitMinor
	gitMinor string
	//go:linkname gitCommit k8s.io/component-base/version.gitCommit
	gitCommit string
)

// stampKubernetesVersion makes the built-in kubectl report the Kubernetes release it was built from. A version that was
// stamped by the linker is kept.
func stampKubernetesVersion() error {
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.Contains(gitVersion, "$Format") {
		return nil
	}
	for _, module := range info.Deps {
		if module.Path != "k8s.io/client-go" {
			continue
		}
		version, ok := kubernetesVersion(module.Version)
		if !ok {
			return nil
		}
		parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
		gitVersion, gitMajor, gitMinor, gitCommit = version, parts[0], parts[1], ""
		return componentversion.SetDynamicVersion(version)
	}
	return nil
}

// kubernetesVersion returns the Kubernetes release of a version of k8s.io/client-go: v0.36.3 belongs to v1.36.3.
func kubernetesVersion(clientGo string) (string, bool) {
	rest, ok := strings.CutPrefix(clientGo, "v0.")
	if !ok || strings.Count(rest, ".") < 1 {
		return "", false
	}
	return "v1." + rest, true
}
