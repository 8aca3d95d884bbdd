package watchmerge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// fakeCell is a cell with scripted streams.
type fakeCell struct {
	// streams are opened one after the other; the last stays open after its events.
	streams []fakeStream
}

type fakeStream struct {
	err    error
	events []*splice.Event
}

// harness runs a driver over fake cells.
type harness struct {
	driver *Driver
	clock  *clocktesting.FakeClock

	lock   sync.Mutex
	opened []string
	sent   []string
	more   chan struct{} // receives a token for every sent event
	// idle, if set, is closed when a cell has no more events. The clock stands still until then.
	idle chan struct{}
}

func newHarness(t *testing.T, options Options, cells ...fakeCell) *harness {
	t.Helper()
	options.Epoch, options.Cells = epoch, len(cells)
	h := &harness{clock: clocktesting.NewFakeClock(noon), more: make(chan struct{}, 100)}
	merger, err := New(options, noon)
	if err != nil {
		t.Fatal(err)
	}
	h.driver = &Driver{
		Merger: merger,
		Clock:  h.clock,
		Begin:  func() { h.note("BEGIN") },
		Send: func(outputs []Output) error {
			for _, o := range outputs {
				h.note(format([]Output{o}))
			}
			return nil
		},
		Open: func(ctx context.Context, i int, version uint64, initial bool) (Stream, error) {
			h.lock.Lock()
			defer h.lock.Unlock()
			h.opened = append(h.opened, fmt.Sprintf("%d@%d initial=%v", i, version, initial))
			stream := cells[i].streams[0]
			last := &fakeReader{ctx: ctx, events: stream.events, idle: h.idle}
			if len(cells[i].streams) > 1 {
				cells[i].streams = cells[i].streams[1:]
				return &fakeReader{ctx: ctx, events: stream.events, ends: true}, stream.err
			}
			return last, stream.err
		},
	}
	return h
}

func (h *harness) note(what string) {
	h.lock.Lock()
	h.sent = append(h.sent, what)
	h.lock.Unlock()
	h.more <- struct{}{}
}

type fakeReader struct {
	ctx    context.Context
	events []*splice.Event
	ends   bool
	idle   chan struct{}
}

func (r *fakeReader) Next() (*splice.Event, error) {
	if len(r.events) > 0 {
		e := r.events[0]
		r.events = r.events[1:]
		return e, nil
	}
	if r.ends {
		return nil, io.EOF
	}
	if r.idle != nil {
		close(r.idle)
	}
	<-r.ctx.Done()
	return nil, r.ctx.Err()
}

// run runs the driver until n events have been sent, and returns its error. The clock advances whenever a goroutine waits for it.
func (h *harness) run(t *testing.T, n int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { h.passTime(stop) })
	done := make(chan error, 1)
	go func() { done <- h.driver.Run(ctx) }()
	defer wait.Wait()
	defer close(stop)
	for range n {
		select {
		case <-h.more:
		case err := <-done:
			return err
		}
	}
	cancel()
	return <-done
}

// passTime advances the clock for short waits, but not for the ticker alone.
func (h *harness) passTime(stop chan struct{}) {
	if h.idle != nil {
		<-h.idle
		h.clock.Step(time.Hour)
		return
	}
	for {
		select {
		case <-stop:
			return
		default:
			h.clock.Step(time.Millisecond)
		}
	}
}

func (h *harness) expect(t *testing.T, sent ...string) {
	t.Helper()
	h.lock.Lock()
	defer h.lock.Unlock()
	if !slices.Equal(h.sent, sent) {
		t.Errorf("sent %q\nwant %q", h.sent, sent)
	}
}

func added(t *testing.T, rv uint64, key string) *splice.Event {
	return event(t, entry{rv: rv, kind: splice.Added, object: object{key: key}})
}

func TestDriverMergesInitialEvents(t *testing.T) {
	h := newHarness(t, Options{InitialEventsEnd: true, Stages: []int{1, 0}},
		fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 3, "n/a"), bookmark(t, 9, true), added(t, 12, "n/c")}}}},
		fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 4, "n/b"), bookmark(t, 8, true)}}}},
	)
	if err := h.run(t, 5); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "BEGIN", "ADDED n/b 0@4", "ADDED n/a 0@3", "BOOKMARK end@[9 8]", "ADDED n/c 0@[12 8]")
	if want := []string{"1@0 initial=true", "0@0 initial=true"}; !slices.Equal(h.opened, want) {
		t.Errorf("opened %q, want %q", h.opened, want)
	}
}

// TestDriverLeaves has a watch continued elsewhere. That is possible only after its initial events, at the position after them.
func TestDriverLeaves(t *testing.T) {
	h := newHarness(t, Options{InitialEventsEnd: true},
		fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 3, "n/a"), bookmark(t, 9, true), added(t, 12, "n/c")}}}},
		fakeCell{[]fakeStream{{events: []*splice.Event{bookmark(t, 8, true)}}}},
	)
	var asked []string
	h.driver.Leave = func(at position.Position) bool {
		asked = append(asked, fmt.Sprint(at.Versions))
		return at.Versions[0] == 12
	}
	if err := h.run(t, 100); err != nil {
		t.Fatal(err)
	}
	// It is asked again at the same position as time passes.
	if want := []string{"[9 8]", "[12 8]"}; !slices.Equal(slices.Compact(asked), want) {
		t.Errorf("asked at %q, want %q", asked, want)
	}
}

func TestDriverReopensBrokenStreams(t *testing.T) {
	h := newHarness(t, Options{Start: []uint64{10}}, fakeCell{[]fakeStream{
		{events: []*splice.Event{added(t, 12, "n/a")}},
		{},
		{err: fmt.Errorf("no route: %w", ErrUnavailable)},
		{events: []*splice.Event{added(t, 14, "n/b")}},
	}})
	if err := h.run(t, 3); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "BEGIN", "ADDED n/a 0@[12]", "ADDED n/b 0@[14]")
	if want := []string{"0@10 initial=false", "0@12 initial=false", "0@12 initial=false", "0@12 initial=false"}; !slices.Equal(h.opened, want) {
		t.Errorf("opened %q, want %q", h.opened, want)
	}
}

func TestDriverContinuesWithoutACell(t *testing.T) {
	h := newHarness(t, Options{Start: []uint64{10, 10}},
		fakeCell{[]fakeStream{{err: ErrUnavailable}}},
		fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 14, "n/b")}}}},
	)
	if err := h.run(t, 2); err != nil {
		t.Fatal(err)
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	if !slices.Contains(h.sent, "ADDED n/b 0@[10 14]") {
		t.Errorf("sent %q", h.sent)
	}
}

func TestDriverReportsExpiry(t *testing.T) {
	h := newHarness(t, Options{Start: []uint64{10, 10}}, fakeCell{[]fakeStream{{}}}, fakeCell{[]fakeStream{{err: ErrExpired}}})
	if err := h.run(t, 10); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "BEGIN", "ERROR@")
}

func TestDriverFails(t *testing.T) {
	forbidden := errors.New("forbidden")
	for name, test := range map[string]struct {
		options Options
		cell    fakeCell
		want    string
	}{
		"refused":                {Options{Start: []uint64{10}}, fakeCell{[]fakeStream{{err: forbidden}}}, "forbidden"},
		"unavailable at first":   {Options{}, fakeCell{[]fakeStream{{err: ErrUnavailable}}}, "not available"},
		"initial events cut off": {Options{}, fakeCell{[]fakeStream{{}, {}}}, "ended within its initial events"},
		"protocol violation":     {Options{Start: []uint64{10}}, fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 5, "n/a")}}}}, "went back"},
	} {
		h := newHarness(t, test.options, test.cell)
		if err := h.run(t, 10); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	h := newHarness(t, Options{Start: []uint64{10}}, fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 15, "n/a")}}}})
	h.driver.Send = func([]Output) error { return io.ErrClosedPipe }
	if err := h.run(t, 10); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after the client disconnected: %v", err)
	}
}

func TestDriverTimeout(t *testing.T) {
	h := newHarness(t, Options{Start: []uint64{10}, Bookmarks: true}, fakeCell{[]fakeStream{{events: []*splice.Event{bookmark(t, 12, false)}}}})
	h.driver.Timeout = 10 * time.Second
	h.idle = make(chan struct{})
	if err := h.run(t, 10); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "BEGIN", "BOOKMARK@[12]")
}
