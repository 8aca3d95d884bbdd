package controlplane

import (
	"os"
	"strconv"
	"strings"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

func (c *ControlPlane) newEtcd() (*process.Process, error) {
	serving, err := c.pki.etcd.Ensure(c.path("pki"), "etcd", pki.Leaf{CommonName: "etcd", Hosts: loopback, Peer: true})
	if err != nil {
		return nil, err
	}
	caFile, client, err := c.EtcdFiles()
	if err != nil {
		return nil, err
	}
	peerURL := c.EtcdPeerURL()
	args := []string{
		"--name=" + c.config.Name,
		"--data-dir=" + c.EtcdDir(),
		"--listen-client-urls=" + c.EtcdURL(),
		"--advertise-client-urls=" + c.EtcdURL(),
		// On a port without HTTP, etcd serves gRPC without the HTTP server of net/http, which costs a third of its CPU time.
		"--listen-client-http-urls=" + c.EtcdHTTPURL(),
		"--enable-grpc-gateway=false",
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=" + c.config.Name + "=" + peerURL,
		"--client-cert-auth=true",
		"--trusted-ca-file=" + caFile,
		"--cert-file=" + serving.CertFile,
		"--key-file=" + serving.KeyFile,
		"--peer-client-cert-auth=true",
		"--peer-trusted-ca-file=" + caFile,
		"--peer-cert-file=" + serving.CertFile,
		"--peer-key-file=" + serving.KeyFile,
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=5m",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
	if c.config.NoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return c.newProcess(kubebin.Etcd, args, process.HTTPCheck(c.EtcdHTTPURL()+"/health", caFile, client.CertFile, client.KeyFile)), nil
}

// templatesAreData lists the admission plug-ins that are disabled in the hub and the cells, where workloads are only data.
const templatesAreData = "ServiceAccount,ResourceQuota,LimitRanger,Priority,RuntimeClass,PodSecurity,TaintNodesByCondition," +
	"DefaultTolerationSeconds,DefaultStorageClass,StorageObjectInUseProtection,PersistentVolumeClaimResize,DefaultIngressClass"

// anonymousHealth allows anonymous access only to health endpoints.
const anonymousHealth = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
`

func (c *ControlPlane) newAPIServer() (*process.Process, error) {
	hosts := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"}, loopback...)
	reconciler := "none"
	if c.config.Address != "" {
		hosts = append(hosts, c.config.Address)
		reconciler = "lease"
	}
	serving, err := c.pki.cluster.Ensure(c.path("pki"), "apiserver", pki.Leaf{CommonName: "kube-apiserver", Hosts: hosts})
	if err != nil {
		return nil, err
	}
	kubeletClient, err := c.pki.cluster.Ensure(c.path("pki"), "apiserver-kubelet-client", pki.Leaf{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	etcdCA, etcdClient, err := c.EtcdFiles()
	if err != nil {
		return nil, err
	}
	authentication := c.path("authentication.yaml")
	if err := os.WriteFile(authentication, []byte(anonymousHealth), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--bind-address=" + c.address(),
		"--secure-port=" + strconv.Itoa(c.config.Ports.APIServer),
		"--advertise-address=" + c.address(),
		"--endpoint-reconciler-type=" + reconciler,
		"--etcd-servers=" + c.EtcdURL(),
		"--etcd-cafile=" + etcdCA,
		"--etcd-certfile=" + etcdClient.CertFile,
		"--etcd-keyfile=" + etcdClient.KeyFile,
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + c.pki.cluster.CertFile,
		"--kubelet-certificate-authority=" + c.pki.cluster.CertFile,
		"--kubelet-client-certificate=" + kubeletClient.CertFile,
		"--kubelet-client-key=" + kubeletClient.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.tokens.CertFile,
		"--service-account-signing-key-file=" + c.pki.tokens.KeyFile,
		"--service-cluster-ip-range=10.96.0.0/12",
		"--authentication-config=" + authentication,
		"--authorization-mode=" + c.authorizationModes(),
		"--enable-bootstrap-token-auth=true",
		"--profiling=false",
		"--v=1",
	}
	proxy, err := c.FrontProxy()
	if err != nil {
		return nil, err
	}
	args = append(args,
		"--requestheader-client-ca-file="+c.pki.frontProxy.CertFile,
		"--requestheader-allowed-names="+c.frontProxyName(),
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	)
	if c.config.Role.runsWorkloads() {
		// Aggregated API servers, such as metrics-server, know the users of forwarded requests by this certificate.
		args = append(args, "--proxy-client-cert-file="+proxy.CertFile, "--proxy-client-key-file="+proxy.KeyFile)
	} else {
		args = append(args, "--disable-admission-plugins="+templatesAreData)
	}
	return c.newProcess(kubebin.KubeAPIServer, args, process.HTTPCheck(c.URL()+"/readyz", c.pki.cluster.CertFile, "", ""), c.collector()...), nil
}

const (
	// collectAt is GOGC of the API server of a cell. Engines write constantly: with the default the garbage collector takes nearly
	// a fifth of its CPU time.
	collectAt = 200
	// collectInTestsAt is GOGC of the API servers of tests, which start more often than they grow.
	collectInTestsAt = 400
)

// collector sets GOGC, unless it is set in the environment.
func (c *ControlPlane) collector() []string {
	switch {
	case os.Getenv("GOGC") != "":
		return nil
	case c.config.NoFsync:
		return []string{"GOGC=" + strconv.Itoa(collectInTestsAt)}
	case c.config.Role == Cell:
		return []string{"GOGC=" + strconv.Itoa(collectAt)}
	default:
		return nil
	}
}

func (c *ControlPlane) authorizationModes() string {
	modes := []string{"RBAC"}
	if c.config.Role.runsWorkloads() {
		modes = append([]string{"Node"}, modes...)
	}
	return strings.Join(modes, ",")
}
