// Package metricsserver runs metrics-server in clusters of tests. It has its own go.mod, in program, because it is no dependency, and needs other versions of
// what Kubernetes needs.
package metricsserver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/cellplane/cellplane/internal/testenv/aggregated"
)

// Resolution is how often nodes are read. It is the shortest that metrics-server accepts. What a pod uses is known after two readings.
const Resolution = "10s"

// Build builds metrics-server, and returns its path.
func Build(t testing.TB) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	check(t, err)
	program := filepath.Join(t.TempDir(), "metrics-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "sigs.k8s.io/metrics-server/cmd/metrics-server")
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "internal", "testenv", "metricsserver", "program")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building metrics-server: %v: %s", err, out)
	}
	return program
}

// Start runs metrics-server in a cluster until the test ends. It reads the nodes as the user of the configuration, and waits until the cluster serves the API.
func Start(t testing.TB, program string, cluster *rest.Config) {
	t.Helper()
	dir := t.TempDir()
	service := aggregated.New("kube-system", "metrics-server")
	service.Port = freePort(t)
	pair := service.Certificate(t, dir)
	cluster = rest.CopyConfig(cluster)
	check(t, rest.LoadTLSFiles(cluster))
	kubeconfig, ca := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cluster.crt")
	check(t, clientcmd.WriteToFile(kubeconfigOf(cluster), kubeconfig))
	check(t, os.WriteFile(ca, cluster.CAData, 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	check(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(int(service.Port)), "--tls-cert-file="+pair.CertFile, "--tls-private-key-file="+pair.KeyFile,
		"--metric-resolution="+Resolution, "--kubelet-request-timeout=5s", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+ca,
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if output, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("metrics-server of %s:\n%s", cluster.Host, output[max(0, len(output)-4096):])
		}
	})
	service.Register(t, cluster, v1beta1.SchemeGroupVersion)
}

func kubeconfigOf(config *rest.Config) clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.CurrentContext = "cluster"
	out.Clusters["cluster"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["cluster"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	out.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "cluster"}
	return *out
}

// freePort returns a port at which nobody listens now.
func freePort(t testing.TB) int32 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
