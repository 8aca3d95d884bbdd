// Package keylock has one lock per key. A lock exists only while somebody holds it or waits for it.
package keylock

import "sync"

// Locks are the locks of all keys. The zero value is ready to use.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*lock
}

type lock struct {
	sync.Mutex
	users int // those who hold it or wait for it
}

// Lock waits for the lock of a key, and returns the function that releases it.
func (l *Locks[K]) Lock(key K) (unlock func()) {
	one := l.enter(key)
	one.Lock()
	return func() {
		one.Unlock()
		l.leave(key, one)
	}
}

func (l *Locks[K]) enter(key K) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[K]*lock{}
	}
	one := l.held[key]
	if one == nil {
		one = &lock{}
		l.held[key] = one
	}
	one.users++
	return one
}

func (l *Locks[K]) leave(key K, one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.held, key)
	}
}
