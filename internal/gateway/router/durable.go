package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/warning"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fence"
	gatewaydurability "github.com/cellplane/cellplane/internal/gateway/durability"
	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

var errNotBackedUp = errors.New("objects of this kind are not backed up; remove the annotation")

// durably sends a write to a cell, and waits for the backup cell if the object or its namespace asks for that. The error can be written
// as it is.
func (rt *Router) durably(r *http.Request, c *call, request *routing.Request, name string, cell slots.Index, body []byte) (*http.Response, error) {
	if rt.Durability == nil || c.isHub(cell) {
		return rt.insist(r, c, cell, body)
	}
	d := durableWrite{rt: rt, r: r, c: c, cell: cell, slot: request.Slot}
	c.durable = isDryRun(r, c, body) // it stores nothing
	defer func() { c.durable = false }()
	if !c.durable && backedUp(c) {
		if err := d.lookAround(request.Blind, name); err != nil {
			return nil, err
		}
	}
	careful := !c.durable && !d.fenced()
	if careful {
		if err := d.lookInside(name, body); err != nil {
			return nil, err
		}
	}
	if d.mode == durability.Replicated {
		if err := d.prepare(); err != nil {
			return nil, err
		}
	}
	seen := d.lookMeanwhile(name)
	response, err := rt.insist(r, c, cell, body)
	if mode := seen(); err == nil && response.StatusCode < http.StatusMultipleChoices {
		d.mode = max(d.mode, mode)
	}
	if careful && err == nil && response.StatusCode < http.StatusMultipleChoices && d.mode != durability.Replicated {
		d.mode = max(d.mode, d.askedIn(response))
	}
	if err == nil && response.StatusCode == http.StatusForbidden && !c.durable {
		if asked := durabilityAsked(response); asked != durability.None {
			response.Body.Close()
			d.mode = max(d.mode, asked)
			if err := d.prepare(); err != nil {
				return nil, err
			}
			response, err = rt.insist(r, c, cell, body)
		}
	}
	if err != nil || d.mode == durability.None || response.StatusCode >= http.StatusMultipleChoices {
		return response, err
	}
	return d.finish(response)
}

// durableWrite is a write that may have to be durable.
type durableWrite struct {
	rt   *Router
	r    *http.Request
	c    *call
	cell slots.Index
	slot slots.Slot
	mode durability.Mode
	// byNamespace is set if the namespace asks for durability. Backups do not know that.
	byNamespace bool
	// unseen is set if neither the gateway nor the cell has seen what the object asks for, though it probably asks for nothing.
	unseen bool
	// degraded says why the write does not wait, though it should; nil if it does.
	degraded error
}

// backedUp reports whether the objects of a request are copied to backup cells. What is not need not wait for that, unless it has the
// annotation itself.
func backedUp(c *call) bool {
	return c.placement != placement.Anywhere && (c.APIGroup != "coordination.k8s.io" || c.Resource != "leases")
}

// isDryRun reports whether a request stores nothing. The options of a deletion are in its body, if it has one, and the query does not
// count then.
func isDryRun(r *http.Request, c *call, body []byte) bool {
	if c.Verb != "delete" {
		return surelyDry(r, c)
	}
	if len(body) == 0 {
		return isAll(r.URL.Query()["dryRun"])
	}
	options, err := objbytes.DeleteOptions(mediaTypeOf(r.Header), body)
	return err == nil && isAll(options.DryRun)
}

func isAll(values []string) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(value string) bool { return value != metav1.DryRunAll })
}

// lookAround finds out what the cell does not see: the annotation of the namespace, and that of an object which the request does not show
// to its cell, as in a scale or an eviction.
func (d *durableWrite) lookAround(blind bool, name string) error {
	var known bool
	if d.mode, known = d.rt.Durability.OfNamespace(d.c.Namespace); !known {
		// The gateway has started while the hub is down. The cell has a copy.
		data, err := d.rt.inCell(d.r.Context(), d.c, d.cell, http.MethodGet, "/api/v1/namespaces/"+d.c.Namespace, nil, nil)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		var namespace metav1.PartialObjectMetadata
		_ = utiljson.Unmarshal(data, &namespace) // without a namespace the cell refuses the request
		d.mode = durability.Parse(namespace.Annotations[names.DurabilityAnnotation])
	}
	d.byNamespace = d.mode != durability.None
	if !blind || d.c.Subresource == "" || d.mode == durability.Replicated {
		return nil
	}
	if d.c.Subresource == "scale" && !d.rt.Durability.InUse(d.c.view, d.cell) {
		d.unseen = true
		return nil
	}
	return d.lookAtObject(name)
}

// lookMeanwhile begins to find out what an unseen object asks for, which costs no time while it is being scaled. The record by which no object of the
// cell asks for anything may be a moment old.
func (d *durableWrite) lookMeanwhile(name string) (seen func() durability.Mode) {
	if !d.unseen {
		return func() durability.Mode { return durability.None }
	}
	found := make(chan durability.Mode, 1)
	go func() {
		object := durableWrite{rt: d.rt, r: d.r, c: d.c, cell: d.cell}
		if object.lookAtObject(name) != nil {
			object.mode = durability.Replicated // it is not known
		}
		found <- object.mode
	}()
	return func() durability.Mode { return <-found }
}

// lookAtObject finds out what the stored object asks for.
func (d *durableWrite) lookAtObject(name string) error {
	object, err := d.rt.metadata(d.r.Context(), d.c, d.cell, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the cell says so
	case err != nil:
		return err
	}
	d.mode = max(d.mode, durability.Parse(object.Annotations[names.DurabilityAnnotation]))
	return nil
}

// durabilityAsked returns what an object asks for whose write a cell has refused for that reason. The answer can be read again.
func durabilityAsked(response *http.Response) durability.Mode {
	status := peekStatus(response)
	if status == nil {
		return durability.None
	}
	return durability.Parse(fence.DurabilityIn(*status))
}

// prepare makes sure, before the write is sent, that it can be durable.
func (d *durableWrite) prepare() error {
	var err error
	if backedUp(d.c) {
		err = d.rt.Durability.Ready(d.r.Context(), d.c.view.Name(d.cell), d.slot)
	} else {
		err = errNotBackedUp
	}
	d.c.durable = true
	switch {
	case err == nil:
		return nil
	case d.mode == durability.Preferred:
		d.degraded = err
		return nil
	}
	gatewaydurability.Refused.Count()
	status := apierrors.NewServiceUnavailable("the change was not made, because it cannot be replicated as " + names.DurabilityAnnotation + " demands: " + err.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// finish waits for the backup cell.
func (d *durableWrite) finish(response *http.Response) (*http.Response, error) {
	err := d.degraded
	if err == nil && d.mode == durability.Preferred && !d.c.durable {
		err = d.rt.Durability.Ready(d.r.Context(), d.c.view.Name(d.cell), d.slot)
	}
	if err == nil {
		write := gatewaydurability.Write{View: d.c.view, Cell: d.cell, Slot: d.slot, Mode: d.mode, AtOnce: d.byNamespace}
		// The revision of a deletion is not in its answer, nor is that of a write that removes the last finalizer.
		if write.Deletes = d.c.Verb == "delete" || d.c.Verb == "create" && d.c.Name != ""; !write.Deletes {
			write.Revision, write.Deletes = revisionIn(d.r.Context(), response)
		}
		err = d.rt.Durability.Wait(d.r.Context(), write)
	}
	switch {
	case err == nil:
		gatewaydurability.Confirmed.Count()
		return response, nil
	case d.mode == durability.Preferred:
		gatewaydurability.Degraded.Count()
		warning.AddWarning(d.r.Context(), "", "the change is stored and not replicated yet: "+err.Error())
		return response, nil
	}
	response.Body.Close()
	gatewaydurability.Unconfirmed.Count()
	status := apierrors.NewTimeoutError("the change is stored in cell "+d.c.view.Name(d.cell)+", and it is not known whether it is replicated: "+err.Error()+"; check before you try again", 0)
	status.ErrStatus.Details = nil // a Retry-After would make clients repeat it
	return nil, status
}

// peekAnswer returns the body of an answer, which can be read again.
func peekAnswer(ctx context.Context, response *http.Response) ([]byte, error) {
	body, err := readAnswer(ctx, response, maxObject)
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	return body, err
}

// revisionIn returns the resourceVersion of the object in an answer; 0 if it cannot be read, or if the object is being deleted. The
// answer can be read again.
func revisionIn(ctx context.Context, response *http.Response) (revision int64, deleting bool) {
	metadata, err := metadataIn(ctx, response)
	if err != nil {
		return 0, false
	}
	if metadata.Deleting {
		return 0, true
	}
	revision, err = strconv.ParseInt(string(metadata.ResourceVersion), 10, 64)
	if err != nil {
		return 0, false
	}
	return revision, false
}

// uidIn returns the UID of the object in an answer, "" if it cannot be read. The answer can be read again.
func uidIn(ctx context.Context, response *http.Response) string {
	metadata, err := metadataIn(ctx, response)
	if err != nil {
		return ""
	}
	return string(metadata.UID)
}

// metadataIn returns the metadata of the object in an answer, in JSON or protobuf. The answer can be read again.
func metadataIn(ctx context.Context, response *http.Response) (metadata objbytes.Metadata, err error) {
	body, err := peekAnswer(ctx, response)
	if err != nil {
		return metadata, err
	}
	if envelope, err := objbytes.OpenEnvelope(body); err == nil {
		field, err := objbytes.ProtobufMetadata(envelope.Raw.Of(body))
		if err != nil {
			return metadata, err
		}
		err = metadata.ReadProtobuf(field.Value)
		return metadata, err
	}
	at, err := objbytes.JSONMetadata(body)
	if err != nil {
		return metadata, err
	}
	err = metadata.ReadJSON(body, at)
	return metadata, err
}
