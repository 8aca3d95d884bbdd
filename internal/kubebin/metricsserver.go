package kubebin

import (
	"context"
	_ "embed" // for the pins

	"github.com/cellplane/cellplane/internal/gobin"
)

// MetricsServer is the file name of metrics-server.
const MetricsServer = "metrics-server"

const metricsServerModule = "sigs.k8s.io/metrics-server"

var (
	//go:embed pin/metrics-server.mod.txt
	metricsServerMod []byte
	//go:embed pin/metrics-server.sum.txt
	metricsServerSum []byte
)

// EnsureMetricsServer returns a directory with metrics-server, like [Ensure]. It needs other versions than Kubernetes of what both need, so their builds share
// little. A federation works without it: it is built at a low priority.
func EnsureMetricsServer(ctx context.Context, progress Progress) (Binaries, error) {
	return metricsServer().Ensure(ctx, progress)
}

// MetricsServerBuilt reports whether EnsureMetricsServer would return without a build.
func MetricsServerBuilt() bool { return metricsServer().Built() }

func metricsServer() *gobin.Set {
	version := versionIn(metricsServerMod, metricsServerModule)
	return &gobin.Set{
		Title: "metrics-server " + version, Cache: "kube/metrics-server-" + version, Given: DirEnv, Background: true,
		Files: map[string][]byte{"go.mod": metricsServerMod, "go.sum": metricsServerSum},
		Programs: []gobin.Program{{
			Name: MetricsServer, Package: metricsServerModule + "/cmd/metrics-server", Version: version,
			LDFlags: []string{"-s", "-w", "-X", "k8s.io/client-go/pkg/version.gitVersion=" + version},
		}},
	}
}
