package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	memberviews "github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/members"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/gateway/views"
)

// ViewOptions are the addresses of the cluster-gateways. Without any, the gateway does not show objects of members.
type ViewOptions struct {
	// ClusterGateways has one entry per share of the clusters: the URLs of its replicas, separated by commas.
	ClusterGateways []string
	// CA verifies the cluster-gateways; Cert and Key authenticate the gateway. The default is those for the hub.
	CA, Cert, Key string
	// Kinds are the resources of members to show, as resource.group.
	Kinds []string
}

func (o *ViewOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.ClusterGateways, "cluster-gateway", o.ClusterGateways, "URLs of the replicas of a cluster-gateway, separated by commas; repeat the flag for each share of the clusters")
	flags.StringVar(&o.CA, "cluster-gateway-ca-file", o.CA, "CA of the cluster-gateways (default: that of the hub)")
	flags.StringVar(&o.Cert, "cluster-gateway-client-cert-file", o.Cert, "client certificate for the cluster-gateways (default: that of --hub-kubeconfig)")
	flags.StringVar(&o.Key, "cluster-gateway-client-key-file", o.Key, "key of that certificate")
	flags.StringSliceVar(&o.Kinds, "member-views", memberviews.Names(memberviews.Default()), "resources of members to show, as resource.group")
}

// completedViews are the shares of the cluster-gateways, and the resources that they serve.
type completedViews struct {
	shares    [][]*fleet.Upstream
	endpoints [][]fleet.Endpoint
	resources map[schema.GroupVersionResource]bool
}

// complete reads files.
func (o *ViewOptions) complete(endpoint fleet.Endpoint, connections int) (completedViews, error) {
	c := completedViews{resources: map[schema.GroupVersionResource]bool{}}
	if len(o.ClusterGateways) == 0 {
		return c, nil
	}
	kinds := o.Kinds
	if len(kinds) == 0 {
		kinds = memberviews.Names(memberviews.Default())
	}
	shown, err := memberviews.Parse(kinds)
	if err != nil {
		return c, fmt.Errorf("reading --member-views: %w", err)
	}
	for _, view := range shown {
		for _, resource := range append([]schema.GroupVersionResource{view.Resource}, view.Aliases...) {
			c.resources[resource] = true
		}
	}
	endpoint.ServerName = ""
	endpoint.CAFile = cmp.Or(o.CA, endpoint.CAFile)
	endpoint.CertFile = cmp.Or(o.Cert, endpoint.CertFile)
	endpoint.KeyFile = cmp.Or(o.Key, endpoint.KeyFile)
	if endpoint, err = endpoint.LoadFiles(); err != nil {
		return c, fmt.Errorf("reading the certificates for cluster-gateways: %w", err)
	}
	if len(endpoint.Cert) == 0 {
		return c, errors.New("--cluster-gateway-client-cert-file must be set: --hub-kubeconfig has no client certificate")
	}
	for _, share := range o.ClusterGateways {
		var replicas []*fleet.Upstream
		var endpoints []fleet.Endpoint
		for address := range strings.SplitSeq(share, ",") {
			endpoint.Server = strings.TrimSpace(address)
			upstream, err := fleet.NewUpstream("cluster-gateway "+endpoint.Server, endpoint, connections)
			if err != nil {
				return c, err
			}
			replicas, endpoints = append(replicas, upstream), append(endpoints, endpoint)
		}
		c.shares, c.endpoints = append(c.shares, replicas), append(c.endpoints, endpoints)
	}
	return c, nil
}

// hasMetrics reports whether a member serves metrics.
func (c *Config) hasMetrics() bool {
	return len(c.options.views.shares) > 0 && c.members != nil && c.members.Serve("metrics.k8s.io/v1beta1")
}

// memberViews returns a handler that serves the objects of members, and leaves the rest to next.
func (c *Config) memberViews(next http.Handler, objects router.Objects) http.Handler {
	shares := c.options.views
	if len(shares.shares) == 0 {
		return next
	}
	source := &shareSource{endpoints: shares.endpoints}
	c.shares = topology.NewTracker(source, &fleet.Cells{Connections: c.options.Connections}, "")
	c.views = views.New(views.Options{
		Shares:    shares.shares,
		Resources: shares.resources,
		Merged: router.NewMerged(router.Router{
			Hub: c.router.Hub, Topology: c.shares, Kinds: c.kinds, NamespaceExists: c.namespaceExists,
		}),
		Next:     next,
		Members:  members.NewProxy(c.members),
		Template: objects.Get,
	})
	source.ready = c.views.Ready
	c.members.Dial = c.views.Dial
	return c.views
}

// shareSource is a topology whose cells are the shares of the cluster-gateways, for lists and watches that are merged over them.
type shareSource struct {
	endpoints [][]fleet.Endpoint
	ready     func() []int
}

// shareInterval is how often the readiness of the replicas is read.
const shareInterval = time.Second

// Run implements topology.Source. A change of replica begins a new epoch: a replica does not know the versions of another.
func (s *shareSource) Run(ctx context.Context, deliver func(topology.Topology)) error {
	ticker := time.NewTicker(shareInterval)
	defer ticker.Stop()
	var last []int
	for epoch := int64(1); ; {
		if chosen := s.ready(); !slices.Equal(chosen, last) {
			t := topology.Topology{Epoch: epoch, Ready: true}
			for i, replica := range chosen {
				t.Cells = append(t.Cells, topology.Cell{Name: fmt.Sprintf("share-%03d", i), Weight: 1, Endpoint: s.endpoints[i][replica]})
			}
			deliver(t)
			last = chosen
			epoch++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
