package parts

import (
	"context"
	"net"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/process"
)

// prepareClusterGateway prepares the cache of member objects. It needs the address of the gateway, which serves templates.
func (p *Parts) prepareClusterGateway() error {
	hub := p.federation.Hub
	kubeconfig, err := hub.KubeconfigFor(clusterGateway, userOf(clusterGateway))
	if err != nil {
		return err
	}
	templates := filepath.Join(p.federation.Dir(), clusterGateway, "templates.kubeconfig")
	if err := p.throughGateway(kubeconfig, templates); err != nil {
		return err
	}
	serving, err := hub.Serving(clusterGateway)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(p.cache)
	if err != nil {
		return err
	}
	metrics, err := p.federation.Address(clusterGateway + "/metrics")
	if err != nil {
		return err
	}
	args := []string{
		clusterGateway,
		"--hub-kubeconfig=" + kubeconfig,
		"--templates-kubeconfig=" + templates,
		"--client-ca-file=" + hub.CAFile(),
		"--client-names=" + userOf(gateway),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--metrics-address=" + metrics,
	}
	p.add(clusterGateway, p.program, args, process.HTTPCheck("https://"+p.cache+"/readyz", hub.CAFile(), "", ""))
	return nil
}

// throughGateway writes a copy of a kubeconfig of the hub that leads to the gateway's /federation view.
func (p *Parts) throughGateway(kubeconfig, file string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = p.gateway.Host + "/federation"
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, file)
}

// grantClusterGateway lets the cluster-gateway read the members, its credentials for them, and the templates that it serves
// beside their objects.
func grantClusterGateway(ctx context.Context, hub client.Client) error {
	read := []string{"get", "list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(clusterGateway)}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: read},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: read},
		}
		return nil
	}); err != nil {
		return err
	}
	if err := bind(ctx, hub, userOf(clusterGateway), role.Name); err != nil {
		return err
	}
	key := metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: userOf(clusterGateway)}
	secrets := &rbacv1.Role{ObjectMeta: key}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, secrets, func() error {
		secrets.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read}}
		return nil
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: key}
	_, err := controllerutil.CreateOrUpdate(ctx, hub, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: key.Name}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userOf(clusterGateway)}}
		return nil
	})
	return err
}
