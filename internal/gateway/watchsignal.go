package gateway

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// stuckWatch is how long a client of a watch may take to read what is written to it. Then the watch ends, and the client can resume it.
const stuckWatch = 30 * time.Second

// withWatchSignal releases the seat of a watch in flow control as soon as its answer begins, whichever handler serves it. Otherwise a
// watch would hold the seat for its whole life, and some hundreds of watches would lock out everybody else of their priority level. It also
// ends watches whose clients do not read: nothing else would, as the handler waits in a write.
func withWatchSignal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, found := request.RequestInfoFrom(r.Context()); found && info.IsResourceRequest && info.Verb == "watch" {
			watch := &watchWriter{ResponseWriter: w, started: sync.OnceFunc(func() { flowcontrol.WatchInitialized(r.Context()) }), stuck: stuckWatch}
			w = watch
			if r.Header.Get("Upgrade") != "" {
				watch.started() // a WebSocket takes the connection over, past the writer
				w = responsewriter.WrapForHTTP1Or2(watch)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// watchWriter calls started when the answer begins, and ends an answer that is not read.
type watchWriter struct {
	http.ResponseWriter
	started func()
	stuck   time.Duration
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *watchWriter) WriteHeader(code int) {
	w.started()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *watchWriter) Write(b []byte) (n int, err error) {
	w.started()
	w.within(func() { n, err = w.ResponseWriter.Write(b) })
	return n, err
}

// Flush implements http.Flusher.
func (w *watchWriter) Flush() { _ = w.FlushError() } // the next write returns the error

// FlushError serves http.ResponseController.
func (w *watchWriter) FlushError() (err error) {
	w.within(func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// within makes a write fail if it takes too long.
func (w *watchWriter) within(write func()) {
	over := make(chan struct{})
	timer := time.AfterFunc(w.stuck, func() {
		defer close(over)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now()) // not supported by the connections of some tests
	})
	write()
	if !timer.Stop() {
		<-over // the connection may not be used after the handler has returned
	}
}
