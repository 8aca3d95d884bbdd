package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/tunnel"
)

// answerTimeout is how long a client may take to read an answer that was written at the deadline.
const answerTimeout = 5 * time.Second

// withDeadline enforces the deadline in the context of a request. Waits behind the gateway end with the context. Waits for a client
// that does not send its body, or does not read the answer, end by deadlines of the connection.
//
// The generic filter runs each request in a goroutine that it can abandon, which costs a copy of the request and another stack.
func withDeadline(next http.Handler, longRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if info, found := request.RequestInfoFrom(ctx); !found || longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		controller := http.NewResponseController(w)
		over := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(over)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				expire(controller)
			}
		})
		defer func() {
			if stop() {
				return
			}
			<-over // the handler may not use the connection after it has returned
			_ = controller.SetWriteDeadline(time.Time{})
		}()
		next.ServeHTTP(w, r)
	})
}

// isLongRunning reports whether a request has no deadline, by the rules of kube-apiserver. Five filters call it for each request, so
// it uses no sets.
func isLongRunning(r *http.Request, info *request.RequestInfo) bool {
	switch info.Verb {
	case "watch", "proxy":
		return true
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward", tunnel.Subresource:
		return info.IsResourceRequest
	}
	return !info.IsResourceRequest && strings.HasPrefix(r.URL.Path, "/debug/pprof/")
}

// expire ends reads from the client at once, and writes to it soon. Connections without deadlines end with their client.
func expire(controller *http.ResponseController) {
	now := time.Now()
	_ = controller.SetReadDeadline(now)
	_ = controller.SetWriteDeadline(now.Add(answerTimeout))
}
