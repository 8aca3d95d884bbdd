package quotas

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/keylock"
)

// attempts is how often a quota is charged again after somebody else has changed it.
const attempts = 20

// Handler charges the quotas of a namespace before it passes on a creation, or a change of an object that uses more.
type Handler struct {
	Next http.Handler
	// Quotas are those that are known, and Hub those in force.
	Quotas corelisters.ResourceQuotaLister
	Hub    coreclient.ResourceQuotasGetter

	// locks serialise the charges of a namespace in this gateway, which would conflict.
	locks keylock.Locks[string]
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.Namespace == "" || info.Subresource != "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	if err := h.admit(r, info); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	if info.Resource == "resourcequotas" && info.APIGroup == "" && (info.Verb == "create" || info.Verb == "update") {
		warnOfUncounted(r)
	}
	h.Next.ServeHTTP(w, r)
}

// admit charges the quotas of a request that creates an object, or has one use more.
func (h *Handler) admit(r *http.Request, info *request.RequestInfo) error {
	if info.Verb != "create" && info.Verb != "update" && info.Verb != "patch" {
		return nil
	}
	of := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	all, err := h.Quotas.ResourceQuotas(info.Namespace).List(labels.Everything())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	counted := mayCreate(r, info) && limitedBy(all, anyOf(namesOf(of)...))
	by, measured := measures[of]
	measured = measured && limitedBy(all, by.limits)
	if !counted && !measured || isComponent(r.Context()) {
		return nil
	}
	requested := usage{}
	if counted {
		creates, err := h.creates(r, info)
		if err != nil {
			return err
		}
		if creates {
			requested = one(of)
		}
	}
	if measured {
		if err := h.measure(r, info, by, requested); err != nil {
			return err
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return h.charge(r.Context(), info, of, requested, r.URL.Query().Get("dryRun") != "")
}

func limitedBy(quotas []*corev1.ResourceQuota, some func(corev1.ResourceName) bool) bool {
	return slices.ContainsFunc(quotas, func(quota *corev1.ResourceQuota) bool { return limits(quota, some) })
}

// measure adds what an object uses more after a request. A dry run shows what the request makes of it.
func (h *Handler) measure(r *http.Request, info *request.RequestInfo, by measure, requested usage) error {
	content, err := forward.ReadBody(r)
	if err != nil {
		return err
	}
	dryRun := r.Clone(r.Context())
	query := dryRun.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	dryRun.URL.RawQuery = query.Encode()
	dryRun.Header.Set("Accept", "application/json")
	dryRun.Header.Del("Accept-Encoding")
	forward.SetBody(dryRun, content)
	after, err := by.in(inner.Do(h.Next, dryRun))
	if err != nil {
		return err
	}
	var before usage
	if info.Verb != "create" {
		before, err = by.in(h.read(r, "application/json"))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	requested.grown(after, before)
	return nil
}

// mayCreate reports whether a request may create an object. A PUT and a server-side apply may.
func mayCreate(r *http.Request, info *request.RequestInfo) bool {
	switch info.Verb {
	case "create", "update":
		return true
	case "patch":
		media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		return media == string(types.ApplyPatchType)
	default:
		return false
	}
}

func isComponent(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && names.IsComponent(u.GetName())
}

// creates reports whether a request that may create its object does so. If that cannot be known, the request must not pass uncharged.
func (h *Handler) creates(r *http.Request, info *request.RequestInfo) (bool, error) {
	if info.Verb == "create" {
		return true, nil
	}
	answer := h.read(r, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	defer answer.Release()
	err := answer.Err()
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// read reads the object of a request.
func (h *Handler) read(r *http.Request, accept string) *inner.Answer {
	ctx := r.Context()
	if info, ok := request.RequestInfoFrom(ctx); ok {
		get := *info
		get.Verb = "get"
		ctx = request.WithRequestInfo(ctx, &get)
	}
	read := r.Clone(ctx)
	read.Method, read.Body, read.ContentLength = http.MethodGet, nil, 0
	read.URL.RawQuery = ""
	read.Header = http.Header{"Accept": {accept}}
	return inner.Do(h.Next, read)
}

// charge adds what is requested to all quotas that limit it. It charges none if one of them is used up, unless that happens at the same moment: the
// controller then corrects the others.
func (h *Handler) charge(ctx context.Context, info *request.RequestInfo, of schema.GroupResource, requested usage, dryRun bool) error {
	defer h.locks.Lock(info.Namespace)()
	client := h.Hub.ResourceQuotas(info.Namespace)
	var last error
	stored := map[types.UID]bool{}
	for range attempts {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return unavailable(err)
		}
		var charged []*corev1.ResourceQuota
		for i := range list.Items {
			if stored[list.Items[i].UID] {
				continue
			}
			next, problem := charge(&list.Items[i], requested)
			if problem != nil {
				return apierrors.NewForbidden(of, info.Name, problem)
			}
			if next != nil {
				charged = append(charged, next)
			}
		}
		if dryRun {
			return nil
		}
		if last = update(ctx, client, charged, stored); last == nil {
			return nil
		}
		if !apierrors.IsConflict(last) && !apierrors.IsNotFound(last) {
			return unavailable(last)
		}
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "", last)
}

// update stores the charged quotas, and notes those that it has stored.
func update(ctx context.Context, client coreclient.ResourceQuotaInterface, charged []*corev1.ResourceQuota, stored map[types.UID]bool) error {
	for _, quota := range charged {
		if _, err := client.UpdateStatus(ctx, quota, metav1.UpdateOptions{}); err != nil {
			return err
		}
		stored[quota.UID] = true
	}
	return nil
}

func unavailable(err error) error {
	return apierrors.NewServiceUnavailable("the namespace has a ResourceQuota, which cannot be charged: " + err.Error())
}

// warnOfUncounted warns of limits in a quota that nothing enforces.
func warnOfUncounted(r *http.Request) {
	content, err := forward.ReadBody(r)
	if err != nil {
		return // the next handler finds out
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return
	}
	if quota, ok := decoded.(*corev1.ResourceQuota); ok {
		if names := uncounted(quota); len(names) > 0 {
			warning.AddWarning(r.Context(), "", fmt.Sprintf("the federation does not enforce the limits of %s: it counts objects, node ports and load balancers of Services, and the storage of claims, without scopes; use a FederatedResourceQuota for what pods request", strings.Join(names, ", ")))
		}
	}
}
