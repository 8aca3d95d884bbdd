package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
)

const (
	identityInterval = 5 * time.Second
	identityTimeout  = 3 * time.Second
	reviewsPath      = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// hubIdentity asks the hub from time to time whether it accepts the identities that requests need: the gateway's own, and that of the
// authenticating proxy. A hub that does not answer changes nothing: the gateway serves without it.
type hubIdentity struct {
	identities []identity
	rejected   atomic.Pointer[error]
}

// identity is one way to reach the hub.
type identity struct {
	name string
	// send sends a request to the hub.
	send func(*http.Request) (*http.Response, error)
	// user is what the hub must take the sender for; "" is anybody but an anonymous user.
	user string
}

// newHubAsGateway returns a connection to the hub with the gateway's own identity.
func newHubAsGateway(own *rest.Config) (*router.HubAsGateway, error) {
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	hub, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	return &router.HubAsGateway{Base: hub, RoundTripper: transport}, nil
}

func newHubIdentity(own, proxy http.RoundTripper) *hubIdentity {
	return &hubIdentity{identities: []identity{
		{name: "--hub-kubeconfig", send: own.RoundTrip},
		{name: "--hub-proxy-client-cert-file", user: names.GatewayUser, send: func(r *http.Request) (*http.Response, error) {
			forward.SetIdentity(r.Header, &user.DefaultInfo{Name: names.GatewayUser, Groups: []string{user.AllAuthenticated}}, forward.Hub)
			return proxy.RoundTrip(r)
		}},
	}}
}

// Run checks until the context ends.
func (h *hubIdentity) Run(ctx context.Context) {
	ticker := time.NewTicker(identityInterval)
	defer ticker.Stop()
	for {
		h.check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// check asks the hub once.
func (h *hubIdentity) check(ctx context.Context) {
	var rejected []error
	for _, i := range h.identities {
		switch accepted, err := i.review(ctx); {
		case err != nil:
			return // the hub is down, or busy: nothing is known
		case accepted != nil:
			rejected = append(rejected, accepted)
		}
	}
	now := errors.Join(rejected...)
	if before := h.rejected.Swap(&now); now != nil && (before == nil || *before == nil) {
		klog.FromContext(ctx).Error(now, "the hub rejects the gateway")
	}
}

// Rejected returns why the hub does not accept the gateway, or nil.
func (h *hubIdentity) Rejected(*http.Request) error {
	if rejected := h.rejected.Load(); rejected != nil {
		return *rejected
	}
	return nil
}

// review asks the hub who the sender is. It returns why the hub rejects it, and an error if the hub did not decide.
func (i identity) review(ctx context.Context) (rejected, err error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	body := `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
	r := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: reviewsPath}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(ctx)
	response, err := i.send(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	return i.judge(response.StatusCode, answer)
}

// judge reads the answer to a review.
func (i identity) judge(code int, answer []byte) (rejected, err error) {
	switch {
	case code == http.StatusCreated:
		var review authenticationv1.SelfSubjectReview
		if err := json.Unmarshal(answer, &review); err != nil {
			return nil, err
		}
		if name := review.Status.UserInfo.Username; i.user != "" && name != i.user {
			return fmt.Errorf("the hub takes requests with %s for those of %s: it is not a certificate of the hub's front-proxy CA", i.name, name), nil
		}
		return nil, nil
	case code == http.StatusUnauthorized:
		return fmt.Errorf("the hub rejects the identity of %s with 401: its certificate or token may have expired", i.name), nil
	case code == http.StatusForbidden && strings.Contains(string(answer), user.Anonymous):
		return fmt.Errorf("the hub takes requests with %s for anonymous ones: it does not know the CA of the certificate", i.name), nil
	case code == http.StatusForbidden:
		return nil, nil // it knows the sender
	default:
		return nil, fmt.Errorf("the hub answered %d", code)
	}
}
