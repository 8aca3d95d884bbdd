package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
)

const (
	contextVersion    = "v1alpha1"
	defaultTimeout    = 10 * time.Second
	maximumTimeout    = 30 * time.Second
	maxResponseBytes  = 4 << 20
	defaultHTTPSPort  = 443
	idleConnections   = 8
	idleConnectionTTL = 90 * time.Second
)

// ServiceResolver returns the address, as host and port, at which a port of a Service is reached.
type ServiceResolver func(ctx context.Context, namespace, name string, port int32) (string, error)

// Set is a snapshot of configured webhooks. It is immutable and safe for concurrent use.
type Set struct {
	hooks   []*hook
	clients map[endpoint]*http.Client
}

// endpoint identifies a client; webhooks with the same endpoint share connections.
type endpoint struct {
	host string
	ca   [sha256.Size]byte
}

// hook is one webhook. An invalid one still claims the operations in its rules and returns its error.
type hook struct {
	name    string
	rules   []configv1alpha1.RuleWithOperations
	url     string
	client  *http.Client
	timeout time.Duration
	err     error
}

// NewSet builds a set. It reuses clients and connections of a previous set, which may be nil. An invalid webhook
// does not affect the others; the error reports all invalid ones.
func NewSet(configurations []*configv1alpha1.ResourceInterpreterWebhookConfiguration, resolve ServiceResolver, previous *Set) (*Set, error) {
	set := &Set{clients: map[endpoint]*http.Client{}}
	sorted := slices.Clone(configurations)
	slices.SortFunc(sorted, func(a, b *configv1alpha1.ResourceInterpreterWebhookConfiguration) int {
		return strings.Compare(a.Name, b.Name)
	})
	var mistakes []error
	for _, configuration := range sorted {
		for i := range configuration.Webhooks {
			h := &hook{
				name:    "ResourceInterpreterWebhookConfiguration " + configuration.Name + ", webhook " + configuration.Webhooks[i].Name,
				rules:   configuration.Webhooks[i].Rules,
				timeout: defaultTimeout,
			}
			if err := h.connect(&configuration.Webhooks[i], resolve, set, previous); err != nil {
				h.err = fmt.Errorf("%s: %w", h.name, err)
				mistakes = append(mistakes, h.err)
			}
			set.hooks = append(set.hooks, h)
		}
	}
	if previous != nil {
		for at, client := range previous.clients {
			if _, kept := set.clients[at]; !kept {
				client.CloseIdleConnections()
			}
		}
	}
	return set, errors.Join(mistakes...)
}

func (h *hook) connect(w *configv1alpha1.ResourceInterpreterWebhook, resolve ServiceResolver, set, previous *Set) error {
	if !slices.Contains(w.InterpreterContextVersions, contextVersion) {
		return fmt.Errorf("interpreterContextVersions: %v does not include %s", w.InterpreterContextVersions, contextVersion)
	}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
		if h.timeout < time.Second || h.timeout > maximumTimeout {
			return fmt.Errorf("timeoutSeconds: %d is not between 1 and 30", *w.TimeoutSeconds)
		}
	}
	var dial func(ctx context.Context, network, address string) (net.Conn, error)
	dialer := &net.Dialer{Timeout: h.timeout}
	switch service := w.ClientConfig.Service; {
	case (w.ClientConfig.URL == nil) == (service == nil):
		return errors.New("clientConfig: exactly one of url and service is required")
	case service != nil:
		if resolve == nil {
			return errors.New("clientConfig.service: Services cannot be reached from here; use clientConfig.url")
		}
		port := int32(defaultHTTPSPort)
		if service.Port != nil {
			port = *service.Port
		}
		u := url.URL{Scheme: "https", Host: net.JoinHostPort(service.Name+"."+service.Namespace+".svc", strconv.Itoa(int(port)))}
		if service.Path != nil {
			u.Path = *service.Path
		}
		h.url = u.String()
		dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := resolve(ctx, service.Namespace, service.Name, port)
			if err != nil {
				return nil, fmt.Errorf("resolving Service %s/%s: %w", service.Namespace, service.Name, err)
			}
			return dialer.DialContext(ctx, network, address)
		}
	default:
		h.url = *w.ClientConfig.URL
		dial = dialer.DialContext
	}
	u, err := url.Parse(h.url)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return errors.New("clientConfig.url: it must have the form https://host/path")
	}
	at := endpoint{host: u.Host, ca: sha256.Sum256(w.ClientConfig.CABundle)}
	if h.client = set.clients[at]; h.client == nil && previous != nil {
		h.client = previous.clients[at]
	}
	if h.client == nil {
		if h.client, err = newClient(w.ClientConfig.CABundle, dial); err != nil {
			return err
		}
	}
	set.clients[at] = h.client
	return nil
}

func newClient(caBundle []byte, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(caBundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(caBundle) {
			return nil, errors.New("clientConfig.caBundle: it holds no certificate in PEM form")
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleConnectionTTL, TLSHandshakeTimeout: defaultTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect could lead anywhere; only the configured address is used.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Supports reports whether a webhook handles an operation for a kind.
func (s *Set) Supports(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) bool {
	return s != nil && s.find(gvk, op) != nil
}

// find returns the first webhook, by the names of the configurations and then in their order.
func (s *Set) find(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) *hook {
	for _, h := range s.hooks {
		for i := range h.rules {
			r := &h.rules[i]
			if (slices.Contains(r.Operations, op) || slices.Contains(r.Operations, configv1alpha1.InterpreterOperationAll) && !isRollout(op)) &&
				covers(r.APIGroups, gvk.Group) && covers(r.APIVersions, gvk.Version) && covers(r.Kinds, gvk.Kind) {
				return h
			}
		}
	}
	return nil
}

// isRollout reports whether an operation is about rolling updates. Those have to be named: webhooks made for Karmada handle all operations and do not know them.
func isRollout(op configv1alpha1.InterpreterOperation) bool {
	return op == configv1alpha1.InterpreterOperationInterpretRollout || op == configv1alpha1.InterpreterOperationReviseRollout
}

func covers(list []string, name string) bool {
	return slices.ContainsFunc(list, func(item string) bool { return item == "*" || item == name })
}
