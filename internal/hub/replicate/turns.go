package replicate

import "sync"

// inspections is how many namespaces of a cell are searched for content concurrently.
const inspections = 2

// turns bounds the inspections of namespaces. A namespace that has to wait for its turn occupies no worker, so the deletion of many
// namespaces does not delay the copies of other objects.
type turns struct {
	mu      sync.Mutex
	taken   int
	waiting []objectKey
}

// take takes a turn. If there is none, the key is among those that end returns.
func (t *turns) take(key objectKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == inspections {
		t.waiting = append(t.waiting, key)
		return false
	}
	t.taken++
	return true
}

// end ends a turn and returns who has waited for one. All of them have to try again: those at the front may not need it any more.
func (t *turns) end() []objectKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	waiting := t.waiting
	t.waiting = nil
	return waiting
}
