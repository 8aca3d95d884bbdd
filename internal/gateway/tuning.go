package gateway

import (
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
)

// gcPercent is the growth of the heap, in percent, before a garbage collection. The live heap of a gateway is small and it makes much
// garbage; with Go's default it would collect all the time.
const gcPercent = 400

// tuneCollector applies gcPercent, unless the operator has set GOGC.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// withStack grows the stack of a request once to what the chain needs. A goroutine begins with a small stack, which would otherwise be
// doubled and copied several times on the way down.
func withStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack()
		next.ServeHTTP(w, r)
	})
}

// stackSize is the stack that the chain needs, from the client's connection to the cell's.
const stackSize = 16 << 10

//go:noinline
func growStack() {
	var frame [stackSize]byte
	runtime.KeepAlive(&frame[0])
}
