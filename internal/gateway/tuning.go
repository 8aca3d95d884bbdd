package gateway

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// maxGCPercent is the growth of the heap, in percent, before a garbage collection. The live heap of a gateway is small and it makes much
	// garbage; with Go's default it would collect all the time.
	maxGCPercent = 400
	// minGCPercent and maxGarbage bound the garbage of a large heap: many watches, or answers that clients do not read.
	minGCPercent = 50
	maxGarbage   = 512 << 20

	gcInterval = time.Second
)

// gcPercentFor returns the growth for a live heap of a size.
func gcPercentFor(live uint64) int {
	return int(min(max(maxGarbage*100/max(live, 1), minGCPercent), maxGCPercent))
}

// tuneCollector adapts the collector to the live heap until the context ends, unless the operator has set GOGC.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := maxGCPercent
	debug.SetGCPercent(percent)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(gcInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(sample)
		if next := gcPercentFor(sample[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
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
