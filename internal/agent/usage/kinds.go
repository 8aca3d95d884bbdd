package usage

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lookupTime is how long counts what the cluster says about a kind. Discovery is expensive, most of all if there is no such kind.
const lookupTime = time.Minute

// kinds finds the resources of kinds. It asks the cluster once for each, and does not wait for longer than a context: discovery has none.
type kinds struct {
	mapper meta.RESTMapper

	mu      sync.Mutex
	lookups map[schema.GroupKind]*lookup
}

// lookup is the search for a kind.
type lookup struct {
	until    time.Time
	done     chan struct{}
	resource schema.GroupResource
	err      error
}

// ended reports whether the search has ended, and counts no more.
func (l *lookup) ended(now time.Time) bool {
	select {
	case <-l.done:
		return now.After(l.until)
	default:
		return false
	}
}

// resource returns the resource of a kind.
func (k *kinds) resource(ctx context.Context, kind schema.GroupKind) (schema.GroupResource, error) {
	if ctx.Err() != nil {
		return schema.GroupResource{}, errNoAnswer
	}
	l := k.lookup(kind)
	select {
	case <-l.done:
		return l.resource, l.err
	case <-ctx.Done():
		return schema.GroupResource{}, errNoAnswer
	}
}

// lookup returns the search for a kind, which may have to begin.
func (k *kinds) lookup(kind schema.GroupKind) *lookup {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if l := k.lookups[kind]; l != nil && !l.ended(now) {
		return l
	}
	if k.lookups == nil {
		k.lookups = map[schema.GroupKind]*lookup{}
	}
	maps.DeleteFunc(k.lookups, func(_ schema.GroupKind, l *lookup) bool { return l.ended(now) })
	l := &lookup{until: now.Add(lookupTime), done: make(chan struct{})}
	k.lookups[kind] = l
	go func() {
		defer close(l.done)
		mapping, err := k.mapper.RESTMapping(kind)
		switch {
		case err == nil:
			l.resource = mapping.Resource.GroupResource()
		case meta.IsNoMatchError(err):
			l.err = err
		default:
			l.err, l.until = err, now.Add(answerTime) // the next round may have more luck
		}
	}()
	return l
}
