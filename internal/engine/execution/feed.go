package execution

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Feed is a watch of objects in a member that no Work describes.
type Feed struct {
	Kind schema.GroupVersionKind
	// Selector of labels.
	Selector string
	// Sink returns the sink of a new watch. Each connection to the member has its own watch, which begins with a list.
	Sink func() fleet.Sink
}

// Follow watches objects in a member from now on, over all changes of the connection.
func (e *Controller) Follow(cluster string, feed Feed) {
	q := e.queueOf(cluster)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.feeds = append(q.feeds, feed)
	if q.member != nil {
		feed.start(q.member)
	}
}

// start watches through a connection until it ends.
func (f Feed) start(member *fleet.Member) {
	sink := f.Sink()
	go func() {
		if served, ok := find(member.Context(), member, f.Kind); ok {
			member.Watch(member.Context(), served.Resource, f.Selector, sink)
		}
	}()
}
