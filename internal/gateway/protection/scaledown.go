package protection

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cellplane/cellplane/internal/gateway/inner"
)

// guardScale decides about a change of an object that policies protect from being scaled down, and returns that object.
func (g *Guard) guardScale(c *change) (*object, error) {
	r, info := c.Request, c.info
	c.unpin()
	kind, ok := g.kindOf(r.Context(), info)
	if !ok {
		return nil, nil
	}
	data, err := g.Objects.Get(r.Context(), info)
	if apierrors.IsNotFound(err) {
		return nil, nil // a patch may create it
	}
	if err != nil {
		return nil, err
	}
	before, err := decode(data)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if before.Spec.Replicas == nil {
		return nil, nil
	}
	concerned := g.scaleDownPolicies(g.targetOf(kind.GroupKind(), before))
	if len(concerned) == 0 {
		return nil, nil
	}
	// What is rehearsed is what will be sent.
	if err := c.pin(before); err != nil {
		return nil, err
	}
	after, err := g.dryRun(c)
	if err != nil {
		return nil, err
	}
	if after == nil || after.Spec.Replicas == nil || *after.Spec.Replicas >= *before.Spec.Replicas {
		return before, nil
	}
	drop := Drop{Time: time.Now(), From: *before.Spec.Replicas, To: *after.Spec.Replicas}
	objections, windowed, err := g.scaleDownObjections(c, before, drop, concerned)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("going from %d to %d replicas", drop.From, drop.To)
	if err := g.decide(r, info, what, before.glass(), objections); err != nil {
		return nil, err
	}
	if !windowed || isDryRun(r) || c.notes(drop) {
		return before, nil
	}
	// The drop is noted before it happens: what is then not done counts all the same, which errs on the safe side.
	if err := g.Records.Add(r.Context(), info, before.Metadata.UID, drop, longest(concerned)); err != nil {
		return nil, err
	}
	c.noted = &drop
	return before, nil
}

func isDryRun(r *http.Request) bool { return r.URL.Query().Get("dryRun") != "" }

func (g *Guard) anyScaleDown() bool {
	policies := g.Policies.all()
	for i := range policies {
		if policies[i].scaleDown != nil {
			return true
		}
	}
	return false
}

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

// scaleDownObjections returns what policies have against a drop, and whether one of them counts drops over time.
func (g *Guard) scaleDownObjections(c *change, before *object, drop Drop, policies []*policy) (objections []objection, windowed bool, err error) {
	var history []Drop
	if longest(policies) > 0 {
		windowed = true
		if history, err = g.Records.List(c.Context(), c.info, before.Metadata.UID); err != nil {
			return nil, true, err
		}
		history = c.withoutNoted(history)
	}
	for _, p := range policies {
		if limit := p.scaleDown.MaxDecrease; limit != nil {
			if allowed := portion(*limit, drop.From); drop.size() > allowed {
				objections = append(objections, objection{p, fmt.Sprintf("one request may take away %s, which is %d of %d replicas, and this one takes %d", limit, allowed, drop.From, drop.size())})
			}
		}
		if w := p.scaleDown.Window; w != nil {
			since := drop.Time.Add(-time.Duration(w.Seconds) * time.Second)
			taken, most := sum(history, since, drop)
			if allowed := portion(w.MaxDecrease, most); taken > allowed {
				objections = append(objections, objection{p, fmt.Sprintf("within %d seconds %s may be taken away, which is %d of %d replicas, and with this request it would be %d", w.Seconds, w.MaxDecrease.String(), allowed, most, taken)})
			}
		}
	}
	return objections, windowed, nil
}

// sum adds up what was taken away since a time, the drop to come included, and returns the most replicas there were.
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

// portion returns a number, or a percentage of a whole rounded down.
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

// dryRun finds out what a request would make of its object. It returns nil if the request is going to fail by itself.
func (g *Guard) dryRun(c *change) (*object, error) {
	rehearsal := c.send().Clone(c.Context())
	query := rehearsal.URL.Query()
	query.Set("dryRun", "All")
	rehearsal.URL.RawQuery = query.Encode()
	rehearsal.Header.Set("Accept", "application/json")
	rehearsal.Header.Del("Accept-Encoding")
	answer := inner.Ask(g.Next, rehearsal)
	switch code := answer.Code(); {
	case code == http.StatusOK || code == http.StatusCreated:
		o, err := decode(answer.Body())
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return o, nil
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return nil, apierrors.NewServiceUnavailable("the request could not be rehearsed, so that it is not known what it would do to protected replicas; try again")
	default:
		return nil, nil
	}
}
