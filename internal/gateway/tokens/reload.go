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
	// lookEvery is how often the file is read if its changes cannot be watched.
	lookEvery = 5 * time.Second
	// issuersWait bounds the initialization of new issuers. The former ones are used meanwhile.
	issuersWait = time.Minute
	// leaveAfter is how long former issuers are kept for running requests.
	leaveAfter = time.Minute
)

// reloaded verifies tokens by a file with an AuthenticationConfiguration, and reloads it. An invalid file, or one whose issuers cannot be
// used, has no effect.
type reloaded struct {
	path    string
	current atomic.Pointer[issuers]
}

// issuers are the issuers of one version of the file.
type issuers struct {
	authenticator.Token
	data   []byte
	each   []oidc.AuthenticatorTokenWithHealthCheck
	cancel context.CancelFunc
}

// newReloaded reads the file and watches it until the context ends. It fails if the file is invalid.
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
			logger.Error(err, "reloading the AuthenticationConfiguration failed, the former one stays in force")
		case changed:
			reloads.WithLabelValues("success").Inc()
			logger.Info("reloaded the AuthenticationConfiguration")
		}
	}, func(err error) { logger.V(2).Info("watching the file failed, polling it", "err", err) })
	return r, nil
}

// AuthenticateToken implements authenticator.Token.
func (r *reloaded) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return r.current.Load().AuthenticateToken(ctx, token)
}

// reload applies the file if it has changed.
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

// read creates the issuers of the file.
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
		one, err := newOIDC(ctx, issuer)
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
