package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Source is a collection that can be listed and watched.
type Source struct {
	List  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Labelled returns the source of what a label selector picks.
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

// Sink is told the state of a collection.
type Sink interface {
	// Set says that an object is there, as it is now.
	Set(obj runtime.Object)
	// Unset says that an object is gone; it is passed as it was last.
	Unset(obj runtime.Object)
	// Relist says that everything there is will be Set. The function is called when that is done, with the
	// resourceVersion of the collection: what was not Set and is not newer is gone.
	Relist() (done func(resourceVersion string))
}

// pageSize bounds how many objects are held in full at once while a collection is listed.
const pageSize = 250

// The pause after a failure doubles from the first to the longest. It stays short: whoever is followed may come back
// any moment, and one request every two seconds harms nobody.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// Follow keeps a sink up to date with a source until the context ends. Unlike a reflector it lists in pages that are
// handed on one by one, so that a sink which condenses objects never sees them all in memory. Failures are passed to
// failed, which may be nil.
func Follow(ctx context.Context, source Source, sink Sink, failed func(error)) {
	position, pause := "", firstPause
	for ctx.Err() == nil {
		next, err := advance(ctx, source, sink, position)
		if err == nil {
			position, pause = next, firstPause
			continue
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			position = ""
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if failed != nil {
			failed(err)
		}
		position = next
		sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// advance lists when there is no position and watches from it otherwise. It returns how far it came.
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

// errSilent ends a watch that was closed without having said anything, lest it is reopened in a tight loop.
var errSilent = errors.New("the watch was closed at once")

func follow(ctx context.Context, source Source, sink Sink, position string) (string, error) {
	// Watches end at different times, so that they are not all reopened together.
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
		return position, errSilent
	}
	return position, nil
}

// sleep waits, a little longer or shorter than told so that many do not wake up at once.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause/2 + time.Duration(rand.Int64N(int64(pause))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
