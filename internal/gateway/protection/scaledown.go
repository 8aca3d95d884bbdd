package protection

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// guardReplicas checks the replicas that a change removes from an object that policies protect from being scaled down.
func (g *Guard) guardReplicas(c *change, before, after *object, policies []*policy) error {
	r, info := c.Request, c.info
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
	drop := Drop{Time: time.Now(), From: *before.Spec.Replicas, To: after.replicas()}
	if drop.size() <= 0 {
		return nil
	}
	objections, err := g.scaleDownObjections(c, subject, drop, policies)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("going from %d to %d replicas", drop.From, drop.To)
	if err := g.decide(r, info, what, before.glass(), objections); err != nil {
		return err
	}
	if !windowed || c.notes(drop) {
		return nil
	}
	// The drop is recorded before it happens. If the change then fails, the record is too strict, never too lax.
	if err := g.Records.Add(r.Context(), info, subject, drop, longest(policies)); err != nil {
		return err
	}
	c.noted = &drop
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

// scaleDownObjections returns the objections of policies to a drop.
func (g *Guard) scaleDownObjections(c *change, subject Subject, drop Drop, policies []*policy) (objections []objection, err error) {
	var history []Drop
	if longest(policies) > 0 {
		if history, err = g.Records.List(c.Context(), c.info, subject); err != nil {
			return nil, err
		}
		history = c.withoutNoted(history)
	}
	for _, p := range policies {
		if limit := p.scaleDown.MaxDecrease; limit != nil {
			if allowed := portion(*limit, drop.From); drop.size() > allowed {
				objections = append(objections, objection{p, fmt.Sprintf("one request may remove at most %s, that is %d of %d replicas, and this one removes %d", limit, allowed, drop.From, drop.size())})
			}
		}
		if w := p.scaleDown.Window; w != nil {
			since := drop.Time.Add(-time.Duration(w.Seconds) * time.Second)
			taken, most := sum(history, since, drop)
			if allowed := portion(w.MaxDecrease, most); taken > allowed {
				objections = append(objections, objection{p, fmt.Sprintf("within %d seconds at most %s may be removed, that is %d of %d replicas, and with this request it would be %d", w.Seconds, w.MaxDecrease.String(), allowed, most, taken)})
			}
		}
	}
	return objections, nil
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
