package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	memberviews "github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/members"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/views"
)

// ViewOptions say where the cluster-gateways are. Without any, the objects of members are not shown.
type ViewOptions struct {
	// ClusterGateways are the URLs of the cluster-gateways: those of replicas with the same clusters, separated by commas, in one string.
	ClusterGateways []string
	// CA vouches for them, and Cert and Key are who the gateway is there; the default is what it has for the hub.
	CA, Cert, Key string
	// Kinds are the resources that are shown of members, as resource.group.
	Kinds []string
}

func (o *ViewOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.ClusterGateways, "cluster-gateway", o.ClusterGateways, "URL of a cluster-gateway, or several of replicas with the same clusters, separated by commas; repeat it for each share of the clusters")
	flags.StringVar(&o.CA, "cluster-gateway-ca-file", o.CA, "authority of the cluster-gateways (default: that of the hub)")
	flags.StringVar(&o.Cert, "cluster-gateway-client-cert-file", o.Cert, "certificate for the cluster-gateways (default: that of --hub-kubeconfig)")
	flags.StringVar(&o.Key, "cluster-gateway-client-key-file", o.Key, "key of that certificate")
	flags.StringSliceVar(&o.Kinds, "member-views", memberviews.Names(memberviews.Default()), "resources that are shown of members, as resource.group")
}

// completedViews are where the cluster-gateways are, and what they show.
type completedViews struct {
	shares    [][]*fleet.Upstream
	resources map[schema.GroupVersionResource]bool
}

// complete reads files. The hub's configuration has its own read already.
func (o *ViewOptions) complete(hub *rest.Config, connections int) (completedViews, error) {
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
	endpoint := fleet.Endpoint{CA: hub.CAData, Cert: hub.CertData, Key: hub.KeyData}
	for _, part := range []struct {
		file string
		into *[]byte
	}{{o.CA, &endpoint.CA}, {o.Cert, &endpoint.Cert}, {o.Key, &endpoint.Key}} {
		if part.file == "" {
			continue
		}
		if *part.into, err = os.ReadFile(part.file); err != nil {
			return c, fmt.Errorf("reading the certificates for cluster-gateways: %w", err)
		}
	}
	if len(endpoint.Cert) == 0 {
		return c, errors.New("--cluster-gateway-client-cert-file must be given, as --hub-kubeconfig has no certificate")
	}
	for _, share := range o.ClusterGateways {
		var replicas []*fleet.Upstream
		for address := range strings.SplitSeq(share, ",") {
			endpoint.Server = strings.TrimSpace(address)
			upstream, err := fleet.NewUpstream("cluster-gateway "+endpoint.Server, endpoint, connections)
			if err != nil {
				return c, err
			}
			replicas = append(replicas, upstream)
		}
		c.shares = append(c.shares, replicas)
	}
	return c, nil
}

// hasMetrics reports whether there are metrics of members to show.
func (c *Config) hasMetrics() bool {
	return len(c.options.views.shares) > 0 && c.members != nil && c.members.Serve("metrics.k8s.io/v1beta1")
}

// memberViews shows the objects of members in front of next.
func (c *Config) memberViews(next http.Handler, objects router.Objects) http.Handler {
	if len(c.options.views.shares) == 0 {
		return next
	}
	c.views = views.New(views.Options{
		Shares:    c.options.views.shares,
		Resources: c.options.views.resources,
		Next:      next,
		Members:   members.NewProxy(c.members),
		Template:  objects.Get,
	})
	return c.views
}
