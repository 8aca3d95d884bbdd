package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/clustergateway"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/pki"
)

const (
	// gatewayCommand runs a cluster-gateway.
	gatewayCommand = "cluster-gateway"
	members        = 3
)

// runGateway runs a cluster-gateway in its own process.
func runGateway(args []string) error {
	options := clustergateway.NewOptions()
	flags := pflag.NewFlagSet(gatewayCommand, pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	completed, err := options.Complete()
	if err != nil {
		return err
	}
	if err := completed.Validate(); err != nil {
		return err
	}
	server, err := clustergateway.New(completed)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	return server.Run(ctx)
}

// federation has members with pods, and a cluster-gateway that watches them.
type federation struct {
	settings
	*local.Federation
	dir     string
	members []*rest.Config
	stores  []*cellstore.Store
	gateway *exec.Cmd
	client  endpoint
}

// throughAPIServers measures a cluster-gateway that reads its pods from real API servers.
func throughAPIServers(ctx context.Context, s settings) error {
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.through -= s.through % members // the same number in each
	f := &federation{settings: s, dir: dir}
	if err := f.open(ctx); err != nil {
		return err
	}
	defer func() {
		_ = f.Stop(context.WithoutCancel(ctx)) // the rest ends with this process
		f.Close()
	}()
	if err := f.join(ctx); err != nil {
		return err
	}
	fmt.Printf("%d pods of %d API servers\n", s.through, members)
	for i, member := range f.members {
		if err := createPods(ctx, member, i*s.through/members, (i+1)*s.through/members); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := f.startGateway(); err != nil {
		return err
	}
	defer f.stopGateway()
	if err := f.waitForPods(ctx); err != nil {
		return err
	}
	report("cold start until all pods are shown", "%v", time.Since(start).Round(time.Millisecond))
	if err := f.reportColdStart(ctx); err != nil {
		return err
	}
	for _, format := range formats {
		if err := f.listOnce(ctx, format.name, format.accept); err != nil {
			return err
		}
	}
	if err := f.latency(ctx); err != nil {
		return err
	}
	return f.reportMemory()
}

// open starts the control planes. Cells serve as members: no controllers run in them that would change the pods.
func (f *federation) open(ctx context.Context) error {
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return err
	}
	// As of a cell in operation.
	if err := os.Setenv("GOGC", "200"); err != nil {
		return err
	}
	if f.Federation, err = local.Open(filepath.Join(f.dir, "federation"), local.Spec{Cells: members}, local.Options{Binaries: binaries, NoFsync: true}); err != nil {
		return err
	}
	if err := f.Start(ctx, func(string) {}); err != nil {
		f.Close()
		return err
	}
	return nil
}

// join registers the members with the hub.
func (f *federation) join(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clusterv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	config, err := f.Hub.AdminConfig()
	if err != nil {
		return err
	}
	hub, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}}); err != nil {
		return err
	}
	for _, cell := range f.Cells {
		config, err := cell.AdminConfig()
		if err != nil {
			return err
		}
		config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
		f.members = append(f.members, config)
		store, err := storetest.Open(cell)
		if err != nil {
			return err
		}
		f.stores = append(f.stores, store)
		token, err := newToken(ctx, config)
		if err != nil {
			return err
		}
		authority, err := os.ReadFile(cell.CAFile())
		if err != nil {
			return err
		}
		meta := metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: cell.Name()}
		if err := hub.Create(ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{fleet.MemberTokenKey: []byte(token), fleet.MemberCAKey: authority}}); err != nil {
			return err
		}
		if err := hub.Create(ctx, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cell.Name()}, Spec: clusterv1alpha1.ClusterSpec{
			SyncMode: clusterv1alpha1.Push, APIEndpoint: cell.URL(), SecretRef: &clusterv1alpha1.LocalSecretReference{Namespace: meta.Namespace, Name: meta.Name},
		}}); err != nil {
			return err
		}
	}
	return nil
}

// newToken returns a token that may read everything in a member. No controller is needed for it.
func newToken(ctx context.Context, config *rest.Config) (string, error) {
	member, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cluster-gateway"}}
	if _, err := member.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}}
	if _, err := member.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 3600))}}
	token, err := member.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

func (f *federation) startGateway() error {
	hub, err := f.Hub.AdminConfig()
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(f.dir, "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"hub": hub}, "hub"), kubeconfig); err != nil {
		return err
	}
	serving, err := f.Hub.Serving("cluster-gateway")
	if err != nil {
		return err
	}
	config, err := f.Hub.ClientConfig("gateway", pki.Leaf{CommonName: names.GatewayUser})
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	config.Host = "https://127.0.0.1:" + strconv.Itoa(port)
	direct, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	f.client = endpoint{"cluster-gateway", direct, config.Host}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.gateway = exec.Command(self, gatewayCommand, "--hub-kubeconfig="+kubeconfig, "--client-ca-file="+f.Hub.CAFile(), "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(port), "--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile)
	f.gateway.Stderr = os.Stderr
	f.gateway.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return f.gateway.Start()
}

func (f *federation) stopGateway() {
	// The process may have ended already.
	_ = f.gateway.Process.Signal(syscall.SIGTERM)
	_ = f.gateway.Wait()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// waitForPods waits until the cluster-gateway shows all pods. It shows none before it has read every member.
func (f *federation) waitForPods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := f.client.get(ctx, "?limit=1", runtime.ContentTypeProtobuf)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster-gateway shows nothing: %w", err)
		case <-ticker.C:
		}
	}
}

// settleTime is how long the memory of a cluster-gateway may shrink after ingest: the last garbage is collected after two minutes at the
// latest.
const settleTime = 150 * time.Second

// reportColdStart reports how much more memory the start takes than the steady state.
func (f *federation) reportColdStart(ctx context.Context) error {
	_, peak, err := f.memory()
	if err != nil {
		return err
	}
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	rss, _, err := f.memory()
	if err != nil {
		return err
	}
	report("memory of the cold start", "peak %.0f MiB, %.0f MiB in the end: %.2f ×", mebibytes(peak), mebibytes(rss), float64(peak)/float64(rss))
	return nil
}

func (f *federation) reportMemory() error {
	rss, peak, err := f.memory()
	if err != nil {
		return err
	}
	report("memory of the cluster-gateway", "RSS %.0f MiB, peak %.0f MiB", mebibytes(rss), mebibytes(peak))
	return nil
}

// memory returns the current and the peak memory of the cluster-gateway.
func (f *federation) memory() (rss, peak int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.gateway.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	return statusBytes(string(status), "VmRSS:"), statusBytes(string(status), "VmHWM:"), nil
}

func mebibytes(bytes int) float64 { return float64(bytes) / (1 << 20) }

func (f *federation) listOnce(ctx context.Context, name, accept string) error {
	const runs = 5
	times := make([]time.Duration, runs)
	size := 0
	for i := range times {
		start := time.Now()
		body, err := f.client.get(ctx, "?limit="+strconv.Itoa(f.large), accept)
		if err != nil {
			return err
		}
		times[i], size = time.Since(start), len(body)
	}
	report(fmt.Sprintf("list %d pods as %s over HTTPS", min(f.large, f.through), name), "median %v (%.1f MB)", quantile(times, 0.5).Round(100*time.Microsecond), float64(size)/1e6)
	return nil
}
