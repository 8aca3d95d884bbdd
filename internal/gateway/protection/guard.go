package protection

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// decisionAnnotation is the audit annotation with the decision about a change.
const decisionAnnotation = "cellplane.io/admission"

// breakGlassVerb is the verb on protectionpolicies.cellplane.io that lets a user override a policy.
const breakGlassVerb = "break-glass"

// Objects reads objects of hub and cells with the identity of the gateway.
type Objects interface {
	// Get reads the JSON of the object of a request, without its subresource.
	Get(ctx context.Context, info *request.RequestInfo) ([]byte, error)
	// Find returns the JSON of the objects of a resource that selectors match, at most limit per control plane; 0 means all.
	Find(ctx context.Context, resource kinds.Resource, namespace string, query url.Values, limit int) ([][]byte, error)
	// Resource returns the resource of a request.
	Resource(ctx context.Context, gvr schema.GroupVersionResource) (kinds.Resource, bool)
	// Namespaced returns every namespaced resource that can be listed and deleted, each in one version.
	Namespaced(ctx context.Context) ([]kinds.Resource, error)
	// Replicas returns where the objects of a resource have their replicas.
	Replicas(ctx context.Context, gvr schema.GroupVersionResource) (Replicas, error)
}

// Guard is the filter in front of the router.
type Guard struct {
	// Next is the router.
	Next http.Handler
	// Policies are the protection policies.
	Policies *Policies
	// Objects reads the objects to protect.
	Objects Objects
	// Authorizer decides who may override a policy.
	Authorizer authorizer.Authorizer
	// Records stores decreases of replicas.
	Records Records
}

// ServeHTTP refuses or forwards a request.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || !changes(info) {
		g.Next.ServeHTTP(w, r)
		return
	}
	if !guarded(info) {
		if !evicts(info) {
			note(r.Context(), allowed)
		}
		g.Next.ServeHTTP(w, r)
		return
	}
	g.serve(w, r, info)
}

// Templates returns a handler for what concerns templates only, and not objects of members. It comes after the handler that serves those. It
// checks evictions, which are deletions, and refuses changes of templates that have changed since no policy was concerned by them, or did not exist
// when they were checked. The rest is left to next.
func (g *Guard) Templates(next http.Handler) http.Handler {
	behind := *g
	behind.Next = next
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, found := request.RequestInfoFrom(r.Context())
		pin, pinned := templatePin(r)
		switch {
		case !found || !info.IsResourceRequest:
			next.ServeHTTP(w, r)
		case evicts(info):
			behind.serve(w, r, info)
		case pinned:
			behind.serveTemplate(w, r, info, pin)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// serve checks a request, and refuses or forwards it.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	err := g.guard(w, r, info)
	switch {
	case err == nil:
		note(r.Context(), allowed)
		return
	case apierrors.IsForbidden(err):
		note(r.Context(), "denied: "+err.Error())
	}
	forward.WriteError(w, r, err)
}

// allowed is the decision if no policy objects.
const allowed = "allowed"

// note writes the decision to the audit record, unless it has one.
func note(ctx context.Context, decision string) {
	record := audit.AuditContextFrom(ctx)
	if !record.Enabled() {
		return
	}
	if _, noted := record.GetEventAnnotation(decisionAnnotation); !noted {
		audit.AddAuditAnnotation(ctx, decisionAnnotation, decision)
	}
}

// changes reports whether a request changes anything.
func changes(info *request.RequestInfo) bool {
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// maxAttempts bounds how often a change is checked if its object changes between the check and the write.
const maxAttempts = 8

// guard checks a request and forwards it on the condition that its object has not changed since. If it returns an error, which can be
// sent to a client, it has not answered.
func (g *Guard) guard(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if !g.Policies.Known() {
		return apierrors.NewServiceUnavailable("the gateway has not loaded the protection policies yet; try again in a moment")
	}
	if info.Verb == "deletecollection" {
		return g.deleteCollection(w, r, info)
	}
	if (info.Verb == "update" || info.Verb == "patch" || binds(info)) && !g.checksUpdates(info) {
		g.Next.ServeHTTP(w, r)
		return nil
	}
	body, err := forward.ReadBody(r)
	if err != nil {
		return err
	}
	c := &change{Request: r, info: info, body: body}
	for attempt := 1; ; attempt++ {
		checked, err := g.check(c)
		if err != nil {
			return err
		}
		if !c.pinned && c.template == nil {
			g.Next.ServeHTTP(w, c.send())
			return nil
		}
		answer := &conflictWriter{w: w, header: http.Header{}}
		g.Next.ServeHTTP(answer, c.send())
		if !answer.conflict || attempt == maxAttempts || !g.changedSince(r.Context(), info, checked) {
			answer.release()
			return nil
		}
	}
}

// check checks a change, pins it to what was checked, and returns that object; nil if there is nothing to protect.
func (g *Guard) check(c *change) (*object, error) {
	switch {
	case c.info.Verb == "delete" || evicts(c.info):
		checked, err := g.guardDelete(c.Request, c.info)
		if err != nil {
			return nil, err
		}
		return checked, g.pinRehearsed(c, c.info, checked)
	case binds(c.info):
		return g.guardBinding(c)
	case finalizes(c.info):
		if err := g.guardFinalize(c); err != nil {
			return nil, err
		}
	}
	return g.guardUpdate(c) // finalizing a namespace can also change its labels
}

// changedSince reports whether an object has changed since it was checked, or since there was none.
func (g *Guard) changedSince(ctx context.Context, info *request.RequestInfo, checked *object) bool {
	now, err := g.read(ctx, info)
	return err == nil && now != nil && (checked == nil || !now.is(checked))
}

// read returns the object of a request, without its subresource; nil if there is none.
func (g *Guard) read(ctx context.Context, info *request.RequestInfo) (*object, error) {
	data, err := g.Objects.Get(ctx, info)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decode(data)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return o, nil
}

// guarded reports whether a request is checked before it is served. Any subresource may change the labels of an object, or even its
// replicas. What is sent to a proxy is for somebody else.
func guarded(info *request.RequestInfo) bool {
	switch info.Verb {
	case "delete", "deletecollection":
		return info.Subresource == ""
	case "update", "patch":
		return info.Subresource != "proxy"
	default:
		return binds(info)
	}
}

// evicts reports whether a request is an eviction, which deletes a pod.
func evicts(info *request.RequestInfo) bool {
	return info.Verb == "create" && info.APIGroup == "" && info.Resource == "pods" && info.Subresource == "eviction"
}

// finalizes reports whether a request can remove a namespace before its contents.
func finalizes(info *request.RequestInfo) bool {
	return info.APIGroup == "" && info.Resource == "namespaces" && info.Subresource == "finalize"
}

// objection is the reason why a policy refuses a request.
type objection struct {
	policy *policy
	reason string
}

// decide returns an error, which can be sent to a client, unless there are no objections or the user may override them.
func (g *Guard) decide(r *http.Request, info *request.RequestInfo, what string, glass string, objections []objection) error {
	for _, o := range objections {
		switch {
		case o.policy.warn:
			warning.AddWarning(r.Context(), "", fmt.Sprintf("ProtectionPolicy %q objects: %s", o.policy.name, o.reason))
			note(r.Context(), fmt.Sprintf("allowed: policy %s only warns", o.policy.name))
		case glass != "" && g.mayBreakGlass(r.Context(), o.policy.name):
			warning.AddWarning(r.Context(), "", fmt.Sprintf("ProtectionPolicy %q is overridden by break-glass: %s", o.policy.name, glass))
			note(r.Context(), fmt.Sprintf("allowed: policy %s is overridden by break-glass: %s", o.policy.name, glass))
		default:
			return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, fmt.Errorf(
				"%s is refused by ProtectionPolicy %q: %s; to override it, put the annotation %s with a reason on the object, as a user with the right to %s on that policy",
				what, o.policy.name, o.reason, names.BreakGlassAnnotation, breakGlassVerb))
		}
	}
	return nil
}

func (g *Guard) mayBreakGlass(ctx context.Context, policy string) bool {
	caller, found := request.UserFrom(ctx)
	if !found {
		return false
	}
	decision, _, err := g.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: breakGlassVerb, APIGroup: cellplanev1alpha1.GroupName, APIVersion: cellplanev1alpha1.GroupVersion.Version,
		Resource: "protectionpolicies", Name: policy, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// targetOf returns what policies match of an object.
func (g *Guard) targetOf(kind schema.GroupKind, o *object) target {
	t := target{GroupKind: kind, namespace: o.Metadata.Namespace, name: o.Metadata.Name, labels: o.Metadata.Labels}
	if kind.Group == "" && kind.Kind == "Namespace" {
		t.namespaceLabels = o.Metadata.Labels
		return t
	}
	t.namespaceLabels = g.Policies.namespaceLabels(o.Metadata.Namespace)
	t.unknownNamespace = g.Policies.namespacesUnknown()
	return t
}
