package registration

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// Discovery is how a cluster finds and verifies the gateway.
type Discovery struct {
	// Endpoint is the address of the gateway: host:port or a URL.
	Endpoint string
	// Token is a bootstrap token for signing.
	Token string
	// CAHashes are hashes of the gateway's CA, one of which has to match.
	CAHashes []string
	// SkipCAVerification trusts the token alone. Everybody who has the token can then pretend to be the gateway.
	SkipCAVerification bool
	// Timeout bounds the attempts.
	Timeout time.Duration
}

func (d *Discovery) validate() error {
	if _, _, err := tokens.ParseToken(d.Token); err != nil {
		return errors.New("--token is missing, or not of the form abcdef.0123456789abcdef")
	}
	if len(d.CAHashes) == 0 && !d.SkipCAVerification {
		return errors.New("--discovery-token-ca-cert-hash is missing: `cellplane token create --print-register-command` shows it; or trust the token alone with --discovery-token-unsafe-skip-ca-verification")
	}
	for _, hash := range d.CAHashes {
		sum, found := strings.CutPrefix(hash, hashPrefix)
		if decoded, err := hex.DecodeString(sum); !found || err != nil || len(decoded) != 32 {
			return fmt.Errorf("--discovery-token-ca-cert-hash must be sha256: and 64 hexadecimal digits, not %q", hash)
		}
	}
	_, err := serverOf(d.Endpoint)
	return err
}

// serverOf returns the URL of an endpoint.
func serverOf(endpoint string) (string, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.RawQuery != "" || parsed.User != nil {
		return "", fmt.Errorf("the endpoint of the gateway must be host:port or an https URL, not %q", endpoint)
	}
	return strings.TrimSuffix(parsed.String(), "/"), nil
}

// Discover asks the gateway who it is and returns it if it is the right one: the answer is signed with the token, its CA has the hash, and the
// gateway's own certificate is of that CA.
func (d *Discovery) Discover(ctx context.Context) (*Gateway, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	server, err := serverOf(d.Endpoint)
	if err != nil {
		return nil, err
	}
	var found *Gateway
	err = attempts(ctx, d.Timeout, func(ctx context.Context) (err error) {
		found, err = d.ask(ctx, server)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verifying the gateway %s: %w", server, err)
	}
	return found, nil
}

const (
	// askEvery is the time between two attempts.
	askEvery = 500 * time.Millisecond
	// attemptTimeout bounds one attempt.
	attemptTimeout = 30 * time.Second
)

// final is an error that ends the attempts.
type final struct{ error }

// attempts calls a function until it succeeds or returns a final error. No attempt begins after the timeout; the error is that of the last one.
func attempts(ctx context.Context, timeout time.Duration, attempt func(context.Context) error) error {
	end := time.Now().Add(timeout)
	for {
		bounded, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := attempt(bounded)
		cancel()
		if ended := (final{}); err == nil || errors.As(err, &ended) || time.Until(end) < askEvery {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askEvery):
		}
	}
}

func (d *Discovery) ask(ctx context.Context, server string) (*Gateway, error) {
	// Nothing secret is sent, and nothing is believed yet.
	info, err := clusterInfo(ctx, &rest.Config{Host: server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return nil, err
	}
	if err := d.verifySignature(info); err != nil {
		return nil, err
	}
	said, err := gatewayIn(info)
	if err != nil {
		return nil, err
	}
	gateway := &Gateway{Server: server, ServerName: said.ServerName, CA: said.CA}
	if !d.SkipCAVerification {
		if gateway.CA, err = pinned(said.CA, d.CAHashes); err != nil {
			return nil, final{err}
		}
	}
	again, err := clusterInfo(ctx, gateway.config())
	if err != nil {
		return nil, err
	}
	if again.Data[bootstrapapi.KubeConfigKey] != info.Data[bootstrapapi.KubeConfigKey] {
		return nil, errors.New("the gateway has answered differently over a verified connection")
	}
	return gateway, nil
}

func (g *Gateway) config() *rest.Config {
	return &rest.Config{Host: g.Server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: g.CA, ServerName: g.ServerName}}
}

func clusterInfo(ctx context.Context, config *rest.Config) (*corev1.ConfigMap, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
}

// verifySignature returns an error unless what the gateway says is signed with the token.
func (d *Discovery) verifySignature(info *corev1.ConfigMap) error {
	id, secret, err := tokens.ParseToken(d.Token)
	if err != nil {
		return err
	}
	signature, found := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id]
	if !found {
		return fmt.Errorf("the hub has not signed with token %s: it has expired, was deleted, or is not for signing", id)
	}
	if !jws.DetachedTokenIsValid(signature, info.Data[bootstrapapi.KubeConfigKey], id, secret) {
		return fmt.Errorf("the signature with token %s is wrong: the token has another secret, or somebody pretends to be the gateway", id)
	}
	return nil
}
