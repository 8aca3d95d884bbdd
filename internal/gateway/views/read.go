package views

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// read answers a get, list or watch from the cache.
func (v *Views) read(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	audit.AddAuditAnnotation(r.Context(), "cellplane.io/cluster-gateway", "true")
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	response, err := v.shares[0].ask(ctx, callerOf(ctx), func() *http.Request { return forwarded(ctx, r) })
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	defer response.Body.Close()
	if info.Verb == "get" && response.StatusCode == http.StatusNotFound && info.APIGroup != metricsGroup {
		// A template that has just been created may not have reached the cache yet.
		v.Next.ServeHTTP(w, r)
		return
	}
	if info.Verb != "watch" {
		forward.Answer(w, response)
		return
	}
	forward.AnswerHeader(w, response)
	stream(w, response.Body)
}

// forwarded is a client's request as it is sent on.
func forwarded(ctx context.Context, r *http.Request) *http.Request {
	out := (&http.Request{
		Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}, Header: forward.EndToEnd(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	forward.Prepare(out, forward.Hub)
	return out
}

// stream passes on what comes when it comes. A stream may end anywhere; clients go on from the last event they got.
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

// untilStopping returns a context that ends when the gateway stops: watches are told to go elsewhere.
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
