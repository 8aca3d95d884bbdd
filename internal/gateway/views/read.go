package views

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
)

// read serves a get, list or watch from the cache.
func (v *Views) read(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	audit.AddAuditAnnotation(r.Context(), "cellplane.io/cluster-gateway", "true")
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	switch {
	case len(v.shares) > 1 && info.APIGroup == metricsGroup && info.Name == "":
		v.mergeMetrics(w, r)
	case info.Verb == "watch":
		router.ServeWatch(w, r, func(w http.ResponseWriter, r *http.Request) { v.watch(w, r, info) })
	case len(v.shares) > 1 && info.Verb != "get":
		v.Merged.ServeHTTP(w, r)
	default:
		v.readFirst(w, r, info)
	}
}

// readFirst answers with the first share that has the object.
func (v *Views) readFirst(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	ctx := r.Context()
	for i, s := range v.shares {
		response, err := s.ask(ctx, callerOf(ctx), func() *http.Request { return forwarded(ctx, r) })
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
		defer response.Body.Close()
		switch {
		case response.StatusCode == http.StatusNotFound && i < len(v.shares)-1:
			continue
		case response.StatusCode == http.StatusNotFound && info.Verb == "get" && info.APIGroup != metricsGroup && info.APIGroup != views.Metrics.Group:
			if len(v.shares) > 1 && v.readContested(w, r) {
				return
			}
			// A template that has just been created may not have reached the cache yet.
			v.answered(w, r, destination{info: info}, v.Next)
		case response.Header.Get(views.TemplateHeader) != "" && r.URL.Query().Get("resourceVersion") == "":
			v.answered(w, r, destination{info: info}, v.Next) // the most recent state is in its cell
		case info.Verb == "watch":
			forward.AnswerHeader(w, response)
			stream(w, response.Body)
		default:
			forward.Answer(w, response)
		}
		return
	}
}

// readContested answers with an object that a share has but does not show, and reports whether there is one. When the shown object
// changes from one share to another, the shares notice at different times, and for a moment none of them may show it.
func (v *Views) readContested(w http.ResponseWriter, r *http.Request) bool {
	ctx := r.Context()
	for _, s := range v.shares {
		response, err := s.ask(ctx, callerOf(ctx), func() *http.Request {
			out := forwarded(ctx, r)
			out.Header.Set(views.ContestedHeader, "true")
			return out
		})
		if err != nil {
			continue // another share may have it
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			forward.Answer(w, response)
			return true
		}
	}
	return false
}

// mergeMetrics answers with the metrics of all shares.
func (v *Views) mergeMetrics(w http.ResponseWriter, r *http.Request) {
	var merged map[string]any
	items := []any{}
	var failure error
	for _, s := range v.shares {
		response, err := s.ask(r.Context(), callerOf(r.Context()), func() *http.Request { return get(r.Context(), r.URL.Path, r.URL.Query()) })
		var list map[string]any
		if err == nil {
			err = readJSON(r.Context(), response, &list)
		}
		if err != nil {
			failure = err // show the metrics of the other shares
			continue
		}
		merged = list
		some, _ := list["items"].([]any)
		items = append(items, some...)
	}
	if merged == nil {
		forward.WriteError(w, r, failure)
		return
	}
	merged["items"] = items
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(merged) // fails only if the client has disconnected
}

// forwarded returns the outgoing copy of a client's request.
func forwarded(ctx context.Context, r *http.Request) *http.Request {
	out := (&http.Request{
		Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}, Header: forward.EndToEnd(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	forward.Prepare(out, forward.Hub)
	return out
}

// stream forwards data as it arrives. It may end anywhere: clients resume from their last event.
func stream(w http.ResponseWriter, from io.Reader) {
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// untilStopping returns a context that ends when the gateway stops, so that watches end and clients reconnect to another replica.
func untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if signal := request.ServerShutdownSignalFrom(ctx); signal != nil {
		go func() {
			select {
			case <-signal.ShuttingDown():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}
