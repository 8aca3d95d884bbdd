package clusterstatus

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/simulate"
)

// Options configure the collection; zero values are Karmada's defaults.
type Options struct {
	// Interval is how often the status of a member is collected.
	Interval time.Duration
	// ProbeTimeout bounds each request to a member.
	ProbeTimeout time.Duration
	// SuccessThreshold is how long a member must be healthy before it is Ready again, and FailureThreshold how long it must
	// be unhealthy before it is no longer Ready.
	SuccessThreshold time.Duration
	FailureThreshold time.Duration
	// MonitorInterval is how often the lease of a member with an agent is looked at, MonitorGracePeriod how old it may
	// become, and StartupGracePeriod how long an agent may take to come up.
	MonitorInterval    time.Duration
	MonitorGracePeriod time.Duration
	StartupGracePeriod time.Duration
	// WithoutResources disables watching and summing up nodes and pods.
	WithoutResources bool
	// Models get the nodes and pods of members, in addition to the summaries. It may be nil.
	Models Models
}

// Models are the detailed models of members, node by node.
type Models interface {
	// Open returns an empty model for a cluster, which replaces the former one.
	Open(cluster string, uid types.UID) *simulate.Model
	// Close removes the model of a cluster, unless it has been replaced.
	Close(cluster string, m *simulate.Model)
}

func (o Options) withDefaults() Options {
	o.Interval = cmp.Or(o.Interval, 10*time.Second)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 10*time.Second)
	o.SuccessThreshold = cmp.Or(o.SuccessThreshold, 30*time.Second)
	o.FailureThreshold = cmp.Or(o.FailureThreshold, 30*time.Second)
	o.MonitorInterval = cmp.Or(o.MonitorInterval, 5*time.Second)
	o.MonitorGracePeriod = cmp.Or(o.MonitorGracePeriod, 40*time.Second)
	o.StartupGracePeriod = cmp.Or(o.StartupGracePeriod, 60*time.Second)
	return o
}
