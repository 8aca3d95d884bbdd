package status

import (
	"strconv"
	"testing"
	"time"
)

const throng = 50

func TestPace(t *testing.T) {
	p := newPace[string](rhythm{quiet: 2 * time.Second, longest: 5 * time.Second, throng: throng})
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
	crowded := newPace[string](rhythm{quiet: 2 * time.Second, longest: 5 * time.Second, stretch: 3, throng: throng})
	for i := range 2 * throng {
		crowded.moved(strconv.Itoa(i), start)
	}
	if wait := crowded.wait("0", start); wait != 4*time.Second {
		t.Errorf("in a crowd it waits %v", wait)
	}
	for i := range 100 * throng {
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

func TestPaceOfSlowTimes(t *testing.T) {
	p := newPace[string](rhythm{quiet: 2 * time.Second, longest: 6 * time.Second, stretch: 10, throng: throng})
	now := time.Unix(0, 0)
	// Everything has taken four seconds of late: what takes twice as long is nothing to speak of.
	for i := range 100 {
		key := strconv.Itoa(i)
		p.moved(key, now)
		now = now.Add(4 * time.Second)
		p.settled(key, now)
	}
	p.moved("slow", now)
	if wait := p.wait("slow", now); wait != 2*time.Second {
		t.Errorf("by itself it waits %v", wait)
	}
	// All that is different where many move.
	for i := range 10 * crowd {
		p.moved("other "+strconv.Itoa(i), now)
	}
	if wait := p.wait("slow", now); wait < 8*time.Second || wait > 12*time.Second {
		t.Errorf("where four seconds are usual it waits %v", wait)
	}
	// Times that are slower still do not let it wait beyond the bound.
	for i := range 100 {
		key := strconv.Itoa(i)
		p.moved(key, now)
		now = now.Add(time.Hour)
		p.settled(key, now)
	}
	p.moved("late", now)
	if wait := p.wait("late", now); wait != 20*time.Second {
		t.Errorf("where an hour is usual it waits %v", wait)
	}
	if pause := p.pause("late", now); pause != 6*time.Second {
		t.Errorf("it is looked at again after %v", pause)
	}
	// When nothing comes to rest any more, people should soon see what hangs.
	p.moved("hangs", now.Add(10*time.Minute))
	if wait := p.wait("hangs", now.Add(10*time.Minute)); wait != 4*time.Second {
		t.Errorf("long after the last came to rest it waits %v", wait)
	}
	// What is written on its way says nothing about how long it takes.
	quick := newPace[string](rhythm{quiet: 2 * time.Second, longest: 6 * time.Second, stretch: 10, throng: throng})
	quick.moved("k", time.Unix(0, 0))
	quick.written("k")
	quick.settled("k", time.Unix(1000, 0))
	quick.moved("k", time.Unix(1000, 0))
	if wait := quick.wait("k", time.Unix(1000, 0)); wait != 2*time.Second {
		t.Errorf("after a write on the way it waits %v", wait)
	}
}

// What users are told of a thousand rollouts at once, and of one.
func TestRhythms(t *testing.T) {
	start := time.Unix(0, 0)
	for _, test := range []struct {
		name    string
		rhythm  rhythm
		moving  int
		usual   time.Duration // how long others took of late; 0 if none came to rest
		quiet   time.Duration // how long one waits that does not move any more
		longest time.Duration // how long one waits that moves all the time
	}{
		{"one", bindingRhythm, 1, 0, 5 * time.Second, 15 * time.Second},
		{"one after slow ones", bindingRhythm, 1, time.Hour, 5 * time.Second, 15 * time.Second},
		{"a thousand, all stuck", bindingRhythm, 1000, 0, 100 * time.Second, 5 * time.Minute},
		{"ten thousand, all stuck", bindingRhythm, 10000, 0, 200 * time.Second, 10 * time.Minute},
		{"a thousand, slow", bindingRhythm, 1000, 2 * time.Minute, 200 * time.Second, 10 * time.Minute},
		{"a thousand, quick", bindingRhythm, 1000, 2 * time.Second, 100 * time.Second, 5 * time.Minute},
		{"a Work", workRhythm, 1, 0, 45 * time.Second, 90 * time.Second},
		{"Works of a thousand", workRhythm, 3000, 0, 6 * time.Minute, 12 * time.Minute},
	} {
		p := newPace[string](test.rhythm)
		now := start
		for i := range 10 {
			if test.usual > 0 {
				key := "ended " + strconv.Itoa(i)
				p.moved(key, now)
				now = now.Add(test.usual)
				p.settled(key, now)
			}
		}
		for i := range test.moving {
			p.moved(strconv.Itoa(i), now)
		}
		if wait := p.wait("0", now); wait != test.quiet {
			t.Errorf("%s: one that rests waits %v", test.name, wait)
		}
		m := p.moves["0"]
		m.last = now.Add(time.Hour)
		p.moves["0"] = m
		if wait := p.wait("0", now); wait != test.longest {
			t.Errorf("%s: one that moves waits %v", test.name, wait)
		}
	}
}
