package status

import (
	"strconv"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	p := newPace[string](rhythm{quiet: 2 * time.Second, longest: 5 * time.Second})
	start := time.Unix(0, 0)
	after := start.Add
	if wait := p.wait("k", start); wait != 0 {
		t.Errorf("what never moved waits %v", wait)
	}
	p.moved("k", start)
	if wait := p.wait("k", after(time.Second)); wait != time.Second {
		t.Errorf("a second after it moved it waits %v", wait)
	}
	for i := range 5 {
		p.moved("k", after(time.Duration(i)*time.Second))
	}
	if wait := p.wait("k", after(4*time.Second)); wait != time.Second {
		t.Errorf("what moves all the time waits %v, beyond the longest", wait)
	}
	if wait := p.wait("k", after(9*time.Second)); wait != 0 {
		t.Errorf("what is due waits %v", wait)
	}
	// In a crowd everything waits longer, within bounds.
	crowded := newPace[string](rhythm{quiet: 2 * time.Second, longest: 5 * time.Second, stretch: 3})
	for i := range 2 * crowd {
		crowded.moved(strconv.Itoa(i), start)
	}
	if wait := crowded.wait("0", start); wait != 4*time.Second {
		t.Errorf("in a crowd it waits %v", wait)
	}
	for i := range 100 * crowd {
		crowded.moved(strconv.Itoa(i), start)
	}
	if wait := crowded.wait("0", start); wait != 6*time.Second {
		t.Errorf("in a big crowd it waits %v", wait)
	}
	p.written("k")
	p.moved("k", after(20*time.Second))
	if wait := p.wait("k", after(20*time.Second)); wait != 2*time.Second {
		t.Errorf("after a write it waits %v", wait)
	}
}
