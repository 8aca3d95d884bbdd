package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
)

// Credentials are those for a search engine.
type Credentials struct {
	Username, Password string
	// CABundle verifies the servers, in PEM; the default is the CAs of the system.
	CABundle []byte
}

// caBundleKey is the key of the CA in the Secret.
const caBundleKey = "caBundle"

// credentials reads a Secret. Whoever writes ResourceRegistries names the Secret and the addresses, but may not read Secrets. So only
// Secrets that are meant for this are used, which an administrator has put beside the control plane's own.
func credentials(secret *corev1.Secret, addresses []string) (Credentials, error) {
	fail := func(format string, args ...any) (Credentials, error) {
		return Credentials{}, fmt.Errorf("the Secret %s/%s "+format, append([]any{secret.Namespace, secret.Name}, args...)...)
	}
	if secret.Type != corev1.SecretTypeBasicAuth && secret.Type != corev1.SecretTypeOpaque && secret.Type != "" {
		return fail("is of type %s; it must be %s or %s", secret.Type, corev1.SecretTypeBasicAuth, corev1.SecretTypeOpaque)
	}
	for key := range secret.Data {
		if key != corev1.BasicAuthUsernameKey && key != corev1.BasicAuthPasswordKey && key != caBundleKey {
			return fail("has other keys than username, password and caBundle; it is not meant for a search engine")
		}
	}
	found := Credentials{string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey]), secret.Data[caBundleKey]}
	if found.Username == "" || found.Password == "" {
		return fail("must have the keys username and password")
	}
	if allowed, limited := secret.Annotations[names.SearchAddressesAnnotation]; limited {
		for _, address := range addresses {
			if !slices.Contains(strings.Fields(strings.ReplaceAll(allowed, ",", " ")), address) {
				return fail("may not be used for %s; its annotation %s names the addresses", address, names.SearchAddressesAnnotation)
			}
		}
	}
	return found, nil
}

// connection is a connection to a target. It follows the Secret.
type connection struct {
	target Target
	open   func(addresses []string, credentials Credentials) (Backend, error)
	secret func(context.Context, types.NamespacedName) (*corev1.Secret, error)

	cancel context.CancelFunc
	// read is closed when the Secret was read for the first time, and done at the end.
	read, done chan struct{}

	mu      sync.Mutex
	backend Backend
	version string // of the Secret
	err     error
}

var errUnread = errors.New("the Secret has not been read yet")

// current returns the backend, or why there is none.
func (c *connection) current() (Backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backend, c.err
}

// run reads the Secret in intervals until the context ends.
func (c *connection) run(ctx context.Context, interval time.Duration) {
	defer close(c.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		c.refresh(ctx)
		if first {
			close(c.read)
		}
		select {
		case <-ctx.Done():
			c.replace(ctx, nil, "", ctx.Err())
			return
		case <-ticker.C:
		}
	}
}

// refresh reads the Secret, and connects anew if it has changed.
func (c *connection) refresh(ctx context.Context) {
	ref := c.target.Secret
	if ref.Namespace != names.SystemNamespace {
		c.replace(ctx, nil, "", fmt.Errorf("spec.backendStore.openSearch.secretRef must name a Secret in the namespace %s", names.SystemNamespace))
		return
	}
	secret, err := c.secret(ctx, ref)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsNotFound(err):
		c.replace(ctx, nil, "", fmt.Errorf("there is no Secret %s", ref))
		return
	case apierrors.IsForbidden(err):
		c.replace(ctx, nil, "", fmt.Errorf("the cluster-gateway may not read the Secret %s; grant it get", ref))
		return
	case err != nil: // the hub cannot be reached; the credentials are still those
		klog.FromContext(ctx).Info("cannot read a Secret", "secret", ref, "err", err)
		return
	}
	version := string(secret.UID) + "/" + secret.ResourceVersion
	c.mu.Lock()
	same := c.version == version
	c.mu.Unlock()
	if same {
		return
	}
	addresses := strings.Fields(c.target.Addresses)
	found, err := credentials(secret, addresses)
	if err != nil {
		c.replace(ctx, nil, version, err)
		return
	}
	backend, err := c.open(addresses, found)
	c.replace(ctx, backend, version, err)
}

func (c *connection) replace(ctx context.Context, backend Backend, version string, err error) {
	c.mu.Lock()
	before := c.backend
	c.backend, c.version, c.err = backend, version, err
	c.mu.Unlock()
	if before != nil {
		if err := before.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "closing a connection to a search engine")
		}
	}
}
