package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Successes is which events about successes are written. Failures are always written.
type Successes string

// Which events about successes are written.
const (
	// SuccessesSome writes that a policy was applied, a binding placed or a copy evicted, and successes after a failure. It is the default.
	SuccessesSome Successes = "some"
	// SuccessesAll writes all that Karmada writes. The same success of the same object is a series.
	SuccessesAll Successes = "all"
	// SuccessesOff writes none.
	SuccessesOff Successes = "off"
)

// ParseSuccesses checks the value of a flag. Empty is the default.
func ParseSuccesses(text string) (Successes, error) {
	known := []Successes{SuccessesSome, SuccessesAll, SuccessesOff}
	if text == "" {
		return SuccessesSome, nil
	}
	if slices.Contains(known, Successes(text)) {
		return Successes(text), nil
	}
	return "", fmt.Errorf("success events can be %s, %s or %s, not %q", known[0], known[1], known[2], text)
}

// waiting is the number of series that may wait to be written.
const waiting = 10000

// seriesKey identifies a series: the same success of the same object.
type seriesKey struct {
	uid    types.UID
	reason string
}

// series is a success that happened count times since the last write.
type series struct {
	about       *corev1.ObjectReference
	message     string
	count       int32
	first, last time.Time
}

// written is the event of a series in the cell, with its count.
type written struct {
	namespace, name string
	count           int32
}

// successes holds the series that wait to be written, oldest first.
type successes struct {
	now func() time.Time

	mu      sync.Mutex
	waiting map[seriesKey]*series
	order   []seriesKey
	events  *lru.Cache    // seriesKey → written
	added   chan struct{} // has an entry if something may be waiting
}

func newSuccesses() *successes {
	return &successes{now: time.Now, waiting: map[seriesKey]*series{}, events: lru.New(remembered), added: make(chan struct{}, 1)}
}

// add counts a success. If too many wait, it is dropped.
func (s *successes) add(about *corev1.ObjectReference, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, now := seriesKey{about.UID, reason}, s.now()
	if in := s.waiting[key]; in != nil {
		in.count, in.last, in.message, in.about = in.count+1, now, message, about
		return
	}
	if len(s.waiting) >= waiting {
		return
	}
	s.waiting[key] = &series{about: about, message: message, count: 1, first: now, last: now}
	s.order = append(s.order, key)
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// next removes and returns the oldest series, nil if there is none.
func (s *successes) next() (seriesKey, *series) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return seriesKey{}, nil
	}
	key := s.order[0]
	s.order = s.order[1:]
	in := s.waiting[key]
	delete(s.waiting, key)
	return key, in
}

// store is where events are written.
type store interface {
	create(ctx context.Context, event *corev1.Event) error
	patch(ctx context.Context, namespace, name string, patch []byte) error
}

// run writes the series until the context ends.
func (s *successes) run(ctx context.Context, to store) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.added:
		}
		for key, in := s.next(); in != nil && ctx.Err() == nil; key, in = s.next() {
			if event, err := s.write(ctx, key, in, to); err != nil && ctx.Err() == nil {
				report(ctx, event, err)
			}
		}
	}
}

// write raises the count of the event of a series, or creates it.
func (s *successes) write(ctx context.Context, key seriesKey, in *series, to store) (*corev1.Event, error) {
	event := newEvent(in.about, corev1.EventTypeNormal, key.reason, in.message, in.first)
	event.Count, event.LastTimestamp = in.count, metav1.NewTime(in.last)
	s.mu.Lock()
	known, ok := s.events.Get(key)
	s.mu.Unlock()
	if ok {
		there := known.(written)
		there.count += in.count
		patch, err := json.Marshal(map[string]any{
			"count": there.count, "lastTimestamp": event.LastTimestamp, "message": event.Message,
			"series":         map[string]any{"count": there.count, "lastObservedTime": metav1.NewMicroTime(in.last)},
			"involvedObject": map[string]any{"resourceVersion": in.about.ResourceVersion},
		})
		if err != nil {
			return event, err
		}
		if err := to.patch(ctx, there.namespace, there.name, patch); err == nil {
			s.remember(key, there)
			return event, nil
		}
		// It has expired, most likely: begin a new series.
	}
	if err := to.create(ctx, event); err != nil {
		return event, err
	}
	s.remember(key, written{event.Namespace, event.Name, event.Count})
	return event, nil
}

func (s *successes) remember(key seriesKey, event written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Add(key, event)
}

// newEvent returns an event about an object.
func newEvent(about *corev1.ObjectReference, severity, reason, message string, at time.Time) *corev1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage-3], "") + "..."
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: about.Name + "." + strconv.FormatInt(at.UnixNano(), 16)},
		InvolvedObject: *about, Type: severity, Reason: reason, Message: message, Count: 1,
		Source:         corev1.EventSource{Component: Component},
		FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
		ReportingController: Component,
	}
}
