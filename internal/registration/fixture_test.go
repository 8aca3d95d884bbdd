package registration_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/hub/agentcertificates"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/registration"
	"github.com/cellplane/cellplane/internal/testenv"
)

// fixture is a federation with a gateway, the hub manager's controller of agents, and a cluster that registers.
type fixture struct {
	federation *local.Federation
	gateway    *gatewaytest.Gateway
	hubConfig  *rest.Config
	hub        kubernetes.Interface
	objects    client.Client // of the hub
	memberConf *rest.Config
	member     kubernetes.Interface
	secret     credentials.Secret
	hashes     []string
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{federation: testenv.StartFederation(t, local.Spec{Cells: 1, Members: 1})}
	f.gateway = gatewaytest.Start(t, f.federation, nil)
	var err error
	f.hubConfig, err = f.federation.Hub.AdminConfig()
	check(t, err)
	f.hubConfig.QPS = -1
	f.memberConf, err = f.federation.Members[0].AdminConfig()
	check(t, err)
	f.hub, f.member = clientFor(t, f.hubConfig), clientFor(t, f.memberConf)
	f.secret = credentials.Secret{Member: f.member}
	scheme := runtime.NewScheme()
	check(t, errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)))
	f.objects, err = client.New(f.hubConfig, client.Options{Scheme: scheme})
	check(t, err)
	f.runController(t, scheme)
	gateway := registration.Gateway{Server: f.gateway.URL(), CA: f.gateway.CA()}
	check(t, registration.Publish(t.Context(), f.hub, gateway))
	f.hashes, err = registration.HashesOf(gateway.CA)
	check(t, err)
	return f
}

func (f *fixture) runController(t *testing.T, scheme *runtime.Scheme) {
	t.Helper()
	mgr, err := manager.New(f.hubConfig, manager.Options{
		Scheme: scheme, Logger: klog.Background().V(2), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // a test may be repeated
	})
	check(t, err)
	check(t, agentcertificates.Add(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-ended)
	})
}

// asKarmadactl returns a client for the gateway as karmadactl has it: for templates only.
func (f *fixture) asKarmadactl(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := f.gateway.Config(t)
	config.Host += "/federation"
	return clientFor(t, config)
}

// token creates a bootstrap token through the gateway, with both usages unless others are given.
func (f *fixture) token(t *testing.T, usages ...string) string {
	t.Helper()
	token := registration.Token{Usages: usages, Groups: []string{names.AgentBootstrapGroup}, Expires: time.Now().Add(time.Hour)}
	if len(usages) == 0 {
		token.Usages = []string{"signing", "authentication"}
	}
	if !strings.Contains(strings.Join(token.Usages, ","), "authentication") {
		token.Groups = nil
	}
	created, err := registration.CreateToken(t.Context(), f.asKarmadactl(t), token, time.Now())
	check(t, err)
	if len(token.Groups) > 0 {
		testenv.Eventually(t, "the hub accepts the token", func(ctx context.Context) (bool, error) {
			review, err := f.hub.AuthenticationV1().TokenReviews().Create(ctx,
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: created.Text}}, metav1.CreateOptions{})
			return err == nil && review.Status.Authenticated, err
		})
	}
	return created.Text
}

// withToken returns a client for the gateway that uses a token.
func (f *fixture) withToken(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	config := f.anonymous()
	config.BearerToken = token
	return clientFor(t, config)
}

func (f *fixture) anonymous() *rest.Config {
	return &rest.Config{Host: f.gateway.URL(), QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: f.gateway.CA()}}
}

// options returns what a user gives who registers the member.
func (f *fixture) options(name, token string) registration.Options {
	return registration.Options{
		Discovery: registration.Discovery{
			Endpoint: strings.TrimPrefix(f.gateway.URL(), "https://"), Token: token, CAHashes: f.hashes, Timeout: 3 * time.Minute,
		},
		Member: f.memberConf, Name: name, Validity: 24 * time.Hour, SigningTimeout: 3 * time.Minute,
		About: identity.Registration{Provider: "acme", Region: "north", Zones: []string{"north-1"}},
	}
}

// agent returns a client for the gateway with the credentials in the member.
func (f *fixture) agent(t *testing.T) kubernetes.Interface {
	t.Helper()
	agent, err := credentials.Open(t.Context(), f.secret)
	check(t, err)
	return clientFor(t, agent.Config())
}

// request is a request for a certificate, well-formed unless a test changes it.
type request struct {
	certificatesv1.CertificateSigningRequest
	template x509.CertificateRequest
	about    identity.Registration
	key      *ecdsa.PrivateKey
}

// ask sends a request and returns it when it is decided.
func (f *fixture) ask(t *testing.T, as kubernetes.Interface, prefix, cluster string, change func(*request)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	r := &request{key: newKey(t), about: identity.Registration{ID: utilrand.String(12)}}
	r.template.Subject = identity.Subject(cluster)
	r.Name = prefix + utilrand.String(10)
	r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
	if change != nil {
		change(r)
	}
	if r.about.ID != "" {
		about, err := json.Marshal(r.about)
		check(t, err)
		r.Annotations = map[string]string{names.RegistrationAnnotation: string(about)}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &r.template, r.key)
	check(t, err)
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	_, err = as.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &r.CertificateSigningRequest, metav1.CreateOptions{})
	check(t, err)
	var decided *certificatesv1.CertificateSigningRequest
	testenv.Eventually(t, "the request is decided", func(ctx context.Context) (bool, error) {
		var err error
		decided, err = f.hub.CertificatesV1().CertificateSigningRequests().Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil || len(decided.Status.Conditions) == 0 {
			return false, err
		}
		denied := decided.Status.Conditions[0].Type == certificatesv1.CertificateDenied
		return denied || len(decided.Status.Certificate) > 0, nil
	})
	return decided
}

func (f *fixture) cluster(t *testing.T, name string) *clusterv1alpha1.Cluster {
	t.Helper()
	cluster := &clusterv1alpha1.Cluster{}
	check(t, f.objects.Get(t.Context(), client.ObjectKey{Name: name}, cluster))
	return cluster
}

// sign signs a certificate of an agent with the key of the hub's CA.
func (f *fixture) sign(t *testing.T, cluster string, key *ecdsa.PrivateKey, from, until time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		check(t, err)
		block, _ := pem.Decode(text)
		return block.Bytes
	}
	ca, err := x509.ParseCertificate(read(f.federation.Hub.CAFile()))
	check(t, err)
	caKey, err := x509.ParseECPrivateKey(read(strings.TrimSuffix(f.federation.Hub.CAFile(), ".crt") + ".key"))
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: identity.Subject(cluster), NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	check(t, err)
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

// gatewayCluster is the gateway in the kubeconfig of an agent.
func (f *fixture) gatewayCluster() *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{Server: f.gateway.URL(), CertificateAuthorityData: f.gateway.CA()}
}

// withCertificate returns a client for the gateway.
func (f *fixture) withCertificate(t *testing.T, certPEM, keyPEM []byte) kubernetes.Interface {
	t.Helper()
	config := f.anonymous()
	config.CertData, config.KeyData = certPEM, keyPEM
	return clientFor(t, config)
}

func whoIs(ctx context.Context, as kubernetes.Interface) (authenticationv1.UserInfo, error) {
	review, err := as.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// refused waits until a client is no longer accepted: the gateway may not know the latest state of the hub yet.
func refused(t *testing.T, what string, as kubernetes.Interface) {
	t.Helper()
	testenv.Eventually(t, what+" is refused", func(ctx context.Context) (bool, error) {
		_, err := whoIs(ctx, as)
		return apierrors.IsUnauthorized(err), err
	})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(config)
	check(t, err)
	return made
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
