package controlplane

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/pki"
)

// frontProxyName is the only common name that API servers accept as front proxy.
const frontProxyName = "cellplane-gateway"

// authorities are the certificate authorities of a control plane. They are separate, so that clients of one kind cannot pose
// as another.
type authorities struct {
	cluster    *pki.CA // the API server and its clients
	etcd       *pki.CA // etcd, its peers and its clients
	frontProxy *pki.CA // front proxies
	tokens     pki.Pair
}

func (a *authorities) ensure(dir string) (err error) {
	if a.cluster, err = pki.EnsureCA(dir, "ca"); err != nil {
		return err
	}
	if a.etcd, err = pki.EnsureCA(dir, "etcd-ca"); err != nil {
		return err
	}
	if a.frontProxy, err = pki.EnsureCA(dir, "front-proxy-ca"); err != nil {
		return err
	}
	a.tokens, err = pki.EnsureKey(dir, "service-accounts")
	return err
}

// loopback are the host names of local servers.
var loopback = []string{"127.0.0.1", "localhost"}

// Serving returns a server certificate for loopback.
func (c *ControlPlane) Serving(name string) (pki.Pair, error) {
	return c.pki.cluster.Ensure(c.path("pki"), name+"-serving", pki.Leaf{CommonName: name, Hosts: loopback})
}

// KubeconfigFor writes the kubeconfig of a component for a user without groups, and returns its path.
func (c *ControlPlane) KubeconfigFor(component, user string) (string, error) {
	config, err := c.ClientConfig(component, pki.Leaf{CommonName: user})
	if err != nil {
		return "", err
	}
	path := c.path(component + ".kubeconfig")
	return path, clientcmd.WriteToFile(*Kubeconfig(map[string]*rest.Config{c.config.Name: config}, c.config.Name), path)
}

// Kubeconfig returns a kubeconfig with a context per client configuration. Certificates are file references.
func Kubeconfig(contexts map[string]*rest.Config, current string) *clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.CurrentContext = current
	for name, config := range contexts {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile}
		out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: config.CertFile, ClientKey: config.KeyFile}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return out
}
