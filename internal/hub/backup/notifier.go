package backup

import "sync"

// notifier wakes everyone who waits for a change.
type notifier struct {
	mu   sync.Mutex
	next chan struct{}
}

// changed returns a channel that is closed with the next change. Take it before looking at what may change.
func (n *notifier) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *notifier) notify() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
