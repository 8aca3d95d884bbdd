package realnode

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[1]q}
authorization: {mode: Webhook}
tlsCertFile: %[2]q
tlsPrivateKeyFile: %[3]q
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
resolvConf: ""
clusterDNS: [%[4]s]
clusterDomain: cluster.local
# By default in /usr/libexec.
volumePluginDir: /var/lib/kubelet/volume-plugins
# Children of this test cannot be protected better than the test.
oomScoreAdj: 0
# The disk is shared with others.
evictionHard: {memory.available: 10Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %[1]q}
hostnameOverride: ` + name + `
mode: iptables
clusterCIDR: ` + podNetwork + `
oomScoreAdj: 0
# They are settings of the whole machine.
conntrack: {maxPerCore: 0, min: 0}
`

// kubeconfig writes the kubeconfig of a user and returns its path.
func (n *Node) kubeconfig(file string, leaf pki.Leaf) (string, error) {
	config, err := n.plane.ClientConfig(file, leaf)
	if err != nil {
		return "", err
	}
	path, err := n.write(file+".kubeconfig", "")
	if err != nil {
		return "", err
	}
	return path, clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{name: config}, name), path)
}

func (n *Node) startKubelet(ctx context.Context) error {
	identity := pki.Leaf{CommonName: "system:node:" + name, Organizations: []string{"system:nodes"}}
	kubeconfig, err := n.kubeconfig("kubelet", identity)
	if err != nil {
		return err
	}
	serving, err := n.plane.CertificateFor("kubelet-serving", pki.Leaf{CommonName: identity.CommonName, Organizations: identity.Organizations, Hosts: []string{name, n.Address}})
	if err != nil {
		return err
	}
	config, err := n.write("kubelet.yaml", fmt.Sprintf(kubeletConfig, n.plane.CAFile(), serving.CertFile, serving.KeyFile, n.Address))
	if err != nil {
		return err
	}
	args := []string{"--config=" + config, "--kubeconfig=" + kubeconfig, "--hostname-override=" + name, "--node-ip=" + n.Address, "--v=1"}
	return n.start(ctx, n.node.Path(kubebin.Kubelet), args, process.HTTPCheck("http://127.0.0.1:10248/healthz", "", "", ""))
}

func (n *Node) startProxy(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("kube-proxy", pki.Leaf{CommonName: "system:kube-proxy"})
	if err != nil {
		return err
	}
	config, err := n.write("kube-proxy.yaml", fmt.Sprintf(proxyConfig, kubeconfig))
	if err != nil {
		return err
	}
	return n.start(ctx, n.node.Path(kubebin.KubeProxy), []string{"--config=" + config, "--v=1"}, process.HTTPCheck("http://127.0.0.1:10256/livez", "", "", ""))
}
