// Package tunnels opens tunnels from the agent of a cluster to the federation, through which the federation reaches the cluster's API server.
//
// There is one to each cluster-gateway. Who uses one must impersonate a user: the agent adds its credentials to nothing else.
package tunnels

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// Opener keeps a tunnel to each cluster-gateway. Create one with New.
type Opener struct {
	cluster string
	at      url.URL
	gateway http.RoundTripper
	member  http.Handler
	own     *rest.Config  // of the cluster
	ended   chan struct{} // has a value when a tunnel has ended that was steady

	mu   sync.Mutex
	ends []string // at which there is a tunnel
}

// New returns an Opener. It does nothing before Run.
func New(cluster string, gateway, member *rest.Config) (*Opener, error) {
	base, _, err := rest.DefaultServerUrlFor(gateway)
	if err != nil {
		return nil, fmt.Errorf("preparing tunnels: %w", err)
	}
	o := &Opener{cluster: cluster, at: *base, own: member, ended: make(chan struct{}, 1)}
	o.at.Path = strings.TrimSuffix(base.Path, "/") + "/apis/" + clusterv1alpha1.GroupVersion.String() + "/clusters/" + cluster + "/" + tunnel.Subresource
	if o.gateway, err = upgrading(gateway); err != nil {
		return nil, fmt.Errorf("preparing tunnels: %w", err)
	}
	if o.member, err = newMember(member); err != nil {
		return nil, fmt.Errorf("preparing tunnels: %w", err)
	}
	return o, nil
}

// upgrading returns a transport for requests that are upgraded to other protocols: a connection of HTTP/2 cannot be taken over.
func upgrading(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	if config.Transport == nil { // others look for upgrades themselves
		config.NextProtos = []string{"http/1.1"}
	}
	return rest.TransportFor(config)
}

const (
	// lookEvery is how often an agent looks for cluster-gateways that it has no tunnel to. Those that start wait somewhat longer.
	lookEvery = 10 * time.Second
	// steadyAfter is how long a tunnel was open that was worth opening.
	steadyAfter = 2 * time.Second
)

// backoff returns the pauses between attempts. Jitter keeps agents apart that have lost the same gateway.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: math.MaxInt, Cap: lookEvery}
}

// Run opens tunnels until the context ends.
func (o *Opener) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { o.grant(ctx) })
	pause, said := backoff(), ""
	for ctx.Err() == nil {
		err := o.open(ctx, &running)
		switch {
		case err != nil && err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			klog.FromContext(ctx).Info("cannot open a tunnel, retrying: what needs a connection to the cluster does not work", "err", err)
		case err == nil:
			said = ""
		}
		if o.loses(ctx, pause.Step()) {
			pause = backoff()
			sleep(ctx, pause.Step())
		}
	}
}

// grant lets the cluster-gateways read what they show of the cluster. They impersonate an identity that has no other rights.
func (o *Opener) grant(ctx context.Context) {
	for pause := backoff(); ctx.Err() == nil; sleep(ctx, pause.Step()) {
		err := membership.GrantStatus(ctx, o.own, o.cluster)
		if err == nil {
			return
		}
		klog.FromContext(ctx).Info("cannot let the federation read pods, events and nodes, retrying", "err", err)
	}
}

// loses reports whether a tunnel that was steady ends within a time.
func (o *Opener) loses(ctx context.Context, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-o.ended:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// open opens a tunnel to a cluster-gateway that has none, if there is one.
func (o *Opener) open(ctx context.Context, running *sync.WaitGroup) error {
	header := http.Header{}
	if held := o.held(); len(held) > 0 {
		header.Set(tunnel.HeldHeader, strings.Join(held, ","))
	}
	answer, connection, err := tunnel.Ask(ctx, o.gateway, o.at, tunnel.Protocol, header)
	switch {
	case err != nil:
		return err
	case connection == nil && answer.StatusCode == http.StatusNoContent:
		return nil
	case connection == nil:
		return refusal(answer)
	}
	end := answer.Header.Get(tunnel.EndHeader)
	o.mu.Lock()
	o.ends = append(o.ends, end)
	o.mu.Unlock()
	klog.FromContext(ctx).Info("opened a tunnel", "end", end)
	running.Go(func() {
		began := time.Now()
		err := tunnel.Serve(ctx, connection, o.member)
		o.mu.Lock()
		if i := slices.Index(o.ends, end); i >= 0 {
			o.ends = slices.Delete(o.ends, i, i+1)
		}
		o.mu.Unlock()
		klog.FromContext(ctx).Info("a tunnel has ended", "end", end, "err", err)
		if time.Since(began) < steadyAfter {
			return
		}
		select {
		case o.ended <- struct{}{}:
		default:
		}
	})
	return nil
}

// Count returns the number of open tunnels.
func (o *Opener) Count() int { return len(o.held()) }

func (o *Opener) held() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ends)
}

// refusal returns what a gateway says instead of opening a tunnel.
func refusal(answer *http.Response) error {
	said := make([]byte, 4<<10)
	n, _ := answer.Body.Read(said)
	status := metav1.Status{}
	if utiljson.Unmarshal(said[:n], &status) == nil && status.Message != "" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(answer.StatusCode, "POST", schema.GroupResource{}, "", strings.TrimSpace(string(said[:n])), 0, true)
}
