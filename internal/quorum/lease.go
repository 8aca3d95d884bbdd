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
	sent   Instant
	former *reading
}

// Confirm takes the answer of a voter: a consistent read of its floor that was sent at a time. Answers may arrive in any order; one that
// was sent before the last is ignored.
func (l *Lease) Confirm(voter string, floor int64, sent Instant) {
	if l.voters == nil {
		l.voters = map[string]*reading{}
	}
	last := l.voters[voter]
	switch {
	case last == nil:
		l.voters[voter] = &reading{floor: floor, sent: sent}
	case sent.Monotonic <= last.sent.Monotonic:
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
func (l *Lease) confirmed(voter string, epoch int64) (sent Instant, found bool) {
	for r := l.voters[voter]; r != nil; r = r.former {
		if r.floor <= epoch {
			return r.sent, true
		}
	}
	return Instant{}, false
}

// Age returns how long ago the reads were sent by which a majority of the voters has confirmed an epoch.
func (l *Lease) Age(now Instant, epoch int64, voters []string) (age time.Duration, found bool) {
	var array [16]time.Duration
	ages := array[:0]
	for _, voter := range voters {
		if sent, found := l.confirmed(voter, epoch); found {
			ages = append(ages, Elapsed(sent, now))
		}
	}
	majority := Majority(len(voters))
	if len(ages) < majority {
		return 0, false
	}
	slices.Sort(ages)
	return ages[majority-1], true
}

// Held reports whether a gateway holds the lease at an epoch.
func (l *Lease) Held(now Instant, length time.Duration, epoch int64, voters []string) bool {
	age, found := l.Age(now, epoch, voters)
	return found && age < length
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
