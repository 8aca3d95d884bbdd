package watchmerge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

var (
	// ErrExpired is returned by Open if a cell no longer has the events after a resourceVersion.
	ErrExpired = errors.New("the resourceVersion has expired")
	// ErrUnavailable is returned by Open if a cell is temporarily unreachable.
	ErrUnavailable = errors.New("the cell is not available")
)

// The back-off before a stream is reopened, doubled with every attempt that yields no event.
const (
	firstDelay = 50 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// Stream is the watch of one cell, such as a splice.EventReader.
type Stream interface {
	// Next returns the next event; any error ends the stream. It must return when the context it was opened with is done.
	Next() (*splice.Event, error)
}

// Driver reads the streams of the cells through a Merger.
type Driver struct {
	// Merger decides what happens to the events.
	Merger *Merger
	// Open watches a cell: from a resourceVersion or, if initial, beginning with initial events. The stream ends with the context.
	Open func(ctx context.Context, cell int, version uint64, initial bool) (Stream, error)
	// Begin is called when all cells have answered, or before the first event: from then on only events can be sent. It may be nil.
	Begin func()
	// Send sends events to the client.
	Send func([]Output) error
	// Leave, if set, is asked whether the watch is continued elsewhere, after each event and from time to time, if it can be resumed at its
	// position. Then Run returns.
	Leave func(position.Position) bool
	// End, if set, ends the watch when it is closed, like Timeout.
	End <-chan struct{}
	// Timeout is how long the watch lasts; 0 means until the context is done.
	Timeout time.Duration
	// Clock is the clock; nil means the real one.
	Clock clock.WithTicker
}

// Run merges the cells' watches until the client's context is done, the timeout is over, or an error event ends the watch. If it returns
// an error before Begin was called, the caller answers with a status. Run reopens a stream that breaks. A cell that cannot be reached does
// not stop the others, unless its initial events are missing.
func (d *Driver) Run(ctx context.Context) error {
	r := &run{Driver: *d, readers: make([]reader, len(d.Merger.cells)), reports: make(chan report)}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer r.wait.Wait()
	defer cancel()
	r.start(ctx)
	return r.loop(ctx)
}

type run struct {
	Driver
	readers []reader
	reports chan report
	wait    sync.WaitGroup
	begun   bool
}

// reader is the driver's side of the goroutine that reads a cell. It executes one order at a time.
type reader struct {
	orders chan order
	busy   bool
	open   bool
	asked  bool // has answered at least once
	delay  time.Duration
}

// order makes a reader open its stream, after a delay, or read the next event.
type order struct {
	open    bool
	version uint64
	initial bool
	delay   time.Duration
}

// report is the result of an order.
type report struct {
	cell  int
	order order
	event *splice.Event
	err   error
}

func (r *run) start(ctx context.Context) {
	for i := range r.readers {
		if r.Merger.cells[i].absent || r.Merger.cells[i].done() {
			r.readers[i].asked = true
			continue
		}
		r.readers[i].orders = make(chan order, 1)
		r.wait.Go(func() { r.read(ctx, i) })
	}
}

// read executes the orders for a cell.
func (r *run) read(ctx context.Context, i int) {
	var stream openStream
	defer stream.close()
	for {
		var o order
		select {
		case o = <-r.readers[i].orders:
		case <-ctx.Done():
			return
		}
		result := report{cell: i, order: o}
		if o.open {
			stream.close()
			if !r.sleep(ctx, o.delay) {
				return
			}
			result.err = stream.open(ctx, r.Open, i, o)
		} else {
			result.event, result.err = stream.Next()
		}
		select {
		case r.reports <- result:
		case <-ctx.Done():
			return
		}
	}
}

// openStream is a stream with the function that ends it.
type openStream struct {
	Stream
	cancel context.CancelFunc
}

func (s *openStream) open(ctx context.Context, open func(context.Context, int, uint64, bool) (Stream, error), i int, o order) (err error) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.Stream, err = open(ctx, i, o.version, o.initial)
	return err
}

func (s *openStream) close() {
	if s.cancel != nil {
		s.cancel()
	}
}

func (r *run) sleep(ctx context.Context, delay time.Duration) bool {
	if delay == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-r.Clock.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// loop runs the watch.
func (r *run) loop(ctx context.Context) error {
	ticker := r.Clock.NewTicker(BookmarkInterval / 4)
	defer ticker.Stop()
	var timeout <-chan time.Time
	if r.Timeout > 0 {
		timer := r.Clock.NewTimer(r.Timeout)
		defer timer.Stop()
		timeout = timer.C()
	}
	for !r.Merger.Ended() {
		if err := r.order(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timeout:
			return r.send(r.Merger.Last(r.Clock.Now()))
		case <-r.End:
			return r.send(r.Merger.Last(r.Clock.Now()))
		case <-ticker.C():
			if err := r.send(r.Merger.Tick(r.Clock.Now())); err != nil {
				return err
			}
		case result := <-r.reports:
			if err := r.take(ctx, result); err != nil {
				return err
			}
		}
		if r.Leave != nil && r.Merger.Settled() && r.Leave(r.Merger.Position()) {
			return nil
		}
	}
	return nil
}

// order gives every idle reader the order that the merger wants.
func (r *run) order() error {
	asked := true
	for i := range r.readers {
		reader := &r.readers[i]
		asked = asked && reader.asked
		if reader.busy || reader.orders == nil || !r.Merger.MayOpen(i) {
			continue
		}
		if reader.open {
			if r.Merger.Wants(i) {
				reader.busy = true
				reader.orders <- order{}
			}
			continue
		}
		version, resumable := r.Merger.Reopen(i)
		if reader.asked && !resumable {
			return fmt.Errorf("merging watches: the stream of cell %d ended within its initial events", i)
		}
		reader.busy = true
		reader.orders <- order{open: true, version: version, initial: !resumable, delay: reader.delay}
	}
	if asked {
		r.begin()
	}
	return nil
}

func (r *run) begin() {
	if !r.begun && r.Begin != nil {
		r.Begin()
	}
	r.begun = true
}

// take handles a report.
func (r *run) take(ctx context.Context, result report) error {
	reader := &r.readers[result.cell]
	reader.busy = false
	switch {
	case result.order.open && result.err == nil:
		reader.open, reader.asked = true, true
		return nil
	case result.order.open:
		return r.notOpened(ctx, result)
	case result.err != nil:
		klog.FromContext(ctx).V(4).Info("reopening the watch of a cell after its stream ended", "cell", result.cell, "reason", result.err)
		reader.open = false
		reader.backOff()
		return nil
	default:
		reader.delay = 0
		return r.send(r.Merger.Offer(result.cell, result.event, r.Clock.Now()))
	}
}

// notOpened handles a cell that cannot be watched.
func (r *run) notOpened(ctx context.Context, result report) error {
	reader := &r.readers[result.cell]
	switch {
	case errors.Is(result.err, ErrExpired):
		return r.send(r.Merger.Expire())
	case errors.Is(result.err, ErrUnavailable) && !result.order.initial:
		klog.FromContext(ctx).V(2).Info("cannot watch a cell; its events are delayed", "cell", result.cell, "reason", result.err)
		reader.asked = true
		reader.backOff()
		return nil
	default:
		return fmt.Errorf("watching cell %d: %w", result.cell, result.err)
	}
}

// backOff doubles the delay before the next attempt.
func (r *reader) backOff() { r.delay = min(max(2*r.delay, firstDelay), maxDelay) }

// send sends events, if there are any.
func (r *run) send(events []Output, err error) error {
	if sendErr := r.sendAll(events); sendErr != nil {
		return sendErr
	}
	return err
}

func (r *run) sendAll(events []Output) error {
	if len(events) == 0 {
		return nil
	}
	r.begin()
	if err := r.Send(events); err != nil {
		return fmt.Errorf("sending watch events: %w", err)
	}
	return nil
}
