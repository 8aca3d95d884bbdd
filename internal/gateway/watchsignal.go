package gateway

import (
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// withWatchSignal releases the seat of a watch in flow control as soon as its answer begins, whichever handler serves it. Otherwise a
// watch would hold the seat for its whole life, and some hundreds of watches would lock out everybody else of their priority level.
func withWatchSignal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, found := request.RequestInfoFrom(r.Context()); found && info.IsResourceRequest && info.Verb == "watch" {
			started := sync.OnceFunc(func() { flowcontrol.WatchInitialized(r.Context()) })
			if r.Header.Get("Upgrade") != "" {
				started() // a WebSocket takes the connection over, past the writer
			}
			w = responsewriter.WrapForHTTP1Or2(&watchWriter{ResponseWriter: w, started: started})
		}
		next.ServeHTTP(w, r)
	})
}

// watchWriter calls started when the answer begins.
type watchWriter struct {
	http.ResponseWriter
	started func()
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *watchWriter) WriteHeader(code int) {
	w.started()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *watchWriter) Write(b []byte) (int, error) {
	w.started()
	return w.ResponseWriter.Write(b)
}
