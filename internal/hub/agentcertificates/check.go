package agentcertificates

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/membership"
)

const (
	// maxValidity is the longest validity of an agent's certificate, and that of a request that names none.
	maxValidity = 365 * 24 * time.Hour
	// signingTime is how much later than the approval a certificate may be signed.
	signingTime = 24 * time.Hour
)

// requester says who has made a request.
type requester int

const (
	// somebody is no agent and no bootstrap token of clusters. Others decide about such requests.
	somebody requester = iota
	token
	agent
)

func requesterOf(spec *certificatesv1.CertificateSigningRequestSpec) requester {
	if strings.HasPrefix(spec.Username, bootstrapapi.BootstrapUserPrefix) && slices.Contains(spec.Groups, names.AgentBootstrapGroup) {
		return token
	}
	if _, isAgent := identity.Cluster(spec.Username, spec.Groups); isAgent {
		return agent
	}
	return somebody
}

// wanted is a well-formed request for the certificate of an agent.
type wanted struct {
	cluster string
	key     identity.Key
	// about is what a cluster that registers says about itself.
	about identity.Registration
}

// check returns what is requested. The error says why it is not a request for the certificate of an agent.
func check(spec *certificatesv1.CertificateSigningRequestSpec, annotations map[string]string, now time.Time) (*wanted, error) {
	if spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil, fmt.Errorf("the signer of agents is %s, not %s", certificatesv1.KubeAPIServerClientSignerName, spec.SignerName)
	}
	request, err := parse(spec.Request)
	if err != nil {
		return nil, err
	}
	w := &wanted{key: identity.Key{Sum: identity.Sum(request.RawSubjectPublicKeyInfo)}}
	if w.cluster, err = subject(request); err != nil {
		return nil, err
	}
	if err := membership.ValidateName(w.cluster); err != nil {
		return nil, err
	}
	if w.cluster == names.AgentRBACGenerator {
		return nil, fmt.Errorf("a cluster cannot register as %s: Karmada gives rights to a user of that name", w.cluster)
	}
	if len(request.Extensions) > 0 {
		return nil, fmt.Errorf("the certificate of an agent has no alternative names and no other extensions")
	}
	if !clientOnly(spec.Usages) {
		return nil, fmt.Errorf("the usages of an agent's certificate are client auth and digital signature, not %v", spec.Usages)
	}
	validity := maxValidity
	if spec.ExpirationSeconds != nil {
		validity = time.Duration(*spec.ExpirationSeconds) * time.Second
	}
	if validity > maxValidity {
		return nil, fmt.Errorf("the certificate of an agent is valid for at most %s", maxValidity)
	}
	w.key.Until = now.Add(validity + signingTime)
	if text := annotations[names.RegistrationAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &w.about); err != nil {
			return nil, fmt.Errorf("the annotation %s cannot be read: %w", names.RegistrationAnnotation, err)
		}
	}
	return w, nil
}

func parse(text []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fmt.Errorf("spec.request is not one certificate request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request cannot be read: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the requester does not have the key: %w", err)
	}
	return request, nil
}

// subject returns the cluster that a subject names. Nothing else may be in it.
func subject(request *x509.CertificateRequest) (string, error) {
	s := request.Subject
	cluster, found := strings.CutPrefix(s.CommonName, names.AgentPrefix)
	if !found || len(s.Names) != 2 || !slices.Equal(s.Organization, []string{names.AgentsGroup}) {
		return "", fmt.Errorf("the subject of an agent is CN=%s<cluster>,O=%s and nothing else, not %s", names.AgentPrefix, names.AgentsGroup, s)
	}
	return cluster, nil
}

// clientOnly reports whether usages are those of a client. RSA keys need key encipherment.
func clientOnly(usages []certificatesv1.KeyUsage) bool {
	sorted := slices.Compact(slices.Sorted(slices.Values(usages)))
	client := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
	return slices.Equal(sorted, client) || slices.Equal(sorted, append(client, certificatesv1.UsageKeyEncipherment))
}
