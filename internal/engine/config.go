package engine

import (
	"context"
	"errors"
	"regexp"

	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/health"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/scrape"
)

// Config is the configuration of an engine that can be run.
type Config struct {
	// Cell is the name of the cell.
	Cell string
	// Config is for the cell's API server.
	Config *rest.Config
	// Hub makes this the engine of the hub: it also propagates cluster-scoped templates and namespaces.
	Hub bool
	// LeaderElect allows several engines for one cell: one leads, the others stand by.
	LeaderElect bool
	// Preemption lets policies take templates from others.
	Preemption bool
	// SuccessEvents is which events about successes are written; empty means some.
	SuccessEvents events.Successes
	// SkippedAPIs are groups, group/versions or group/version/kinds that are never propagated.
	SkippedAPIs []string
	// SkippedNamespaces are not created in members, in addition to those of the control plane. Only the hub's engine
	// creates namespaces.
	SkippedNamespaces []*regexp.Regexp
	// Federation is for the gateway's view of templates alone, HubAPI for the hub. They are used to propagate objects of
	// other cells that templates refer to. Without Federation this cell holds everything. The hub's engine needs no
	// HubAPI.
	Federation, HubAPI *rest.Config
	// Failover configures how workloads leave clusters; the zero value is valid.
	Failover Failover
	// PeerAddress is where the other engines of the cell hold a connection, to notice at once if this one dies; nothing
	// is sent on it. Empty means a loopback address, which helps engines on one host.
	PeerAddress string
	// Profiles are SchedulingProfiles that every policy may name, in addition to those in the cell.
	Profiles []*cellplanev1alpha1.SchedulingProfile
	// Plugins are the filters and scores of the scheduler; nil means all of them.
	Plugins *schedule.Plugins
	// EmptyWorkloads propagates workloads without replicas to chosen clusters that get none.
	EmptyWorkloads bool
	// MarkTargets lets propagated HorizontalPodAutoscalers own the replicas of their targets in the members. SyncReplicas writes the replicas that
	// members own to the templates.
	MarkTargets, SyncReplicas bool
	// Autoscaler configures the autoscaler of the federation, which needs Federation. Without a period there is none.
	Autoscaler autoscaler.Options
	// FederatedRollouts lets maxSurge, maxUnavailable and paused of Deployments with divided replicas hold for all clusters together.
	FederatedRollouts bool
	// Descheduler moves replicas with unschedulable pods to clusters with free capacity; nil disables it.
	Descheduler *descheduler.Options
	// MetricsAddress is where /metrics, /healthz and /readyz are served, without TLS or authentication: it should be a
	// loopback address. Empty means nowhere.
	MetricsAddress string
	// HealthAddress is where only /healthz and /readyz are served, for probes from outside of the host. Empty means nowhere.
	HealthAddress string
	// Scrape is where /metrics is served with TLS and authentication.
	Scrape scrape.Options
	// LimitMemory limits the memory of the process in proportion to the number of templates. Set it only if the engine
	// is all that the process runs.
	LimitMemory bool
	// WorkersPerMember is the number of concurrent requests to each member; 0 means memberWorkers.
	WorkersPerMember int
}

// Validate returns what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Cell == "" {
		return errors.New("the engine needs the name of its cell")
	}
	if c.Config == nil {
		return errors.New("the engine needs a configuration for the API server of its cell")
	}
	return nil
}

// Run runs the engine until the context ends or another engine becomes the leader.
func (c *Config) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	e, err := c.build(ctx)
	if err != nil {
		return err
	}
	metrics := e.registry()
	stop, err := health.Part{Ready: e.notReady, Metrics: metrics}.Serve(ctx, c.MetricsAddress, c.HealthAddress)
	if err != nil {
		return err
	}
	defer stop()
	stopScrapes, err := c.Scrape.Serve(ctx, metrics)
	if err != nil {
		return err
	}
	defer stopScrapes()
	if c.LimitMemory {
		go governMemory(ctx, e.cell.Templates.Len, e.ready.Load)
	}
	go e.skew.Run(ctx)
	if err := e.start(ctx); err != nil {
		return err
	}
	if err := e.skew.Await(ctx); err != nil {
		return nil //nolint:nilerr // stopped before it could lead
	}
	if !c.LeaderElect {
		return e.leadUnlessRefused(ctx)
	}
	return e.elect(ctx)
}
