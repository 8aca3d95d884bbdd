package protection

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// guardReplicas checks the replicas that a change removes from an object that policies protect from being scaled down.
func (g *Guard) guardReplicas(c *change, before, after *object, concerned concerned) error {
	r, info, policies := c.Request, c.info, concerned.scaling
	if len(policies) == 0 {
		return nil
	}
	subject := subjectOf(before)
	windowed := longest(policies) > 0 && !isDryRun(r)
	if windowed && info.Subresource != "scale" && subjectOf(after) != subject {
		// Only the annotation tells that there may be a record elsewhere.
		if err := g.Records.Collect(r.Context(), info, subject); err != nil {
			return err
		}
	}
	left, err := concerned.replicas.changed(info, before, after)
	if err != nil {
		return err
	}
	drops := concerned.counts.drops(left)
	if len(drops) == 0 {
		return nil
	}
	largest := slices.MaxFunc(drops, func(a, b Drop) int { return cmp.Compare(a.size(), b.size()) })
	largest.Time = time.Now()
	objections, err := g.scaleDownObjections(c, subject, largest.Time, drops, policies)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("going from %d to %d replicas", largest.From, largest.To)
	if err := g.decide(r, info, what, before.glass(), objections); err != nil {
		return err
	}
	if !windowed || c.notes(largest) {
		return nil
	}
	// The drop is recorded before it happens. If the change then fails, the record is too strict, never too lax.
	if err := g.Records.Add(r.Context(), info, subject, largest, longest(policies)); err != nil {
		return err
	}
	c.noted = &largest
	return nil
}

func isDryRun(r *http.Request) bool { return r.URL.Query().Get("dryRun") != "" }

func (g *Guard) scaleDownPolicies(t target) []*policy {
	var concerned []*policy
	policies := g.Policies.all()
	for i := range policies {
		if p := &policies[i]; p.scaleDown != nil && p.picks(t) {
			concerned = append(concerned, p)
		}
	}
	return concerned
}

// longest returns the longest window of policies.
func longest(policies []*policy) time.Duration {
	var window time.Duration
	for _, p := range policies {
		if w := p.scaleDown.Window; w != nil {
			window = max(window, time.Duration(w.Seconds)*time.Second)
		}
	}
	return window
}

// scaleDownObjections returns the objections of policies to drops of one change.
func (g *Guard) scaleDownObjections(c *change, subject Subject, now time.Time, drops []Drop, policies []*policy) (objections []objection, err error) {
	var history []Drop
	if longest(policies) > 0 {
		if history, err = g.Records.List(c.Context(), c.info, subject); err != nil {
			return nil, err
		}
		history = c.withoutNoted(history)
	}
	for _, p := range policies {
		for _, drop := range drops {
			objections = append(objections, p.objectsToDrop(history, now, drop)...)
		}
	}
	return objections, nil
}

// objectsToDrop returns the objections to a drop after those of a history.
func (p *policy) objectsToDrop(history []Drop, now time.Time, drop Drop) (objections []objection) {
	if limit := p.scaleDown.MaxDecrease; limit != nil {
		if allowed := portion(*limit, drop.From); drop.size() > allowed {
			objections = append(objections, objection{p, fmt.Sprintf("one request may remove at most %s, that is %d of %d replicas, and this one removes %d", limit, allowed, drop.From, drop.size())})
		}
	}
	if w := p.scaleDown.Window; w != nil {
		since := now.Add(-time.Duration(w.Seconds) * time.Second)
		taken, most := sum(history, since, drop)
		if allowed := portion(w.MaxDecrease, most); taken > allowed {
			objections = append(objections, objection{p, fmt.Sprintf("within %d seconds at most %s may be removed, that is %d of %d replicas, and with this request it would be %d", w.Seconds, w.MaxDecrease.String(), allowed, most, taken)})
		}
	}
	return objections
}

// sum returns the replicas removed since a time, including the next drop, and the highest number of replicas in that time.
func sum(history []Drop, since time.Time, next Drop) (taken, most int64) {
	taken, most = next.size(), next.From
	for _, d := range history {
		if d.Time.Before(since) {
			continue
		}
		taken += d.size()
		most = max(most, d.From)
	}
	return taken, most
}

// portion returns the limit as a number of replicas; a percentage is rounded down.
func portion(limit intstr.IntOrString, whole int64) int64 {
	if limit.Type == intstr.Int {
		return int64(limit.IntVal)
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&limit, int(whole), false)
	if err != nil {
		return 0
	}
	return int64(percent)
}
