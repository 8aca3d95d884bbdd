package router

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/cellplane/cellplane/internal/gateway/writerlease"
	"github.com/cellplane/cellplane/internal/slots"
)

// Lease is the writer lease of the gateway: the right to write to cells by a topology.
type Lease interface {
	// Held reports whether the gateway holds the lease at the epoch of a topology.
	Held(topology *slots.Map) bool
	// Await waits for that. It fails with writerlease.ErrOutdated or writerlease.ErrUnconfirmed.
	Await(ctx context.Context, topology *slots.Map) error
}

// errNoLease answers a write that was not sent. Clients may repeat it.
var errNoLease = func() error {
	status := apierrors.NewServiceUnavailable("this gateway is cut off from most cells and must not write; try again, or use another gateway")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}()

// errLeaseLost answers a write that was sent. It has no Retry-After, which would make clients repeat it.
var errLeaseLost = func() error {
	status := apierrors.NewTimeoutError("this gateway was cut off from most cells while it wrote; it is not known whether the change will last", 0)
	status.ErrStatus.Details = nil
	return status
}()

// staleWarning is the warning of reads without the lease, and of refused writes.
const staleWarning = "this gateway is cut off from most cells; what it shows may be outdated"

// topologyOf returns the topology of an epoch that a view routes writes by.
func (c *call) topologyOf(epoch int64) *slots.Map {
	if next := c.view.Next; next != nil && next.Epoch() == epoch {
		return next
	}
	return c.view.Map
}

// mayWrite waits until a write by an epoch may be sent. It reports whether a later topology is known to be in force. The error can be
// written as it is.
func (rt *Router) mayWrite(r *http.Request, c *call, epoch int64) (outdated bool, err error) {
	if surelyDry(r, c) {
		return false, nil
	}
	return rt.awaitLease(r.Context(), c, epoch)
}

func (rt *Router) awaitLease(ctx context.Context, c *call, epoch int64) (outdated bool, err error) {
	if rt.Lease == nil {
		return false, nil
	}
	switch err := rt.Lease.Await(ctx, c.topologyOf(epoch)); {
	case err == nil:
		return false, nil
	case errors.Is(err, writerlease.ErrOutdated):
		return true, nil
	default:
		leaseRefusals.WithLabelValues("before").Inc()
		return false, errNoLease
	}
}

// mayAcknowledge waits until the success of a write that was sent by a topology may be answered; nil stands for a write to the hub. The
// error can be written as it is.
func (rt *Router) mayAcknowledge(r *http.Request, c *call, sent *slots.Map, response *http.Response) error {
	if rt.Lease == nil || sent == nil || surelyDry(r, c) || response.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if err := rt.Lease.Await(r.Context(), sent); err != nil {
		leaseRefusals.WithLabelValues("after").Inc()
		return errLeaseLost
	}
	return nil
}

// surelyDry reports whether a request surely changes nothing. Deletions and subresources may have options in their body that override the
// query, so they do not count.
func surelyDry(r *http.Request, c *call) bool {
	if c.Verb == "delete" || c.Subresource != "" || !strings.Contains(r.URL.RawQuery, "dryRun") {
		return false
	}
	return slices.Equal(r.URL.Query()["dryRun"], []string{metav1.DryRunAll})
}

// warnOfRefusal is warnWithoutLease for a write that a cell has refused, or only tried: like a read, the answer tells what the cell has. Successes
// need the lease, and errors of the gateway tell nothing about objects.
func (rt *Router) warnOfRefusal(w http.ResponseWriter, r *http.Request, c *call, response *http.Response, err error) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
	case err != nil, response.StatusCode >= http.StatusInternalServerError, c.isHub(c.wrote):
		return
	case response.StatusCode < http.StatusMultipleChoices && !surelyDry(r, c):
		return
	}
	rt.warnWithoutLease(w, c)
}

// warnWithoutLease adds a warning to the answer to a read if the gateway does not hold the lease. It is called when the cells have answered: what
// they say is current if the lease is held after that.
func (rt *Router) warnWithoutLease(w http.ResponseWriter, c *call) {
	if rt.Lease == nil || rt.Lease.Held(c.topologyOf(c.view.Latest())) {
		return
	}
	if header, err := utilnet.NewWarningHeader(299, "-", staleWarning); err == nil {
		w.Header().Add("Warning", header)
	}
}
