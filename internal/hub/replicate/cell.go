package replicate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
)

// A cell is probed every probeInterval. It is unreachable after maxFailures consecutive failures, and reachable again with
// the first success.
const (
	probeInterval = time.Second
	probeTimeout  = 3 * time.Second
	maxFailures   = 3
	// writeTimeout bounds one request that writes.
	writeTimeout = 10 * time.Second
	dialTimeout  = 3 * time.Second
)

// cell copies to one cell. While the cell is reachable it has a session, which caches what the cell has.
type cell struct {
	name      string
	config    *rest.Config
	hub       *hub
	options   Options
	dialer    *connrotation.Dialer
	client    dynamic.Interface
	metadata  metadata.Interface
	discovery *discovery.DiscoveryClient

	cancel  context.CancelFunc // nil until it runs
	stopped chan struct{}

	mu      sync.Mutex
	session *session // nil while unreachable
	reason  error    // why it is unreachable
}

func newCell(name string, config *rest.Config, hub *hub, options Options) (*cell, error) {
	config = unlimited(config)
	// Connections that hang are closed with their session.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout}).DialContext)
	config.Dial = dialer.DialContext
	c := &cell{name: name, config: config, hub: hub, options: options, dialer: dialer, reason: errNotTried}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	if c.client, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, err
	}
	c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	return c, err
}

// stop stops a running cell and waits for it.
func (c *cell) stop() {
	if c == nil || c.cancel == nil {
		return
	}
	c.cancel()
	c.dialer.CloseAll() // ends requests that hang
	<-c.stopped
}

var (
	errNotTried = errors.New("the cell has not been contacted yet")
	// errAnotherHub means that a cell was populated from another hub.
	errAnotherHub = errors.New("the cell was populated from another hub")
)

// run has one session after another until ctx ends.
func (c *cell) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	defer c.dialer.CloseAll()
	for {
		err := c.replicate(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.lost(err) {
			logger.Info("cell is unreachable, replication is paused", "err", err)
		}
		c.dialer.CloseAll()
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeInterval):
		}
	}
}

// replicate connects to the cell and copies until the cell is unreachable.
func (c *cell) replicate(ctx context.Context) error {
	if err := c.probe(ctx); err != nil {
		return err
	}
	if err := c.claim(ctx); err != nil {
		return err
	}
	if c.options.Prepare != nil {
		if err := c.options.Prepare(ctx, c.name, c.config); err != nil {
			return err
		}
	}
	session, err := newSession(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		session.run(ctx)
	}()
	c.begin(session)
	err = c.awaitLoss(ctx)
	cancel()
	c.dialer.CloseAll() // ends requests that hang
	<-ended
	return err
}

// probe checks that the cell is ready.
func (c *cell) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("checking whether the cell is ready: %w", err)
	}
	return nil
}

// awaitLoss probes the cell, and returns when it is unreachable.
func (c *cell) awaitLoss(ctx context.Context) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		err := c.probe(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures >= maxFailures {
			return err
		}
	}
}

// claim makes sure that the cell belongs to this hub. It marks a new cell as this hub's.
func (c *cell) claim(ctx context.Context) error {
	kind := c.hub.kind(namespaces)
	select {
	case <-kind.informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	source := kind.get("", metav1.NamespaceSystem)
	if source == nil {
		return errors.New("the hub has no namespace kube-system, whose UID identifies it")
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	current, err := c.client.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading which hub the cell belongs to: %w", err)
	}
	switch uid := SourceUID(current); uid {
	case source.UID:
		return nil
	case "":
		have, err := newCopy(kind.rule, current)
		if err != nil {
			return err
		}
		_, err = c.update(ctx, kind.rule, source, have)
		return err
	default:
		return fmt.Errorf("%w (its UID is %s, not %s); to use it with this hub, remove the annotation %s from its namespace %s",
			errAnotherHub, uid, source.UID, SourceUIDAnnotation, metav1.NamespaceSystem)
	}
}

// begin makes a session the current one.
func (c *cell) begin(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.reason = s, nil
}

// lost notes why the cell is unreachable and reports whether that is new.
func (c *cell) lost(reason error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.session != nil || c.reason == nil || errors.Is(c.reason, errNotTried)
	c.session, c.reason = nil, reason
	return news
}

func (c *cell) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.reason
}

// released reports whether the cell has no copy of an object, or is unreachable.
func (c *cell) released(resource schema.GroupVersionResource, namespace, name string, uid types.UID) bool {
	session, reason := c.current()
	if session == nil {
		return !errors.Is(reason, errNotTried)
	}
	kind := session.kinds[c.hub.number(resource)]
	if !kind.ready.Load() {
		return false
	}
	have := kind.get(namespace, name)
	return have == nil || have.source() != uid
}
