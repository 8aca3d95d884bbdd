package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"
)

const (
	// lookEvery is how often a file is looked at whose changes are not told.
	lookEvery = 5 * time.Second
	// issuersWait is how long issuers that are new may take until they can be used; those of before are used meanwhile.
	issuersWait = time.Minute
	// leaveAfter is how long issuers of before are kept for requests that are under way.
	leaveAfter = time.Minute
)

// reloaded judges tokens by a file with an AuthenticationConfiguration, as it is now. A file that makes no sense, or whose issuers cannot
// be used, changes nothing.
type reloaded struct {
	path    string
	current atomic.Pointer[issuers]
}

// issuers are those of one content of the file.
type issuers struct {
	authenticator.Token
	data   []byte
	each   []oidc.AuthenticatorTokenWithHealthCheck
	cancel context.CancelFunc
}

// newReloaded reads the file and follows it until the context ends. What is wrong with it at first is an error.
func newReloaded(ctx context.Context, path string) (*reloaded, error) {
	r := &reloaded{path: path}
	first, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	r.current.Store(first)
	logger := klog.FromContext(ctx).WithValues("file", path)
	go filesystem.WatchUntil(ctx, lookEvery, path, func() {
		switch changed, err := r.reload(ctx); {
		case err != nil && ctx.Err() == nil:
			reloads.WithLabelValues("failure").Inc()
			logger.Error(err, "The AuthenticationConfiguration has changed and cannot be used; the one before stays in force")
		case changed:
			reloads.WithLabelValues("success").Inc()
			logger.Info("The AuthenticationConfiguration has changed")
		}
	}, func(err error) { logger.V(2).Info("Changes of the file are not told; looking for them", "err", err) })
	return r, nil
}

// AuthenticateToken implements authenticator.Token.
func (r *reloaded) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return r.current.Load().AuthenticateToken(ctx, token)
}

// reload takes what is in the file, if that is something else.
func (r *reloaded) reload(ctx context.Context) (bool, error) {
	last := r.current.Load()
	next, err := r.read(ctx)
	if err != nil {
		return false, err
	}
	if bytes.Equal(next.data, last.data) {
		next.cancel()
		return false, nil
	}
	if err := next.await(ctx); err != nil {
		next.cancel()
		return false, err
	}
	r.current.Store(next)
	time.AfterFunc(leaveAfter, last.cancel)
	return true, nil
}

// read makes issuers of the file.
func (r *reloaded) read(ctx context.Context) (*issuers, error) {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil, err
	}
	if last := r.current.Load(); last != nil && bytes.Equal(data, last.data) {
		return &issuers{data: data, cancel: func() {}}, nil
	}
	config, err := parse(r.path, data)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	made := &issuers{data: data, cancel: cancel}
	var all []authenticator.Token
	for _, issuer := range config.JWT {
		one, err := newOIDC(ctx, issuer, signingAlgs)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("preparing the issuer %s: %w", issuer.Issuer.URL, err)
		}
		all, made.each = append(all, one), append(made.each, one)
	}
	made.Token = tokenunion.New(all...)
	return made, nil
}

// await waits until all issuers can be used.
func (i *issuers) await(ctx context.Context) error {
	var unhealthy error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, issuersWait, true, func(context.Context) (bool, error) {
		unhealthy = nil
		for _, one := range i.each {
			unhealthy = errors.Join(unhealthy, one.HealthCheck())
		}
		return unhealthy == nil, nil
	})
	return errors.Join(err, unhealthy)
}
