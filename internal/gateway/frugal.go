package gateway

import (
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
)

// collectAt is how much the heap may grow before it is collected. What a gateway holds for long is small, and it makes much garbage: with
// the default it would collect all the time for nothing.
const collectAt = 400

// tuneCollector applies collectAt, unless the operator has chosen something.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// withRoom gives a request the stack that the chain needs at once. It begins with a small one, which would be doubled, and copied with
// all that is on it, several times on the way down.
func withRoom(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		makeRoom()
		next.ServeHTTP(w, r)
	})
}

// stackRoom is what the chain needs, from the connection of the client to that of the cell.
const stackRoom = 16 << 10

//go:noinline
func makeRoom() {
	var room [stackRoom]byte
	runtime.KeepAlive(&room[0])
}
