package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// Keys of a Secret with the credentials of a member.
const (
	// MemberTokenKey holds the bearer token.
	MemberTokenKey = "token"
	// MemberCAKey holds the PEM certificates that the member's API server is verified with.
	MemberCAKey = "caBundle"
)

// MemberConfig returns the client configuration for a member: the endpoint comes from the Cluster, the credentials from the
// Secret. Its token is fixed; Connect handles a changing one.
//
// The rate of requests is not limited. Their time is: an answer must be complete within a minute, and a stream must begin
// within one.
func MemberConfig(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*rest.Config, error) {
	config, err := memberConfig(cluster, secret)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	return config, nil
}

func memberConfig(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*rest.Config, error) {
	spec := &cluster.Spec
	if err := checkEndpoint(spec.APIEndpoint); err != nil {
		return nil, err
	}
	token, err := memberToken(secret)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host:        spec.APIEndpoint,
		BearerToken: token,
		UserAgent:   rest.DefaultKubernetesUserAgent(),
		QPS:         -1,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: spec.InsecureSkipTLSVerification,
		},
	}
	if !spec.InsecureSkipTLSVerification {
		// Without a bundle, the system's certificate authorities are used.
		config.CAData = secret.Data[MemberCAKey]
	}
	if spec.ProxyURL != "" {
		proxy, err := parseProxy(spec.ProxyURL)
		if err != nil {
			return nil, err
		}
		config.Proxy = http.ProxyURL(proxy)
		if len(spec.ProxyHeader) > 0 {
			config.Wrap(sendToProxy(spec.ProxyHeader))
		}
	}
	config.Wrap(limitInTime)
	return config, nil
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return errors.New("spec.apiEndpoint is empty; it must be the https URL of the member's API server")
	}
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("spec.apiEndpoint is not a URL: %w", err)
	}
	if parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("spec.apiEndpoint %q must be an https URL: credentials are not sent unencrypted", parsed.Redacted())
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return fmt.Errorf("spec.apiEndpoint %q must be a plain https URL, without user, query or fragment", parsed.Redacted())
	}
	return nil
}

func memberToken(secret *corev1.Secret) (string, error) {
	token := strings.TrimSpace(string(secret.Data[MemberTokenKey]))
	if token == "" {
		return "", fmt.Errorf("its Secret %s/%s has no %s", secret.Namespace, secret.Name, MemberTokenKey)
	}
	return token, nil
}

func parseProxy(proxyURL string) (*url.URL, error) {
	parsed, err := url.Parse(proxyURL)
	if err != nil {
		return nil, fmt.Errorf("spec.proxyURL is not a URL: %w", err)
	}
	switch parsed.Scheme {
	case "http", "https", "socks5":
	default:
		return nil, fmt.Errorf("spec.proxyURL %q must have the scheme http, https or socks5", parsed.Redacted())
	}
	if parsed.Host == "" {
		return nil, fmt.Errorf("spec.proxyURL %q has no host", parsed.Redacted())
	}
	return parsed, nil
}

// sendToProxy adds headers to CONNECT requests. A configuration with its own proxy does not share its transport, so the
// transport may be modified here.
func sendToProxy(headers map[string]string) func(http.RoundTripper) http.RoundTripper {
	connect := http.Header{}
	for key, value := range headers {
		connect.Set(key, value)
	}
	return func(next http.RoundTripper) http.RoundTripper {
		if transport := innermost(next); transport != nil {
			transport.ProxyConnectHeader = connect
		}
		return next
	}
}

// innermost returns the http.Transport below all wrappers, nil if there is none.
func innermost(tripper http.RoundTripper) *http.Transport {
	for {
		switch t := tripper.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			tripper = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}
