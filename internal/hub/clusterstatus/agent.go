package clusterstatus

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Reporter writes the status of one Cluster from inside the member: its agent has one.
type Reporter struct{ collector *collector }

// NewReporter prepares to report about a member. The client leads to the federation, and has no cache.
func NewReporter(federation client.Client, cluster string, own *rest.Config, options Options) (*Reporter, error) {
	c := &Controller{client: federation, live: federation, options: options.withDefaults()}
	n := &collector{name: cluster, controller: c, wake: make(chan struct{}, 1)}
	var err error
	n.member, err = openMember(cluster, "", fleet.ConnectOwn(own), c.options, n.wakeUp)
	return &Reporter{n}, err
}

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) { r.collector.run(ctx) }
