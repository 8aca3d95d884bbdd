package quorum

import (
	"slices"
	"time"
)

// Lease is what a gateway knows of the floors of the voters. The zero value knows nothing. It is not safe for concurrent use.
type Lease struct {
	voters map[string]*reading
}

// reading is the last read of a voter's floor, and the last one of the floor before it: what a voter has confirmed stays confirmed for the
// length of the lease.
type reading struct {
	floor  int64
	sent   time.Time
	former *reading
}

// Confirm takes the answer of a voter: a consistent read of its floor that was sent at a time. Answers may arrive in any order; one that
// was sent before the last is ignored.
func (l *Lease) Confirm(voter string, floor int64, sent time.Time) {
	if l.voters == nil {
		l.voters = map[string]*reading{}
	}
	last := l.voters[voter]
	switch {
	case last == nil:
		l.voters[voter] = &reading{floor: floor, sent: sent}
	case !sent.After(last.sent):
	case floor == last.floor:
		last.sent = sent
	case floor > last.floor:
		last.former = nil
		l.voters[voter] = &reading{floor: floor, sent: sent, former: last}
	default: // a cell that had failed was opened again
		l.voters[voter] = &reading{floor: floor, sent: sent}
	}
}

// confirmed returns when the last read was sent by which a voter confirmed an epoch.
func (l *Lease) confirmed(voter string, epoch int64) (sent time.Time, found bool) {
	for r := l.voters[voter]; r != nil; r = r.former {
		if r.floor <= epoch {
			return r.sent, true
		}
	}
	return time.Time{}, false
}

// Since returns the time from which the lease at an epoch counts: since then, a majority of the voters has confirmed the epoch.
func (l *Lease) Since(epoch int64, voters []string) (since time.Time, found bool) {
	var array [16]time.Time
	times := array[:0]
	for _, voter := range voters {
		if sent, found := l.confirmed(voter, epoch); found {
			times = append(times, sent)
		}
	}
	majority := Majority(len(voters))
	if len(times) < majority {
		return time.Time{}, false
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	return times[majority-1], true
}

// Held reports whether a gateway holds the lease at an epoch.
func (l *Lease) Held(now time.Time, length time.Duration, epoch int64, voters []string) bool {
	since, found := l.Since(epoch, voters)
	return found && Elapsed(since, now) < length
}

// Outdated reports whether so many voters have a floor above an epoch that the lease at the epoch cannot be renewed.
func (l *Lease) Outdated(epoch int64, voters []string) bool {
	accepting := len(voters)
	for _, voter := range voters {
		if last := l.voters[voter]; last != nil && last.floor > epoch {
			accepting--
		}
	}
	return accepting < Majority(len(voters))
}

// Elapsed returns the time between two readings of the clock: by the monotonic clock or by the wall clock, whichever has run further. The
// monotonic clock stops while a machine is suspended, and the wall clock can be set back.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
