package tainteviction

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Disruption is how badly a region does.
type Disruption int

const (
	// Normal means that most clusters are well.
	Normal Disruption = iota
	// Partial means that most clusters of the region fail.
	Partial
	// Full means that all clusters of the region fail.
	Full
)

// String is what metrics call a disruption.
func (d Disruption) String() string { return [...]string{"Normal", "Partial", "Full"}[d] }

// Rates say how fast workloads are evicted, in evictions per second.
type Rates struct {
	// Normal is the rate as long as most clusters are well; 0 means 200.
	Normal float64
	// Disrupted is the rate in a region where most clusters fail; 0 means 2.
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

// Bounds of disruptions. A few clusters that fail say nothing about their region, however few there are.
const (
	disruptedShare   = 0.55
	fewestDisrupted  = 3
	smallestSlowed   = 10 // a smaller region that is partly disrupted is not evacuated at all
	longestCatchUp   = time.Second
	pauseWhenStopped = 5 * time.Second
)

// state is how clusters do, in all and by region.
type state struct {
	regions map[string]region
	// stopped means that so many clusters fail everywhere that the fault is rather between them and us.
	stopped bool
}

type region struct{ clusters, failing int }

// observe counts how clusters do. One that nobody has asked yet is taken to be well.
func observe(clusters []*clusterv1alpha1.Cluster) state {
	s := state{regions: map[string]region{}}
	failing := 0
	for _, cluster := range clusters {
		r := s.regions[cluster.Spec.Region]
		r.clusters++
		if fails(cluster) {
			r.failing++
			failing++
		}
		s.regions[cluster.Spec.Region] = r
	}
	s.stopped = failing > 0 && failing == len(clusters) ||
		failing >= fewestDisrupted && float64(failing) >= disruptedShare*float64(len(clusters))
	return s
}

func fails(cluster *clusterv1alpha1.Cluster) bool {
	ready := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
	return ready != nil && ready.Status != "True"
}

// disruption classifies a region.
func (r region) disruption() Disruption {
	switch {
	case r.failing < fewestDisrupted:
		return Normal
	case r.failing == r.clusters:
		return Full
	case float64(r.failing) >= disruptedShare*float64(r.clusters):
		return Partial
	default:
		return Normal
	}
}

// rate returns how many evictions per second clusters of a region bear. Where clusters are well, evictions are somebody's
// will and need no caution beyond the normal rate.
func (s *state) rate(name string, rates Rates) float64 {
	r := s.regions[name]
	switch d := r.disruption(); {
	case s.stopped:
		return 0
	case d == Normal:
		return rates.Normal
	case d == Partial && r.clusters < smallestSlowed:
		return 0
	default:
		return rates.Disrupted
	}
}

// pace hands out evictions: each gets a moment of its own. Clusters that are well themselves are evacuated at the normal
// rate, whatever the others do.
type pace struct {
	rates Rates

	mu       sync.Mutex
	state    state
	limiters map[string]*rate.Limiter // by region
	healthy  *rate.Limiter
	epoch    int // counts changes of rates
}

// slot is the moment of an eviction. A change of rates voids it.
type slot struct {
	at    time.Time
	epoch int
}

func newPace(rates Rates) *pace {
	rates = rates.complete()
	return &pace{rates: rates, limiters: map[string]*rate.Limiter{}, healthy: limiterOf(rates.Normal)}
}

// limiterOf lets what was missed for a moment be made up for, no more.
func limiterOf(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond*longestCatchUp.Seconds())))
}

// adapt takes note of how clusters do.
func (p *pace) adapt(clusters []*clusterv1alpha1.Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = observe(clusters)
	for name, r := range p.state.regions {
		disruption.WithLabelValues(name).Set(float64(r.disruption()))
		wanted := p.state.rate(name, p.rates)
		if limiter := p.limiters[name]; limiter == nil || float64(limiter.Limit()) != wanted {
			p.limiters[name] = limiterOf(wanted) // what was booked at the old rate is void
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

// book gives an eviction from a cluster its moment; a booking that is still good stays. It is not ok where evictions are
// stopped.
func (p *pace) book(cluster *clusterv1alpha1.Cluster, booked slot, now time.Time) (s slot, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.healthy
	if fails(cluster) {
		limiter = p.limiters[cluster.Spec.Region]
	}
	if limiter == nil || limiter.Limit() == 0 {
		return slot{}, false
	}
	if !booked.at.IsZero() && booked.epoch == p.epoch {
		return booked, true
	}
	return slot{at: now.Add(limiter.ReserveN(now, 1).DelayFrom(now)), epoch: p.epoch}, true
}
