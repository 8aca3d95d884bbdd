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

// decisionAnnotation says in the audit record what became of a change.
const decisionAnnotation = "cellplane.io/admission"

// breakGlassVerb is the verb on protectionpolicies.cellplane.io that lets a user override a policy.
const breakGlassVerb = "break-glass"

// Objects reads what is behind the gateway, as the gateway.
type Objects interface {
	// Get reads the JSON of the object that a request is about, without its subresource.
	Get(ctx context.Context, info *request.RequestInfo) ([]byte, error)
	// Find returns the JSON of the objects of a resource that selectors pick, at most limit of each control plane; 0 means all.
	Find(ctx context.Context, resource kinds.Resource, namespace string, query url.Values, limit int) ([][]byte, error)
	// Resource returns the resource of a request.
	Resource(ctx context.Context, gvr schema.GroupVersionResource) (kinds.Resource, bool)
	// Namespaced yields every namespaced resource that can be listed and deleted, each in one version.
	Namespaced() []kinds.Resource
}

// Guard is the filter before the router.
type Guard struct {
	// Next is the router.
	Next http.Handler
	// Policies are what it protects by.
	Policies *Policies
	// Objects is how it looks at what it protects.
	Objects Objects
	// Authorizer says who may break the glass.
	Authorizer authorizer.Authorizer
	// Records remembers how replicas went down.
	Records Records
}

// ServeHTTP refuses a request or passes it on.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || !changes(info) {
		g.Next.ServeHTTP(w, r)
		return
	}
	if !guarded(info) {
		note(r.Context(), allowed)
		g.Next.ServeHTTP(w, r)
		return
	}
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

// allowed is the decision about what nobody objects to.
const allowed = "allowed"

// note says in the audit record what became of a change, unless more than that it is allowed has been said already.
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

// judgements is how often an object is judged again that has changed between the judgement and the change.
const judgements = 8

// guard judges a request and passes it on, on the condition that its object is still the one that was judged. The error can be written
// as it is; with one, nothing has been answered.
func (g *Guard) guard(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if !g.Policies.Known() {
		return apierrors.NewServiceUnavailable("the gateway does not know the protection policies yet; try again in a moment")
	}
	if info.Verb == "deletecollection" {
		return g.deleteCollection(w, r, info)
	}
	if info.Verb != "delete" && !g.anyScaleDown() {
		g.Next.ServeHTTP(w, r)
		return nil
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	c := &change{Request: r, info: info, body: body}
	for attempt := 1; ; attempt++ {
		judged, err := g.judge(c)
		if err != nil {
			return err
		}
		if !c.pinned {
			g.Next.ServeHTTP(w, c.send())
			return nil
		}
		answer := &conflictWriter{w: w, header: http.Header{}}
		g.Next.ServeHTTP(answer, c.send())
		if !answer.conflict || attempt == judgements || !g.changedSince(r.Context(), info, judged) {
			answer.release()
			return nil
		}
	}
}

// judge judges a change and pins it to the version of the object that was judged, which it returns: nil if there is nothing to protect.
func (g *Guard) judge(c *change) (*object, error) {
	if c.info.Verb == "delete" {
		judged, err := g.guardDelete(c.Request, c.info)
		if err != nil {
			return nil, err
		}
		return judged, c.pin(judged)
	}
	return g.guardScale(c)
}

// changedSince reports whether an object is not the one that was judged.
func (g *Guard) changedSince(ctx context.Context, info *request.RequestInfo, judged *object) bool {
	data, err := g.Objects.Get(ctx, info)
	if err != nil {
		return false
	}
	now, err := decode(data)
	return err == nil && (now.Metadata.UID != judged.Metadata.UID || now.Metadata.ResourceVersion != judged.Metadata.ResourceVersion)
}

// guarded reports whether a request can delete something or scale it down.
func guarded(info *request.RequestInfo) bool {
	switch info.Verb {
	case "delete", "deletecollection":
		return info.Subresource == ""
	case "update", "patch":
		return info.Subresource == "" || info.Subresource == "scale"
	default:
		return false
	}
}

// objection is what a policy has against a request.
type objection struct {
	policy *policy
	reason string
}

// decide lets a request pass that nobody objects to, or whose user may break the glass. The error can be written as it is.
func (g *Guard) decide(r *http.Request, info *request.RequestInfo, what string, glass string, objections []objection) error {
	for _, o := range objections {
		switch {
		case o.policy.warn:
			warning.AddWarning(r.Context(), "", fmt.Sprintf("ProtectionPolicy %q objects: %s", o.policy.name, o.reason))
			note(r.Context(), fmt.Sprintf("allowed: policy %s only warns", o.policy.name))
		case glass != "" && g.mayBreakGlass(r.Context(), o.policy.name):
			warning.AddWarning(r.Context(), "", fmt.Sprintf("the glass of ProtectionPolicy %q is broken: %s", o.policy.name, glass))
			note(r.Context(), fmt.Sprintf("allowed: the glass of policy %s is broken: %s", o.policy.name, glass))
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

// targetOf describes an object to policies.
func (g *Guard) targetOf(kind schema.GroupKind, o *object) target {
	t := target{GroupKind: kind, namespace: o.Metadata.Namespace, labels: o.Metadata.Labels}
	if kind.Group == "" && kind.Kind == "Namespace" {
		t.namespaceLabels = o.Metadata.Labels
		return t
	}
	t.namespaceLabels = g.Policies.namespaceLabels(o.Metadata.Namespace)
	t.unknownNamespace = g.Policies.namespacesUnknown()
	return t
}
