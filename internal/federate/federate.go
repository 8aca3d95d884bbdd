package federate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/registration"
)

// federation is a run.
type federation struct {
	*Config
	cluster kubernetes.Interface
}

// Run makes the control planes of a cluster a federation. It waits for those that do not answer yet until the context ends.
func Run(ctx context.Context, cluster kubernetes.Interface, config *Config) error {
	if err := (&issuer{Config: config, cluster: cluster}).issue(ctx); err != nil {
		return err
	}
	f := &federation{Config: config, cluster: cluster}
	var hub client.Client
	err := f.patiently(ctx, f.Hub, func(ctx context.Context) (err error) {
		hub, err = f.prepareHub(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := f.prepareCells(ctx, hub); err != nil {
		return err
	}
	return f.tell(ctx)
}

// retryAfter is the time between attempts.
const retryAfter = time.Second

// patiently repeats a step while a control plane does not answer, its certificates are not issued yet, or somebody else writes the same objects, such as
// another run.
func (f *federation) patiently(ctx context.Context, plane Plane, step func(context.Context) error) error {
	var last error
	told := ""
	err := wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
		err := step(ctx)
		if err == nil || !passing(err) {
			return true, err
		}
		if ctx.Err() == nil || last == nil { // at the end, the former error says more
			last = err
		}
		if told != last.Error() {
			told = last.Error()
			klog.FromContext(ctx).Info("waiting for a control plane", "name", plane.Name, "reason", told)
		}
		return false, nil
	})
	if err != nil && last != nil && wait.Interrupted(err) {
		err = last
	}
	if err != nil {
		return fmt.Errorf("preparing %s: %w", plane.Name, err)
	}
	return nil
}

func passing(err error) bool {
	return bootstrap.Slow(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// prepareHub installs the API on the hub, and grants the parts their rights there.
func (f *federation) prepareHub(ctx context.Context) (client.Client, error) {
	hub, err := f.open(ctx, f.Hub)
	if err != nil {
		return nil, err
	}
	if err := bootstrap.CreateNamespaces(ctx, hub); err != nil {
		return nil, err
	}
	if err := bootstrap.GrantEngine(ctx, hub, f.Hub.Name); err != nil {
		return nil, err
	}
	if err := bootstrap.GrantElsewhere(ctx, hub, f.Hub.Name); err != nil {
		return nil, err
	}
	return hub, bootstrap.GrantParts(ctx, hub)
}

// prepareCells registers the cells. One that does not answer does not hold up the others, but the first topology needs all of them.
func (f *federation) prepareCells(ctx context.Context, hub client.Client) error {
	failures := make([]error, len(f.Cells))
	done := make(chan struct{}, len(f.Cells))
	var cells []string
	for i, cell := range f.Cells {
		cells = append(cells, cell.Name)
		go func() {
			failures[i] = f.patiently(ctx, cell, func(ctx context.Context) error { return f.prepareCell(ctx, hub, cell) })
			done <- struct{}{}
		}()
	}
	for range f.Cells {
		<-done
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return bootstrap.CreateTopology(ctx, hub, cells)
}

func (f *federation) prepareCell(ctx context.Context, hub client.Client, cell Plane) error {
	own, err := f.open(ctx, cell)
	if err != nil {
		return err
	}
	if err := bootstrap.GrantEngine(ctx, own, cell.Name); err != nil {
		return err
	}
	if err := bootstrap.GrantElsewhere(ctx, hub, cell.Name); err != nil {
		return err
	}
	admin, err := f.read(ctx, cell.AdminSecret)
	if err != nil {
		return err
	}
	frontProxy, err := f.read(ctx, cell.FrontProxySecret)
	if err != nil {
		return err
	}
	frontProxy.CA = admin.CA // that of the API server, not that of front proxies
	etcd, err := f.read(ctx, cell.EtcdSecret)
	if err != nil {
		return err
	}
	return bootstrap.RegisterCell(ctx, hub, bootstrap.Cell{
		Name: cell.Name, Server: cell.Server, APIServers: cell.APIServers, FrontProxy: frontProxy, Etcd: cell.Etcd, EtcdClient: etcd,
	})
}

// open returns a client for an administrator of a control plane, in which the API is installed.
func (f *federation) open(ctx context.Context, plane Plane) (client.Client, error) {
	config, err := f.adminConfig(ctx, plane)
	if err != nil {
		return nil, err
	}
	if err := crds.Install(ctx, config); err != nil {
		return nil, err
	}
	return bootstrap.NewClient(config)
}

func (f *federation) adminConfig(ctx context.Context, plane Plane) (*rest.Config, error) {
	admin, err := f.read(ctx, plane.AdminSecret)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: plane.Server, QPS: -1, WrapTransport: f.Wrap, // API servers have flow control
		TLSClientConfig: rest.TLSClientConfig{CAData: admin.CA, CertData: admin.Cert, KeyData: admin.Key},
	}, nil
}

// read reads a certificate.
func (f *federation) read(ctx context.Context, name string) (bootstrap.TLS, error) {
	secret, err := f.cluster.CoreV1().Secrets(f.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return bootstrap.TLS{}, err
	}
	pair := keypair(secret)
	return bootstrap.TLS{CA: secret.Data[caKey], Cert: pair.Cert, Key: pair.Key}, nil
}

// Issue issues the certificates of a configuration.
func Issue(ctx context.Context, cluster kubernetes.Interface, config *Config) error {
	return (&issuer{Config: config, cluster: cluster}).issue(ctx)
}

// Hub returns a client for an administrator of the hub.
func Hub(ctx context.Context, cluster kubernetes.Interface, config *Config) (client.Client, error) {
	admin, err := (&federation{Config: config, cluster: cluster}).adminConfig(ctx, config.Hub)
	if err != nil {
		return nil, err
	}
	admin.Timeout = hubWithin
	return bootstrap.NewClient(admin)
}

// Kubeconfig returns the kubeconfig of an administrator of a control plane.
func Kubeconfig(ctx context.Context, cluster kubernetes.Interface, config *Config, plane Plane) ([]byte, error) {
	admin, err := (&federation{Config: config, cluster: cluster}).read(ctx, plane.AdminSecret)
	if err != nil {
		return nil, err
	}
	return kubeconfig(plane.Name, plane.Server, admin)
}

// Answers returns why the API servers of a control plane are not ready.
func Answers(ctx context.Context, cluster kubernetes.Interface, config *Config, plane Plane) error {
	admin, err := (&federation{Config: config, cluster: cluster}).adminConfig(ctx, plane)
	if err != nil {
		return err
	}
	admin.Timeout = answerWithin
	api, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	return api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

const (
	// answerWithin bounds the wait for the answer of an API server that may not run.
	answerWithin = 5 * time.Second
	// hubWithin bounds the wait for an answer of the hub.
	hubWithin = 30 * time.Second
)

// Register makes the cells of a configuration cells of its federation, once: it installs the API, registers them and grants their rights. The hub
// must be prepared.
func Register(ctx context.Context, cluster kubernetes.Interface, config *Config) error {
	hub, err := Hub(ctx, cluster, config)
	if err != nil {
		return err
	}
	f := &federation{Config: config, cluster: cluster}
	for _, cell := range config.Cells {
		if err := f.prepareCell(ctx, hub, cell); err != nil {
			return fmt.Errorf("preparing %s: %w", cell.Name, err)
		}
	}
	return nil
}

// tell writes how the gateway is reached: for clusters that register, to the hub, and for administrators, to a Secret.
func (f *federation) tell(ctx context.Context) error {
	admin, err := f.read(ctx, f.Hub.AdminSecret) // gateways have certificates of the hub
	if err != nil {
		return err
	}
	if f.Gateway.Publish {
		config, err := f.adminConfig(ctx, f.Hub)
		if err != nil {
			return err
		}
		hub, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := registration.Publish(ctx, hub, registration.Gateway{Server: f.Gateway.Server, CA: admin.CA}); err != nil {
			return err
		}
	}
	return f.writeKubeconfig(ctx, admin)
}

// KubeconfigKey is the key of the kubeconfig in its Secret.
const KubeconfigKey = "kubeconfig"

func (f *federation) writeKubeconfig(ctx context.Context, admin bootstrap.TLS) error {
	content, err := kubeconfig("cellplane", f.Gateway.Server, admin)
	if err != nil {
		return err
	}
	data := map[string][]byte{KubeconfigKey: content}
	secrets := f.cluster.CoreV1().Secrets(f.Namespace)
	present, err := secrets.Get(ctx, f.Gateway.KubeconfigSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: f.Gateway.KubeconfigSecret, Namespace: f.Namespace, Labels: f.Labels}, Data: data}, metav1.CreateOptions{})
	case err == nil && !maps.EqualFunc(present.Data, data, func(a, b []byte) bool { return string(a) == string(b) }):
		present.Data = data
		_, err = secrets.Update(ctx, present, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", f.Gateway.KubeconfigSecret, err)
	}
	return nil
}

func kubeconfig(name, server string, user bootstrap.TLS) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = name
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: user.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return clientcmd.Write(*config)
}
