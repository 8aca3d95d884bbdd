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
	// sites are the profile's preferences between data centres, nil if there are none.
	sites *cellplanev1alpha1.SitePreferences

	filters    []filter
	scorers    []scorer
	tiers      *term
	serving    []bool
	spread     spread
	candidates []candidate // one per cluster, in the order of names

	// Of the attempt: the highest price of all clusters, what is moved at a pace, what lacks room to be moved to, when to
	// go on, and what there is to say about it.
	highestPrice float64
	moved        int32
	stranded     int32
	again        time.Duration
	notes        []string
}

// candidate is a cluster and what is known of it so far.
type candidate struct {
	*member
	// Of the request: whether the cluster holds the template, how many replicas of it, and what groups it is in.
	held, evicting, together, apart bool
	assigned                        int32

	// Of the attempt.
	tier           int
	step           int // the order in which clusters are filled
	site           string
	filter, reason string
	score          int64
	available      int64 // unknown until asked for
	growth         int64 // how much of that exists only after the cluster has grown
	selected       bool
	replicas       int32
}

// capacity is how many replicas the cluster has room for, with those it holds.
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

// attempt decides with the clusters of one group.
func (c *cycle) attempt(group *term) ([]workv1alpha2.TargetCluster, *Failure) {
	c.tiers = group
	eligible := c.filter()
	if len(eligible) == 0 {
		return nil, c.noClusterFit()
	}
	c.score(eligible)
	c.orderSites(eligible)
	held := slices.Clone(eligible) // selecting may exchange what is in eligible
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

// filter returns the clusters that may hold the template, and notes why the others may not.
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

// workload tells whether the template has replicas to find room for.
func (c *cycle) workload() bool { return c.spec.Replicas > 0 || c.isSet }

// estimate notes how much room each cluster has.
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
		at.available = c.room(at, &wanted)
		if c.request.Growth != nil {
			at.growth = min(at.available, max(0, int64(c.request.Growth(at.cluster, c.spec))))
		}
	}
}

// room asks the estimators. One that sees no bound at all is taken to have room for what is asked.
func (c *cycle) room(at *candidate, wanted *need) int64 {
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

// rank orders clusters from the best: those to be filled earlier first, then by score, capacity and name.
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
