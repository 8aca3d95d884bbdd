package schedule

import (
	"cmp"
	"math"
	"slices"
	"time"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// cycle is the state of one decision.
type cycle struct {
	request   *Request
	spec      *workv1alpha2.ResourceBindingSpec
	placement *policyv1alpha1.Placement
	snapshot  *Snapshot
	strategy  strategy
	// isSet is true for a template of several components, which are placed together.
	isSet bool
	// sites are the profile's preferences between sites, or nil.
	sites *cellplanev1alpha1.SitePreferences

	filters    []filter
	scorers    []scorer
	tiers      *term
	serving    []bool
	spread     spread
	candidates []candidate // one per cluster, by name

	// State of the attempt: the highest price, the number of moved replicas, the number that lack capacity to move
	// to, the delay until the next decision, and notes.
	highestPrice float64
	moved        int32
	stranded     int32
	again        time.Duration
	notes        []string
}

// candidate is a cluster and the state of the decision about it.
type candidate struct {
	*member
	// From the request: whether the cluster holds the template, its replicas, and its workload affinity groups.
	held, evicting, together, apart bool
	assigned                        int32

	// State of the attempt.
	tier           int
	step           int // position in the order in which clusters are used
	site           string
	filter, reason string
	score          int64
	available      int64 // unknown until estimated
	growth         int64 // the part of available that exists only after the cluster grows
	selected       bool
	replicas       int32
}

// capacity is the number of replicas that the cluster can hold, including those it holds already.
func (c *candidate) capacity() int64 { return c.available + int64(c.assigned) }

func newCycle(request *Request, snapshot *Snapshot) *cycle {
	spec := request.Spec
	placement := spec.Placement
	if placement == nil {
		placement = &policyv1alpha1.Placement{}
	}
	c := &cycle{
		request: request, spec: spec, placement: placement, snapshot: snapshot,
		strategy: strategyOf(placement), isSet: placesSets(spec),
		filters: request.Plugins.filters(), scorers: request.Plugins.scorers(scorersOf(request.Profile)),
		serving:    snapshot.serves(spec.Resource.APIVersion, spec.Resource.Kind),
		spread:     newSpread(placement.SpreadConstraints),
		candidates: make([]candidate, len(snapshot.members)),
	}
	if request.Profile != nil {
		c.sites = request.Profile.Sites
	}
	for i := range snapshot.members {
		c.candidates[i].member = &snapshot.members[i]
	}
	for i := range spec.Clusters {
		c.mark(spec.Clusters[i].Name, func(at *candidate) { at.held, at.assigned = true, max(0, spec.Clusters[i].Replicas) })
	}
	for i := range spec.GracefulEvictionTasks {
		c.mark(spec.GracefulEvictionTasks[i].FromCluster, func(at *candidate) { at.evicting = true })
	}
	for _, name := range request.AffinityClusters {
		c.mark(name, func(at *candidate) { at.together = true })
	}
	for _, name := range request.AntiAffinityClusters {
		c.mark(name, func(at *candidate) { at.apart = true })
	}
	return c
}

func (c *cycle) mark(cluster string, set func(*candidate)) {
	if i, known := c.snapshot.index[cluster]; known {
		set(&c.candidates[i])
	}
}

// attempt plans with the clusters of one affinity term.
func (c *cycle) attempt(group *term) ([]workv1alpha2.TargetCluster, *Failure) {
	c.tiers = group
	eligible := c.filter()
	if len(eligible) == 0 {
		return nil, c.noClusterFit()
	}
	c.score(eligible)
	c.orderSites(eligible)
	held := slices.Clone(eligible) // selection may reorder eligible
	selected, failure := c.selectClusters(eligible)
	if failure != nil {
		return nil, failure
	}
	selected = c.withDrained(held, selected)
	for _, chosen := range selected {
		chosen.selected = true
	}
	if failure := c.assign(selected); failure != nil {
		return nil, failure
	}
	c.noteBurst(selected)
	return c.targets(selected), nil
}

// filter returns the eligible clusters and records why the others are not.
func (c *cycle) filter() []*candidate {
	eligible := make([]*candidate, 0, len(c.candidates))
	c.moved, c.stranded, c.again, c.notes = 0, 0, 0, nil
	for i := range c.candidates {
		at := &c.candidates[i]
		at.tier, at.filter, at.reason, at.score, at.available, at.selected, at.replicas = 0, "", "", 0, unknown, false, 0
		at.step, at.site, at.growth = 0, "", 0
		if c.passes(at) {
			eligible = append(eligible, at)
		}
	}
	return eligible
}

func (c *cycle) passes(at *candidate) bool {
	for _, filter := range c.filters {
		if reason := filter.Filter(c, at); reason != "" {
			at.filter, at.reason = filter.Name(), reason
			return false
		}
	}
	return true
}

func (c *cycle) score(eligible []*candidate) {
	c.highestPrice = 0
	if len(c.scorers) > 1 {
		for _, at := range eligible {
			c.highestPrice = max(c.highestPrice, HourlyPrice(at.profile, c.spec))
		}
	}
	for _, at := range eligible {
		for _, scorer := range c.scorers {
			at.score += scorer.Score(c, at)
		}
	}
}

// workload reports whether the template has replicas.
func (c *cycle) workload() bool { return c.spec.Replicas > 0 || c.isSet }

// estimate sets the free capacity of each cluster.
func (c *cycle) estimate(eligible []*candidate) {
	if !c.workload() {
		for _, at := range eligible {
			at.available = math.MaxInt32
		}
		return
	}
	wanted := newNeed(c.spec, c.isSet)
	for _, at := range eligible {
		if at.available != unknown {
			continue
		}
		at.available = c.capacityFor(at, &wanted)
		if c.request.Growth != nil {
			at.growth = min(at.available, max(0, int64(c.request.Growth(at.cluster, c.spec))))
		}
	}
}

// capacityFor asks the estimators for the free capacity. If no estimator knows a limit, the capacity is sufficient
// for the request.
func (c *cycle) capacityFor(at *candidate, wanted *need) int64 {
	lowest := int64(math.MaxInt64)
	for _, estimator := range c.request.Estimators {
		if answer := estimator(at.cluster, c.spec); answer >= 0 {
			lowest = min(lowest, int64(answer))
		}
	}
	if lowest == math.MaxInt64 {
		lowest = at.fit(wanted)
	}
	if lowest >= math.MaxInt32 {
		return int64(max(c.spec.Replicas, 1))
	}
	return lowest
}

// rank sorts clusters by step, score, capacity and name.
func rank(eligible []*candidate) {
	slices.SortFunc(eligible, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.step, b.step), -cmp.Compare(a.score, b.score), -cmp.Compare(a.capacity(), b.capacity()), cmp.Compare(a.position, b.position))
	})
}

func (c *cycle) targets(selected []*candidate) []workv1alpha2.TargetCluster {
	slices.SortFunc(selected, func(a, b *candidate) int { return cmp.Compare(a.position, b.position) })
	targets := make([]workv1alpha2.TargetCluster, 0, len(selected))
	for _, at := range selected {
		if c.strategy != duplicated && c.spec.Replicas > 0 && at.replicas == 0 && !c.isSet && !c.request.EmptyWorkloads {
			continue
		}
		target := workv1alpha2.TargetCluster{Name: at.cluster.Name, Replicas: at.replicas}
		if c.isSet {
			target.Components = components(c.spec)
		}
		targets = append(targets, target)
	}
	return targets
}
