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
	// MemberCAKey holds the PEM certificates that vouch for the member's API server.
	MemberCAKey = "caBundle"
)

// MemberConfig returns the client configuration for a member: where it is comes from the Cluster, who we are there
// from the Secret. The token is the one of this moment; Connect follows a changing one.
//
// Requests are not limited in rate, which is for callers to do, but each is limited in time: what is not a stream ends
// within a minute, and a stream begins within one.
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
		// Without a bundle the authorities of this machine vouch for the member.
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
		return fmt.Errorf("spec.apiEndpoint %q must be an https URL: credentials are never sent in the clear", parsed.Redacted())
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
		return nil, fmt.Errorf("spec.proxyURL %q must be of http, https or socks5", parsed.Redacted())
	}
	if parsed.Host == "" {
		return nil, fmt.Errorf("spec.proxyURL %q has no host", parsed.Redacted())
	}
	return parsed, nil
}

// sendToProxy adds headers to what the proxy is asked. A configuration with a proxy of its own never shares its
// transport with another, so that the transport may be changed here.
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

// innermost returns the transport below all wrappers, nil if it is of another make.
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
