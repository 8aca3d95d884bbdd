package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// lastWords is how long a client has to take an answer that came at the deadline.
const lastWords = 5 * time.Second

// withDeadline keeps the deadline of a request, which its context has. Whatever a request waits for behind the gateway ends with its
// context, and is answered. A client that does not send its body, or does not take its answer, is not waited for either.
//
// The generic filter runs every request in a goroutine of its own that it can leave behind; that is a copy of the request and another
// stack to grow for each.
func withDeadline(next http.Handler, lasts request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if info, found := request.RequestInfoFrom(ctx); !found || lasts(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		controller := http.NewResponseController(w)
		over := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(over)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				hurry(controller)
			}
		})
		defer func() {
			if stop() {
				return
			}
			<-over // the connection is not ours any more once we have returned
			_ = controller.SetWriteDeadline(time.Time{})
		}()
		next.ServeHTTP(w, r)
	})
}

// lasts reports whether a request may last, as API servers say. Five filters ask, so that it is no lookup in sets.
func lasts(r *http.Request, info *request.RequestInfo) bool {
	switch info.Verb {
	case "watch", "proxy":
		return true
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return info.IsResourceRequest
	}
	return !info.IsResourceRequest && strings.HasPrefix(r.URL.Path, "/debug/pprof/")
}

// hurry ends what waits for the client: what it has not sent at once, what it does not take soon. Connections that cannot do that end
// with their client.
func hurry(controller *http.ResponseController) {
	now := time.Now()
	_ = controller.SetReadDeadline(now)
	_ = controller.SetWriteDeadline(now.Add(lastWords))
}
