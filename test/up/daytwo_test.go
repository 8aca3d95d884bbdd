package up

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/testenv"
)

// certificateValidity is long enough for the start on a slow machine. The supervisor renews when a third is left.
const certificateValidity = 90 * time.Second

// TestDayTwo runs a federation until its certificates have ended, and then lets its control planes be of other releases.
func TestDayTwo(t *testing.T) {
	p := newPlace(t)
	p.supervise(local.Spec{Cells: 1}, local.Options{Binaries: testenv.Binaries(t), Parts: parts.Of(cellplane), NoFsync: true, CertificateValidity: certificateValidity})
	t.Run("Certificates", func(t *testing.T) { place{t, p.dir}.testCertificates() })
	t.Run("Releases", func(t *testing.T) { place{t, p.dir}.testReleases() })
}

// testCertificates waits until all certificates with which the federation has started have ended, and expects that no request fails meanwhile, that every
// server presents another one, that all parts tell of it, and that all this took no restart.
func (p place) testCertificates() {
	t := p.T
	ended := p.lastCertificate()
	if left := time.Until(ended); left > certificateValidity {
		t.Fatalf("certificates end in %s, want %s at most", left, certificateValidity)
	}
	kubeconfig, err := fleet.ReadKubeconfig(local.KubeconfigFile(p.dir), parts.GatewayContext)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(kubeconfig.Config())
	requests := p.request(client)
	testenv.Eventually(t, "the certificates of the start have ended", func(context.Context) (bool, error) {
		return time.Now().After(ended), nil
	})
	p.testRenewed(client, ended)
	if done := requests(); done < 10 {
		t.Errorf("only %d rounds of requests were sent", done)
	}
	p.testAllWork()
	report, _ := p.report()
	for _, process := range report.Processes {
		if process.Restarts > 0 {
			t.Errorf("%s was restarted", process.Name)
		}
	}
}

// supervise runs a federation in this process until the test ends, and returns when it is ready.
func (p place) supervise(spec local.Spec, options local.Options) {
	p.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(p.Context()))
	ended := make(chan error, 1)
	go func() { ended <- local.Supervise(ctx, p.dir, spec, options) }()
	p.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			p.Errorf("the supervisor ended with %v", err)
		}
	})
	client, err := local.NewClient(p.dir)
	if err != nil {
		p.Fatal(err)
	}
	testenv.Eventually(p.T, "the federation is ready", func(ctx context.Context) (bool, error) {
		report, err := client.Report(ctx)
		if report.Phase == local.PhaseFailed {
			p.Fatal(report.Error)
		}
		return report.Phase == local.PhaseReady, err
	})
}

// lastCertificate returns when the last certificate of the federation ends that is no authority.
func (p place) lastCertificate() (last time.Time) {
	p.Helper()
	found := 0
	err := filepath.WalkDir(p.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".crt" {
			return err
		}
		chain, err := cert.CertsFromFile(path)
		if err != nil {
			return err
		}
		if leaf := chain[0]; !leaf.IsCA {
			found++
			if leaf.NotAfter.After(last) {
				last = leaf.NotAfter
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		p.Fatalf("there are %d certificates (%v)", found, err)
	}
	return last
}

// request sends requests to a cell, the hub and the cluster-gateway, through the gateway, until stop is called, which returns how often.
func (p place) request(client kubernetes.Interface) (stop func() (rounds int)) {
	ctx, cancel := context.WithCancel(p.Context())
	counted := make(chan int, 1)
	round := func(n int) error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("reading from the hub: %w", err)
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "round-" + strconv.Itoa(n)}}
		if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("writing to the cell: %w", err)
		}
		if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("listing through the cluster-gateway: %w", err)
		}
		return nil
	}
	go func() {
		pace := time.NewTicker(200 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				counted <- n
				return
			case <-pace.C:
			}
			if err := round(n); err != nil && ctx.Err() == nil {
				p.Errorf("%s after the start of requests: %v", time.Duration(n)*200*time.Millisecond, err)
			}
		}
	}()
	return func() int {
		cancel()
		return <-counted
	}
}

// testRenewed expects that certificates in use end later than at a time: those that servers present, and those of which parts tell.
func (p place) testRenewed(client kubernetes.Interface, after time.Time) {
	state := p.ports()
	servers := map[string]int{"gateway": state.PartPorts["gateway"], "cluster-gateway": state.PartPorts["cluster-gateway"], "the federation's controllers": state.PartPorts["federation/kube-controller-manager"]}
	for _, plane := range []string{"hub", "cell-a"} {
		for _, server := range []string{"apiServer", "etcd", "etcdPeer", "etcdHTTP"} {
			servers[server+" of "+plane] = state.Ports[plane][server]
		}
	}
	servers["controllers of the hub"] = state.Ports["hub"]["controllerManager"]
	for name, port := range servers {
		if end := p.presented(name, port); !end.After(after) {
			p.Errorf("%s presents a certificate that ends at %s, before %s", name, end, after)
		}
	}

	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	p.testTold("gateway", string(metrics), after, "serving", "hub-client", "hub-proxy-client", "cell-client")
	for part, purposes := range map[string][]string{
		"hub-manager": {"hub-client", "cell-client", "cell-etcd-client"}, "cluster-gateway/metrics": {"serving", "hub-client", "templates-client"},
		"hub/engine": {"cell-client", "federation-client"}, "cell-a/engine": {"cell-client", "federation-client", "hub-client"},
	} {
		request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", state.PartPorts[part]), nil)
		if err != nil {
			p.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			p.Fatal(err)
		}
		metrics, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			p.Fatal(err)
		}
		p.testTold(part, string(metrics), after, purposes...)
	}
}

// ports are those of the federation.
type ports struct {
	Ports     map[string]map[string]int
	PartPorts map[string]int
}

func (p place) ports() (all ports) {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "federation.json"))
	if err != nil {
		p.Fatal(err)
	}
	if err := json.Unmarshal(data, &all); err != nil {
		p.Fatal(err)
	}
	return all
}

// presented returns when the certificate ends that a server on this machine presents. It may want one of the client later.
func (p place) presented(name string, port int) time.Time {
	p.Helper()
	var leaf *x509.Certificate
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, VerifyConnection: func(state tls.ConnectionState) error { //nolint:gosec // nothing is sent
		leaf = state.PeerCertificates[0]
		return nil
	}}}
	connection, err := dialer.DialContext(p.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if leaf == nil {
		p.Fatalf("%s at port %d presents no certificate: %v", name, port, err)
	}
	if err == nil {
		_ = connection.Close()
	}
	return leaf.NotAfter
}

// testTold expects that the metrics of a part tell when certificates for all these purposes end, and that all do so after a time.
func (p place) testTold(part, metrics string, after time.Time, purposes ...string) {
	p.Helper()
	told := map[string]bool{}
	for lines := bufio.NewScanner(strings.NewReader(metrics)); lines.Scan(); {
		series, found := strings.CutPrefix(lines.Text(), "cellplane_certificate_expiration_timestamp_seconds{")
		if !found {
			continue
		}
		labels, value, _ := strings.Cut(series, "} ")
		_, purpose, _ := strings.Cut(labels, `purpose="`)
		purpose, _, _ = strings.Cut(purpose, `"`)
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.Fatal(err)
		}
		if end := time.Unix(int64(seconds), 0); !end.After(after) {
			p.Errorf("%s says that the certificate %s ends at %s, before %s", part, labels, end, after)
		}
		told[purpose] = true
	}
	for _, purpose := range purposes {
		if !told[purpose] {
			p.Errorf("%s does not tell when the certificate %s ends, only those for %v", part, purpose, told)
		}
	}
}

// testAllWork expects that the hub manager copies a namespace and a policy into the cell, and that the engine of the cell follows them.
func (p place) testAllWork() {
	manifest := filepath.Join(p.TempDir(), "workloads.yaml")
	if err := os.WriteFile(manifest, []byte(workloads), 0o600); err != nil {
		p.Fatal(err)
	}
	p.run("kubectl", "create", "namespace", "renewed")
	p.run("kubectl", "apply", "-f", manifest)
	for _, object := range []string{"namespace/renewed", "resourcebinding/changed-deployment"} {
		testenv.Eventually(p.T, "the cell has "+object, func(ctx context.Context) (bool, error) {
			output, err := p.command(ctx, "kubectl", "--context", "cell-a", "get", object).CombinedOutput()
			return err == nil, errors.New(string(output))
		})
	}
}
