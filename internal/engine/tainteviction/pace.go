package tainteviction

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Disruption is the degree to which a region fails.
type Disruption int

const (
	// Normal means that most clusters are healthy.
	Normal Disruption = iota
	// Partial means that most clusters of the region fail.
	Partial
	// Full means that all clusters of the region fail.
	Full
)

// Rates limit evictions, in evictions per second.
type Rates struct {
	// Normal applies while most clusters are healthy; 0 means 200.
	Normal float64
	// Disrupted applies in a region where most clusters fail; 0 means 2.
	Disrupted float64
}

func (r Rates) complete() Rates {
	if r.Normal <= 0 {
		r.Normal = 200
	}
	if r.Disrupted <= 0 {
		r.Disrupted = 2
	}
	return r
}

// Thresholds of disruptions. Fewer than minDisrupted failing clusters never count as a disruption, however small
// the region.
const (
	disruptedShare  = 0.55
	minDisrupted    = 3
	minSlowedRegion = 10 // a smaller region with a partial disruption is not evacuated at all
	maxCatchUp      = time.Second
	stoppedRetry    = 5 * time.Second
)

// state counts clusters and failures by region.
type state struct {
	regions map[string]region
	// stopped means that so many clusters fail in total that the fault is probably in the control plane or its
	// network.
	stopped bool
}

type region struct{ clusters, failing int }

// observe counts healthy and failing clusters. A cluster without a Ready condition counts as healthy.
func observe(clusters []*clusterv1alpha1.Cluster) state {
	s := state{regions: map[string]region{}}
	failing := 0
	for _, cluster := range clusters {
		r := s.regions[cluster.Spec.Region]
		r.clusters++
		if isFailing(cluster) {
			r.failing++
			failing++
		}
		s.regions[cluster.Spec.Region] = r
	}
	s.stopped = failing > 0 && failing == len(clusters) ||
		failing >= minDisrupted && float64(failing) >= disruptedShare*float64(len(clusters))
	return s
}

func isFailing(cluster *clusterv1alpha1.Cluster) bool {
	ready := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
	return ready != nil && ready.Status != "True"
}

// disruption classifies a region.
func (r region) disruption() Disruption {
	switch {
	case r.failing < minDisrupted:
		return Normal
	case r.failing == r.clusters:
		return Full
	case float64(r.failing) >= disruptedShare*float64(r.clusters):
		return Partial
	default:
		return Normal
	}
}

// rate returns the permitted evictions per second from failing clusters of a region.
func (s *state) rate(name string, rates Rates) float64 {
	r := s.regions[name]
	switch d := r.disruption(); {
	case s.stopped:
		return 0
	case d == Normal:
		return rates.Normal
	case d == Partial && r.clusters < minSlowedRegion:
		return 0
	default:
		return rates.Disrupted
	}
}

// pace rate-limits evictions: each reserves a time. Evictions from healthy clusters are requested by somebody and
// always use the normal rate.
type pace struct {
	rates Rates

	mu       sync.Mutex
	state    state
	limiters map[string]*rate.Limiter // by region
	healthy  *rate.Limiter
	epoch    int // incremented when a rate changes
}

// slot is the reserved time of an eviction. It is valid until a rate changes.
type slot struct {
	at    time.Time
	epoch int
}

func newPace(rates Rates) *pace {
	rates = rates.complete()
	return &pace{rates: rates, limiters: map[string]*rate.Limiter{}, healthy: limiterOf(rates.Normal)}
}

// limiterOf returns a limiter whose burst covers maxCatchUp.
func limiterOf(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond*maxCatchUp.Seconds())))
}

// adapt updates the rates from the state of the clusters.
func (p *pace) adapt(clusters []*clusterv1alpha1.Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = observe(clusters)
	for name, r := range p.state.regions {
		disruption.WithLabelValues(name).Set(float64(r.disruption()))
		wanted := p.state.rate(name, p.rates)
		if limiter := p.limiters[name]; limiter == nil || float64(limiter.Limit()) != wanted {
			p.limiters[name] = limiterOf(wanted) // invalidates reservations at the old rate
			p.epoch++
		}
	}
	for name := range p.limiters {
		if _, there := p.state.regions[name]; !there {
			delete(p.limiters, name)
			disruption.DeleteLabelValues(name)
		}
	}
}

// reserve returns the time for an eviction from a cluster. A valid reservation is kept. It returns false while
// evictions are stopped.
func (p *pace) reserve(cluster *clusterv1alpha1.Cluster, reserved slot, now time.Time) (s slot, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.healthy
	if isFailing(cluster) {
		limiter = p.limiters[cluster.Spec.Region]
	}
	if limiter == nil || limiter.Limit() == 0 {
		return slot{}, false
	}
	if !reserved.at.IsZero() && reserved.epoch == p.epoch {
		return reserved, true
	}
	return slot{at: now.Add(limiter.ReserveN(now, 1).DelayFrom(now)), epoch: p.epoch}, true
}
