package controlplane

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/process"
)

// hubControllers are needed for authentication and authorization: they sign and clean up certificates and tokens, and
// aggregate roles. One checks the types in admission policies. Only client certificates are signed. The controllers for federated objects run against the gateway.
const hubControllers = "certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller,certificatesigningrequest-cleaner-controller," +
	"serviceaccount-controller,serviceaccount-token-controller,legacy-serviceaccount-token-cleaner-controller," +
	"clusterrole-aggregation-controller,bootstrap-signer-controller,token-cleaner-controller,validatingadmissionpolicy-status-controller"

// federationControllers act on templates in all cells, through the gateway.
const federationControllers = "namespace-controller,garbage-collector-controller,root-ca-certificate-publisher-controller,resourcequota-controller"

// namespaceSyncs is how many namespaces are emptied at once. A namespace takes seconds, in which the controller mostly waits: it asks for
// one kind after the other, and a cell answers when its cache is up to date.
const namespaceSyncs = 50

// FederationControllerFlags are the flags that say which stock controllers run against the gateway, and how.
func FederationControllerFlags() []string {
	return []string{
		"--controllers=" + federationControllers,
		"--concurrent-namespace-syncs=" + strconv.Itoa(namespaceSyncs),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
	}
}

func (c *ControlPlane) newHubControllers() ([]*process.Process, error) {
	manager, err := c.newControllerManager(hubControllers,
		"--cluster-signing-kube-apiserver-client-cert-file="+c.pki.cluster.CertFile,
		"--cluster-signing-kube-apiserver-client-key-file="+c.pki.cluster.KeyFile,
	)
	if err != nil {
		return nil, err
	}
	return []*process.Process{manager}, nil
}

func (c *ControlPlane) newControllerManager(controllers string, more ...string) (*process.Process, error) {
	args, err := c.controllerArgs(kubebin.KubeControllerManager, "system:kube-controller-manager", c.config.Ports.ControllerManager)
	if err != nil {
		return nil, err
	}
	args = append(args,
		"--controllers="+controllers,
		"--root-ca-file="+c.pki.cluster.CertFile,
		"--service-account-private-key-file="+c.pki.tokens.KeyFile,
		"--use-service-account-credentials=true",
	)
	args = append(args, more...)
	return c.newProcess(kubebin.KubeControllerManager, args, c.controllerCheck(c.config.Ports.ControllerManager)), nil
}

func (c *ControlPlane) newScheduler() (*process.Process, error) {
	args, err := c.controllerArgs(kubebin.KubeScheduler, "system:kube-scheduler", c.config.Ports.Scheduler)
	if err != nil {
		return nil, err
	}
	return c.newProcess(kubebin.KubeScheduler, args, c.controllerCheck(c.config.Ports.Scheduler)), nil
}

// controllerArgs returns the common flags of kube-controller-manager and kube-scheduler.
func (c *ControlPlane) controllerArgs(program, user string, port int) ([]string, error) {
	kubeconfig, err := c.KubeconfigFor(program, user)
	if err != nil {
		return nil, err
	}
	serving, err := c.Serving(program)
	if err != nil {
		return nil, err
	}
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--leader-elect=false",
		"--profiling=false",
		"--v=1",
	}, nil
}

func (c *ControlPlane) controllerCheck(port int) func(context.Context) error {
	return process.HTTPCheck(fmt.Sprintf("https://127.0.0.1:%d/healthz", port), c.pki.cluster.CertFile, "", "")
}
