package quorum

import "time"

// Instant is a reading of the two clocks of a machine. Only readings in one process can be compared.
type Instant struct {
	// Monotonic is the time since an arbitrary moment. Nobody can set this clock. It stops while the machine is suspended.
	Monotonic time.Duration
	// Wall is the time of day. It goes on while the machine is suspended, and can be set at any time.
	Wall time.Time
}

// origin is the moment from which the monotonic clock counts.
var origin = time.Now()

// At returns the Instant of what time.Now has returned in this process.
func At(now time.Time) Instant { return Instant{Monotonic: now.Sub(origin), Wall: now.Round(0)} }

// Elapsed returns the time between two Instants: by the clock that has run further.
func Elapsed(since, now Instant) time.Duration {
	return max(now.Monotonic-since.Monotonic, now.Wall.Sub(since.Wall))
}
