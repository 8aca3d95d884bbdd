package parts

import (
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

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
