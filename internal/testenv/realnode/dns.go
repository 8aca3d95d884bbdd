package realnode

import (
	"context"
	"fmt"

	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

// dnsConfig answers for Services and pods only: there is nothing else.
const dnsConfig = `.:53 {
	errors
	ready 127.0.0.1:8181
	kubernetes cluster.local {
		kubeconfig %s
		ttl 1
	}
}
`

// startDNS starts CoreDNS beside the kubelet.
func (n *Node) startDNS(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("coredns", pki.Leaf{CommonName: "coredns", Organizations: []string{"system:masters"}})
	if err != nil {
		return err
	}
	config, err := n.write("Corefile", fmt.Sprintf(dnsConfig, kubeconfig))
	if err != nil {
		return err
	}
	return n.start(ctx, n.runtime.Path(coredns), []string{"-conf=" + config}, process.HTTPCheck("http://127.0.0.1:8181/ready", "", "", ""))
}
