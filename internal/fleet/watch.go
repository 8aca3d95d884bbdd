package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// Source is a collection that can be listed and watched.
type Source struct {
	List  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Labelled returns the source restricted to a label selector.
func (s Source) Labelled(selector string) Source {
	return Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return s.List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return s.Watch(ctx, options)
		},
	}
}

// Sink receives the state of a collection.
type Sink interface {
	// Set stores the current state of an object.
	Set(obj runtime.Object)
	// Unset removes an object. It gets the object's last state.
	Unset(obj runtime.Object)
	// Relist starts a relist: every existing object will be Set. The returned function ends it, with the collection's
	// resourceVersion: objects that were not Set and are not newer are gone.
	Relist() (done func(resourceVersion string))
}

// pageSize bounds how many whole objects are in memory at once during a list.
const pageSize = 250

// After a failure the pause doubles from firstPause to longestPause. It stays short: the server may return any moment,
// and one request every two seconds is cheap.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// A list is expensive. If each watch fails because its position has expired, for example because listing takes longer
// than the server keeps its history, the pause before the next list doubles up to longestRelistPause. It starts from
// firstPause again after a watch that lived for steadyWatch.
const (
	longestRelistPause = 30 * time.Second
	steadyWatch        = time.Minute
)

// EachReason returns a function that calls report with an error unless it reads like the last one: what is retried for ever mostly fails in the same
// way. It is for one Watch.
func EachReason(report func(error)) func(error) {
	var last string
	return func(err error) {
		if text := err.Error(); text != last {
			last = text
			report(err)
		}
	}
}

// relistBackoff returns the pauses before lists that follow an expired watch.
func relistBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: math.MaxInt, Cap: longestRelistPause}
}

// Watch keeps a sink up to date with a source until the context ends. It calls failed, which may be nil, with each
// failure.
//
// It is not a client-go Reflector because a Reflector collects all pages of a list before it hands them to its store.
// Here a sink gets each page at once, so that a sink that condenses objects never has all of them in memory.
func Watch(ctx context.Context, source Source, sink Sink, failed func(error)) {
	position, pause, relist := "", firstPause, relistBackoff()
	for ctx.Err() == nil {
		listing, began := position == "", time.Now()
		next, err := advance(ctx, source, sink, position)
		if !listing && time.Since(began) >= steadyWatch {
			relist = relistBackoff()
		}
		switch {
		case err == nil:
			position, pause = next, firstPause
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			position = ""
			sleep(ctx, relist.Step())
		case ctx.Err() != nil:
			return
		default:
			if failed != nil {
				failed(err)
			}
			position = next
			sleep(ctx, pause/2+rand.N(pause)) // jitter keeps many watchers apart
			pause = min(2*pause, longestPause)
		}
	}
}

// advance lists if there is no position, and else watches from it. It returns the position it reached.
func advance(ctx context.Context, source Source, sink Sink, position string) (string, error) {
	if position == "" {
		return list(ctx, source, sink)
	}
	return follow(ctx, source, sink, position)
}

func list(ctx context.Context, source Source, sink Sink) (string, error) {
	done := sink.Relist()
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := source.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing: %w", err)
		}
		if err := meta.EachListItem(page, func(obj runtime.Object) error { sink.Set(obj); return nil }); err != nil {
			return "", fmt.Errorf("reading a list: %w", err)
		}
		described, err := meta.ListAccessor(page)
		if err != nil {
			return "", fmt.Errorf("reading a list: %w", err)
		}
		if options.Continue = described.GetContinue(); options.Continue == "" {
			done(described.GetResourceVersion())
			return described.GetResourceVersion(), nil
		}
	}
}

// errClosedAtOnce reports a watch that was closed at once without an event. It is an error so that the next watch is delayed.
var errClosedAtOnce = errors.New("the watch was closed at once")

func follow(ctx context.Context, source Source, sink Sink, position string) (string, error) {
	// Random timeouts keep watches from being reopened all at once.
	seconds := int64(300 + rand.IntN(300))
	began := time.Now()
	watcher, err := source.Watch(ctx, metav1.ListOptions{ResourceVersion: position, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return position, fmt.Errorf("watching: %w", err)
	}
	defer watcher.Stop()
	events := 0
	for event := range watcher.ResultChan() {
		events++
		if event.Type == watch.Error {
			return position, fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
		}
		obj, err := meta.Accessor(event.Object)
		if err != nil {
			return position, fmt.Errorf("reading a watch event: %w", err)
		}
		_, known := event.Object.(*passed)
		switch {
		case known:
		case event.Type == watch.Added, event.Type == watch.Modified:
			sink.Set(event.Object)
		case event.Type == watch.Deleted:
			sink.Unset(event.Object)
		}
		position = obj.GetResourceVersion()
	}
	if events == 0 && time.Since(began) < time.Second {
		return position, errClosedAtOnce
	}
	return position, nil
}

// sleep waits, or returns when the context ends.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
