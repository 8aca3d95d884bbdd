package userpolicies

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/cellplane/cellplane/internal/admission"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// DefaultWait is how long a write waits for the cells.
const DefaultWait = 10 * time.Second

// Handler checks and completes writes of policies, webhooks and parameters. It passes everything else on.
type Handler struct {
	Next http.Handler
	// View returns the cells, nil while they are not known.
	View func() *topology.View
	// Wait is how long a write waits for the cells; 0 means DefaultWait.
	Wait time.Duration
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if ok && writesParameter(info) {
		h.serveParameter(w, r, info)
		return
	}
	if !ok || info.APIGroup != userpolicy.Group || info.Subresource != "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	kind, ok := userpolicy.Of(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	if !ok {
		h.Next.ServeHTTP(w, r)
		return
	}
	var err error
	switch info.Verb {
	case "create", "update":
		err = h.prepare(r, info, kind)
	case "patch":
		if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == string(types.ApplyPatchType) {
			err = h.prepare(r, info, kind)
		} else {
			err = h.rehearse(r, info, kind)
		}
	case "delete":
		err = refuse(info, kind.Check(info.Name, nil))
	case "deletecollection":
		spareOwn(r)
		h.Next.ServeHTTP(w, r)
		return
	default:
		h.Next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	h.serveAndAwait(w, r, func(answer []byte) (awaited, bool) {
		probe := func(on target) *probe { return probeFor(kind, on) }
		return written(info, awaited{kind: kind.Kind, resource: kind.Resource, probe: probe}, answer)
	})
}

// serveAndAwait serves a write, and answers when all cells enforce it.
func (h *Handler) serveAndAwait(w http.ResponseWriter, r *http.Request, written func(answer []byte) (awaited, bool)) {
	r.Header.Del("Accept-Encoding") // the answer is read
	answer := inner.Do(h.Next, r)
	if answer.Err() == nil && r.URL.Query().Get("dryRun") == "" {
		if want, ok := written(answer.Body()); ok {
			h.await(r, want)
		}
	}
	answer.CopyTo(w)
}

// refuse turns the result of a check into an answer.
func refuse(info *request.RequestInfo, problem error) error {
	if problem == nil {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, problem)
}

// prepare checks the object in the body of a request, and limits it to the requests of users.
func (h *Handler) prepare(r *http.Request, info *request.RequestInfo, kind userpolicy.Kind) error {
	content, err := forward.ReadBody(r)
	if err != nil {
		return err
	}
	applied := info.Verb == "patch"
	object, err := decode(r.Header.Get("Content-Type"), content)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := refuse(info, check(kind, nameOf(info, object), object)); err != nil {
		return err
	}
	if !kind.Limit(object) {
		return nil
	}
	if content, err = encode(object); err != nil {
		return apierrors.NewInternalError(err)
	}
	if !applied {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Del("Content-Length")
	forward.SetBody(r, content)
	return nil
}

// check returns why an object cannot be enforced, or would have another effect than in one cluster.
func check(kind userpolicy.Kind, name string, object map[string]any) error {
	if err := kind.Check(name, object); err != nil {
		return err
	}
	return kind.CheckRights(object)
}

// nameOf returns the name of an object, or the beginning of a name that is generated.
func nameOf(info *request.RequestInfo, object map[string]any) string {
	if info.Name != "" {
		return info.Name
	}
	metadata, _ := object["metadata"].(map[string]any)
	if name, _ := metadata["name"].(string); name != "" {
		return name
	}
	prefix, _ := metadata["generateName"].(string)
	return prefix
}

// rehearse checks what a patch would make of the object. A change at the same time may pass the check; it is then corrected by the hub manager.
func (h *Handler) rehearse(r *http.Request, info *request.RequestInfo, kind userpolicy.Kind) error {
	if err := refuse(info, kind.Check(info.Name, nil)); err != nil {
		return err
	}
	if _, err := forward.ReadBody(r); err != nil {
		return err
	}
	rehearsal := r.Clone(r.Context())
	query := rehearsal.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	rehearsal.URL.RawQuery = query.Encode()
	rehearsal.Header.Set("Accept", "application/json")
	rehearsal.Header.Del("Accept-Encoding")
	answer := inner.Do(h.Next, rehearsal)
	if _, err := forward.ReadBody(r); err != nil { // to be read again
		return err
	}
	if err := answer.Err(); err != nil {
		return err
	}
	object, err := decode("application/json", answer.Body())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if err := refuse(info, check(kind, info.Name, object)); err != nil {
		return err
	}
	if !kind.Limited(object) {
		return refuse(info, fmt.Errorf("the patch removes the match condition %s, which keeps the control plane from being blocked; leave it, or send the whole object", userpolicy.ConditionName))
	}
	return nil
}

// spareOwn keeps the hub's own policies out of the deletion of a collection.
func spareOwn(r *http.Request) {
	query := r.URL.Query()
	selector := "!" + admission.PartLabel
	if given := query.Get("labelSelector"); given != "" {
		selector = given + "," + selector
	}
	query.Set("labelSelector", selector)
	r.URL.RawQuery = query.Encode()
}

// await waits until all cells enforce what was written, and warns of those that do not.
func (h *Handler) await(r *http.Request, want awaited) {
	view := h.View()
	if view == nil {
		return
	}
	wait := h.Wait
	if wait == 0 {
		wait = DefaultWait
	}
	late := awaitAll(r.Context(), cells(view, func() int64 { return h.View().Epoch() }), want, wait)
	if len(late) == 0 {
		return
	}
	warning.AddWarning(r.Context(), "", fmt.Sprintf("%s %s is stored and not in force yet in %s: it will be when they can be reached",
		want.kind, want.name, strings.Join(late, ", ")))
}
