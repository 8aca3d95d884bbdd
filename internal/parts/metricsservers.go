package parts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/internal/aggregate"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

const metricsServer = kubebin.MetricsServer

// resolution is how often metrics-server reads the nodes. It is the shortest time that it accepts.
const resolution = "10s"

// Later implements [local.Parts]: metrics-server starts in all members, and is built before if it has to be.
func (p *Parts) Later() (note string, start func(context.Context) error) {
	if !p.federation.MetricsServer() || len(p.federation.Members) == 0 {
		return "", func(context.Context) error { return nil }
	}
	if !kubebin.MetricsServerBuilt() {
		note = "metrics-server is built from source in the background, which takes some minutes; `kubectl top` works afterwards"
	}
	return note, func(ctx context.Context) error {
		if err := p.startMetricsServers(ctx); err != nil {
			return fmt.Errorf("`kubectl top` does not work: %w", err)
		}
		return nil
	}
}

func (p *Parts) startMetricsServers(ctx context.Context) error {
	binaries, err := kubebin.EnsureMetricsServer(ctx, func(string, int) {})
	if err != nil {
		return err
	}
	var group errgroup.Group
	for _, member := range p.federation.Members {
		group.Go(func() error {
			if err := p.startMetricsServer(ctx, member, binaries.Path(metricsServer)); err != nil {
				return fmt.Errorf("starting metrics-server of %s: %w", member.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (p *Parts) startMetricsServer(ctx context.Context, member *controlplane.ControlPlane, program string) error {
	service := metricsService()
	part, err := p.prepareMetricsServer(member, program, service)
	if err != nil {
		return err
	}
	if err := patiently(ctx, func(ctx context.Context) error { return admitMetricsServer(ctx, member) }); err != nil {
		return err
	}
	if err := part.Start(ctx); err != nil {
		return err
	}
	err = part.WaitReady(ctx)
	p.know(part)
	var died *process.DeathError // then it is started again
	if err != nil && !errors.As(err, &died) {
		return err
	}
	return patiently(ctx, func(ctx context.Context) error { return inMember(ctx, member, service.Register) })
}

// inMember registers or withdraws the API of metrics-server in a member.
func inMember(ctx context.Context, member *controlplane.ControlPlane, do func(context.Context, client.Client, ...schema.GroupVersion) error) error {
	config, err := member.AdminConfig()
	if err != nil {
		return err
	}
	api, err := aggregate.NewClient(config)
	if err != nil {
		return err
	}
	return do(ctx, api, v1beta1.SchemeGroupVersion)
}

// metricsService is the Service of metrics-server, as its own manifests call it.
func metricsService() *aggregate.Service {
	return &aggregate.Service{Namespace: metav1.NamespaceSystem, Name: metricsServer}
}

// prepareMetricsServer prepares metrics-server of a member, and completes its Service.
func (p *Parts) prepareMetricsServer(member *controlplane.ControlPlane, program string, service *aggregate.Service) (*process.Process, error) {
	kubeconfig, err := member.KubeconfigFor(metricsServer, userOf(metricsServer))
	if err != nil {
		return nil, err
	}
	serving, err := member.CertificateFor(metricsServer+"-serving", pki.Leaf{CommonName: metricsServer, Hosts: []string{"127.0.0.1", service.Host()}})
	if err != nil {
		return nil, err
	}
	name := member.Name() + "/" + metricsServer
	address, err := p.federation.Address(name)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return nil, err
	}
	service.Port = int32(number)
	if service.CA, err = os.ReadFile(member.CAFile()); err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--metric-resolution=" + resolution,
		"--kubelet-request-timeout=5s",
		"--kubelet-use-node-status-port",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority=" + member.CAFile(),
		"--profiling=false",
	}
	return p.newProcess(name, program, args, process.HTTPCheck("https://"+address+"/livez", member.CAFile(), "", "")), nil
}

// metricsServerRules let metrics-server find and read the nodes, and ask who asks it, and for what they have the right.
var metricsServerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
}

func admitMetricsServer(ctx context.Context, member *controlplane.ControlPlane) error {
	config, err := member.AdminConfig()
	if err != nil {
		return err
	}
	api, err := bootstrap.NewClient(config)
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(metricsServer)}}
	if _, err := controllerutil.CreateOrUpdate(ctx, api, role, func() error { role.Rules = metricsServerRules; return nil }); err != nil {
		return fmt.Errorf("granting rights: %w", err)
	}
	return bootstrap.Bind(ctx, api, userOf(metricsServer), role.Name)
}

// withdrawMetricsServers removes the API of metrics-server from members in which it will not run, or not soon.
func (p *Parts) withdrawMetricsServers(ctx context.Context) error {
	if p.federation.MetricsServer() && kubebin.MetricsServerBuilt() {
		return nil
	}
	for _, member := range p.federation.Members {
		if err := inMember(ctx, member, metricsService().Withdraw); err != nil {
			return fmt.Errorf("preparing %s: %w", member.Name(), err)
		}
	}
	return nil
}
