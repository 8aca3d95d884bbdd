package controlplane

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
)

// frontProxyName returns the only common name that the API server accepts as front proxy. In members it is the API server itself, in front of aggregated ones.
func (c *ControlPlane) frontProxyName() string {
	if c.config.Role.runsWorkloads() {
		return "kube-apiserver"
	}
	return "cellplane-gateway"
}

// authorities are the certificate authorities of a control plane. They are separate, so that clients of one kind cannot pose
// as another.
type authorities struct {
	cluster    *pki.CA // the API server and its clients
	etcd       *pki.CA // etcd, its peers and its clients
	frontProxy *pki.CA // front proxies
	tokens     pki.Pair
}

func (a *authorities) ensure(dir string, validity time.Duration) (err error) {
	if a.cluster, err = pki.EnsureCA(dir, "ca"); err != nil {
		return err
	}
	if a.etcd, err = pki.EnsureCA(dir, "etcd-ca"); err != nil {
		return err
	}
	if a.frontProxy, err = pki.EnsureCA(dir, "front-proxy-ca"); err != nil {
		return err
	}
	for _, ca := range a.all() {
		ca.Validity = validity
	}
	a.tokens, err = pki.EnsureKey(dir, "service-accounts")
	return err
}

func (a *authorities) all() []*pki.CA { return []*pki.CA{a.cluster, a.etcd, a.frontProxy} }

// RenewCertificates issues again the certificates that are about to expire, and returns how many. Programs read the new files by themselves, except
// for kwok, which is restarted.
func (c *ControlPlane) RenewCertificates(now time.Time) (int, error) {
	var all []pki.Pair
	var errs []error
	for _, ca := range c.pki.all() {
		renewed, err := ca.Renew(now)
		all, errs = append(all, renewed...), append(errs, err)
	}
	if slices.ContainsFunc(all, func(p pki.Pair) bool { return filepath.Base(p.CertFile) == kubebin.Kwok+servingSuffix+".crt" }) {
		errs = append(errs, c.restartKwok())
	}
	return len(all), errors.Join(errs...)
}

// servingSuffix ends the names of server certificates.
const servingSuffix = "-serving"

// loopback are the host names of local servers.
var loopback = []string{"127.0.0.1", "localhost"}

// Serving returns a server certificate for loopback.
func (c *ControlPlane) Serving(name string) (pki.Pair, error) {
	return c.pki.cluster.Ensure(c.path("pki"), name+servingSuffix, pki.Leaf{CommonName: name, Hosts: loopback})
}

// CertificateFor returns a certificate of the cluster's authority, in files of the given name.
func (c *ControlPlane) CertificateFor(name string, leaf pki.Leaf) (pki.Pair, error) {
	return c.pki.cluster.Ensure(c.path("pki"), name, leaf)
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
