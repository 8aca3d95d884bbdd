package router

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// isHub reports whether a cell of the call is the hub.
func (c *call) isHub(cell slots.Index) bool { return c.view.Hub && cell == c.view.HubIndex() }

// places returns the cells that may have objects of the call's kind, and the hub if it may.
func (c *call) places() []slots.Index { return c.view.Places(c.placement) }

// width returns the number of fields in positions of the call's kind.
func (c *call) width() int { return c.view.Width(c.placement) }

// fit removes the hub from versions that a topology.Tracker has carried forward, if the call does not read it.
func (c *call) fit(versions []uint64) []uint64 { return versions[:min(len(versions), c.width())] }

// numbered returns the cell with a number, if it may have objects of the call's kind.
func (c *call) numbered(number uint16) (slots.Index, bool) {
	cell, found := c.view.Numbered(number)
	return cell, found && int(cell) < c.width()
}

// hides reports whether lists and watches of a kind that the hub has too leave out the object of a key. Namespaces of the control plane
// belong to the hub, and are shown only if they are named.
func (c *call) hides(key string) bool {
	return c.placement != placement.ByName && c.view.Hub && inControlPlane(key)
}

// bindsHubTemplate reports whether a name is that of a binding of a template that lives on the hub.
func (rt *Router) bindsHubTemplate(c *call, name string) bool {
	if c.placement != placement.ByTemplate || !c.view.Hub {
		return false
	}
	catalog := rt.Kinds.Catalog()
	return catalog != nil && catalog.TemplateOnHub(name)
}

// home returns where a new object of a name is created, unless a label tells more.
func (rt *Router) home(c *call, namespace, name string) slots.Index {
	if rt.bindsHubTemplate(c, name) {
		return c.view.HubIndex()
	}
	return c.view.Locate(rt.slotIn(c.placement, namespace, name, "")).New
}

// upstream returns the connection to a cell or the hub, for requests of users; nil if there is none.
func (rt *Router) upstream(c *call, cell slots.Index) *fleet.Upstream {
	if c.isHub(cell) {
		return rt.Hub
	}
	return c.view.Upstreams[cell]
}

// server is a connection to a control plane.
type server interface {
	http.RoundTripper
	Name() string
}

// HubAsGateway sends requests to the hub with the gateway's own identity.
type HubAsGateway struct {
	// Base is the address of the hub.
	Base *url.URL
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h *HubAsGateway) RoundTrip(r *http.Request) (*http.Response, error) {
	out := *r
	out.Header = r.Header.Clone()
	forward.StripIdentity(out.Header)
	out.URL = &url.URL{Scheme: h.Base.Scheme, Host: h.Base.Host, Path: strings.TrimSuffix(h.Base.Path, "/") + r.URL.Path, RawQuery: r.URL.RawQuery}
	return h.RoundTripper.RoundTrip(&out)
}

// Name returns the name of the hub in messages.
func (*HubAsGateway) Name() string { return "hub" }

// hubRefuses is the error for a request of the gateway itself that the hub does not allow.
func hubRefuses(status *metav1.Status) *apierrors.StatusError {
	return apierrors.NewInternalError(fmt.Errorf("the identity of --hub-kubeconfig lacks a right on the hub: %s", status.Message))
}
