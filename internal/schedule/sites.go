package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// site is a group of clusters, such as a data centre, by the profile's grouping.
type site struct {
	name     string
	clusters []*candidate
	// Of its clusters: whether any can grow, the lowest price, and the shortest time to grow.
	elastic        bool
	price, latency float64
	capacity       int64
}

// siteOf returns the name of a cluster's site.
func siteOf(by cellplanev1alpha1.SiteField, m *member) string {
	switch by {
	case cellplanev1alpha1.SiteByCluster:
		return m.cluster.Name
	case cellplanev1alpha1.SiteByZone:
		return strings.Join(m.zones, ",")
	case cellplanev1alpha1.SiteByProvider:
		return strings.Join(m.provider, ",")
	default:
		return strings.Join(m.region, ",")
	}
}

// draining reports whether the cluster's site is being drained.
func (c *cycle) draining(at *candidate) bool {
	return c.sites != nil && c.sites.Drain != nil && slices.Contains(c.sites.Drain.Sites, siteOf(c.sites.GroupBy, at.member))
}

// orderSites sets the steps in which clusters are used: by the tiers of the placement, then by the profile's order
// of sites.
func (c *cycle) orderSites(eligible []*candidate) {
	for _, at := range eligible {
		at.step = at.tier
	}
	if c.sites == nil || !c.strategy.byCapacity() || c.spec.Replicas <= 0 {
		return
	}
	c.estimate(eligible)
	for _, at := range eligible {
		c.keepReserve(at)
	}
	sites := c.groupSites(eligible)
	slices.SortFunc(sites, func(a, b *site) int { return c.compareSites(a, b) })
	order := func(at *candidate, rank int) int { return at.tier*(len(sites)+1) + rank }
	rank := 0
	for i, s := range sites {
		if i > 0 && c.compareSites(sites[i-1], s) != 0 {
			rank++
		}
		for _, at := range s.clusters {
			at.site, at.step = s.name, order(at, rank)
			if c.draining(at) {
				at.step = order(at, len(sites)) // drained sites come last
			}
		}
	}
	c.closeGaps(eligible)
}

func (c *cycle) groupSites(eligible []*candidate) []*site {
	var sites []*site
	index := map[string]*site{}
	for _, at := range eligible {
		name, price := siteOf(c.sites.GroupBy, at.member), HourlyPrice(at.profile, c.spec)
		s := index[name]
		if s == nil {
			s = &site{name: name, price: price, latency: at.latency()}
			index[name] = s
			sites = append(sites, s)
		}
		s.clusters = append(s.clusters, at)
		s.elastic = s.elastic || at.elastic()
		s.price, s.latency = min(s.price, price), min(s.latency, at.latency())
		s.capacity += at.capacity()
	}
	slices.SortFunc(sites, func(a, b *site) int { return strings.Compare(a.name, b.name) })
	return sites
}

// compareSites orders sites by the profile's preference. Equal sites share a step.
func (c *cycle) compareSites(a, b *site) int {
	if c.sites.Burst != nil && a.elastic != b.elastic {
		if a.elastic {
			return 1
		}
		return -1
	}
	if c.sites.Order != cellplanev1alpha1.SitesCheapestThatFits {
		return 0
	}
	fits := func(s *site) int {
		if s.capacity >= int64(c.spec.Replicas) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(fits(a), fits(b)), cmp.Compare(a.price, b.price), cmp.Compare(a.latency, b.latency))
}

// closeGaps numbers the steps consecutively from zero.
func (c *cycle) closeGaps(eligible []*candidate) {
	var steps []int
	for _, at := range eligible {
		steps = append(steps, at.step)
	}
	slices.Sort(steps)
	steps = slices.Compact(steps)
	for _, at := range eligible {
		at.step, _ = slices.BinarySearch(steps, at.step)
	}
}

// keepReserve lowers the free capacity of a cluster by the reserved share. Growth is not counted: growing does not
// use existing capacity. A cluster of a drained site has no free capacity.
func (c *cycle) keepReserve(at *candidate) {
	if c.draining(at) {
		at.available, at.growth = 0, 0
		return
	}
	if c.sites.ReservePercent == 0 {
		return
	}
	wanted := newNeed(c.spec, c.isSet)
	whole := at.member.resources.whole(&wanted)
	reserve := (whole*int64(c.sites.ReservePercent) + 99) / 100
	at.available = max(0, at.available-at.growth-reserve) + at.growth
}

// whole returns how many replicas would fit into the empty cluster.
func (r *resources) whole(wanted *need) int64 {
	if wanted.pods == 0 {
		return 0
	}
	most := r.allPods / wanted.pods
	for _, request := range wanted.total {
		most = min(most, r.total[request.name]/request.value)
	}
	return most
}

// noteBurst notes which elastic sites take replicas that did not fit into earlier sites.
func (c *cycle) noteBurst(selected []*candidate) {
	if c.sites == nil || c.sites.Burst == nil {
		return
	}
	burst := map[string]int32{}
	var names []string
	for _, at := range selected {
		if at.elastic() && at.replicas > 0 {
			if burst[at.site] == 0 {
				names = append(names, at.site)
			}
			burst[at.site] += at.replicas
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c.note("%d replicas burst into the elastic site %q", burst[name], name)
	}
}

func (c *cycle) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}
