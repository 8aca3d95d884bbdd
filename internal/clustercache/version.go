package clustercache

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// Versions are (start + n) × tags + tag: the start of the Store in units of ten microseconds, the number of events since, and a tag of
// the replica and its start. They have nineteen digits until the year 2286, so that one can overwrite another; they fit a signed 64-bit
// integer; and they increase from one start to the next if there are fewer than a hundred thousand events a second on average. Another
// replica has another tag.
const (
	tags        = 10_000
	versionTick = 10 * time.Microsecond
)

// Incarnation is one start of one replica.
type Incarnation struct {
	start uint64
	tag   uint64
}

// NewIncarnation returns the incarnation of a replica that starts now.
func NewIncarnation(now time.Time, replica string) Incarnation {
	start := uint64(now.UnixNano() / int64(versionTick))
	digest := xxhash.NewWithSeed(start)
	// Writes to a hash never fail.
	_, _ = digest.WriteString(replica)
	return Incarnation{start: start, tag: digest.Sum64() % tags}
}

// version returns the version of the nth event.
func (i Incarnation) version(n uint64) uint64 { return (i.start+n)*tags + i.tag }

// event returns the event number of a version; ok is false if the version is not of this incarnation.
func (i Incarnation) event(version uint64) (n uint64, ok bool) {
	if version%tags != i.tag || version/tags < i.start {
		return 0, false
	}
	return version/tags - i.start, true
}
