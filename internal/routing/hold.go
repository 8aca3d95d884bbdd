package routing

import "time"

// The wait between two looks at a moving object. Moving one takes milliseconds.
const (
	firstWait = 2 * time.Millisecond
	lastWait  = 50 * time.Millisecond
)

// hold limits how long a request waits in total. The zero value has not waited yet.
type hold struct {
	since time.Time
	next  time.Duration
	// longest is the longest wait between two looks; 0 means lastWait.
	longest time.Duration
}

// expired starts the hold on first use, and reports whether its bound has passed.
func (h *hold) expired(now time.Time, bound time.Duration) bool {
	if h.since.IsZero() {
		h.since, h.next = now, firstWait
	}
	return now.Sub(h.since) > bound
}

// wait returns the action for a request whose object is moving.
func (h *hold) wait(now time.Time, bound time.Duration) Action {
	if h.expired(now, bound) {
		return Action{Kind: Refuse, Reason: HeldTooLong}
	}
	next := h.next
	h.next = min(2*next, max(h.longest, lastWait))
	return Action{Kind: Wait, For: next}
}

// awaitView returns the action for a request that cannot be answered with its view.
func (h *hold) awaitView(now time.Time, bound time.Duration) Action {
	if h.expired(now, bound) {
		return Action{Kind: Refuse, Reason: HeldTooLong}
	}
	return Action{Kind: AwaitView, Deadline: h.since.Add(bound)}
}
