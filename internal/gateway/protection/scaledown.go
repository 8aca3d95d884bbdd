package protection

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cellplane/cellplane/internal/gateway/inner"
)

// errModified is worded as API servers word it.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// guardScale checks a change of an object that policies protect from being scaled down, and returns that object.
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
	// The dry run uses the pinned request, which is the one that will be sent.
	if err := c.pin(before); err != nil {
		return nil, err
	}
	after, err := g.dryRun(c)
	if err != nil {
		return nil, err
	}
	if after == nil {
		return before, nil
	}
	// A change that names a version itself was rehearsed with that version, which need not be the one that was read.
	if !c.pinned && after.Metadata.ResourceVersion != before.Metadata.ResourceVersion {
		return nil, apierrors.NewConflict(groupResource(info), info.Name, errModified)
	}
	replicas := after.replicas(info.Subresource)
	if replicas == nil || *replicas >= *before.Spec.Replicas {
		return before, nil
	}
	drop := Drop{Time: time.Now(), From: *before.Spec.Replicas, To: *replicas}
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
	// The drop is recorded before it happens. If the change then fails, the record is too strict, never too lax.
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

// scaleDownObjections returns the objections of policies to a drop, and whether one of them has a window.
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
	return objections, windowed, nil
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

// dryRun returns the object as the request would change it. It returns nil if the request is pinned to a version that the object no
// longer has: then it will fail, or be checked again. A request that fails for any other reason is not forwarded, as only what has been
// checked may be. The error can be sent to a client.
func (g *Guard) dryRun(c *change) (*object, error) {
	dryRun := c.send().Clone(c.Context())
	query := dryRun.URL.Query()
	query.Set("dryRun", "All")
	dryRun.URL.RawQuery = query.Encode()
	dryRun.Header.Set("Accept", "application/json")
	dryRun.Header.Del("Accept-Encoding")
	answer := inner.Do(g.Next, dryRun)
	switch code := answer.Code(); {
	case code == http.StatusOK || code == http.StatusCreated:
		o, err := decode(answer.Body())
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return o, nil
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return nil, apierrors.NewServiceUnavailable("the dry run that checks protected replicas failed; try again")
	case c.pinned && (code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusNotFound):
		return nil, nil
	default:
		return nil, answer.Err()
	}
}
