package clustercache

import (
	"context"
	"io"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Store holds the objects of one kind of all members. Its methods may be called at any time from anywhere.
type Store struct{}

// New returns an empty Store.
func New(options Options) (*Store, error) { return nil, errDraft }

// Close gives the Store's memory back. Nothing may use the Store afterwards.
func (s *Store) Close() {}

// Version returns the version of the last event.
func (s *Store) Version() uint64 { return 0 }

// Expired returns a 410 error if a version is not of this Store, or too old to continue from.
func (s *Store) Expired(version uint64) error { return errDraft }

// Get returns an object. An empty cluster asks for the one that is shown, wherever it lives; with a cluster also a shadowed one is found.
// The error is a 404 if there is none.
func (s *Store) Get(cluster, namespace, name string) (Object, error) { return Object{}, errDraft }

// MemberVersion returns the member and the member's resourceVersion of the object that was shown with a version. It is not known any
// more after the object has changed and that change has left the history; a write based on such a version conflicts.
func (s *Store) MemberVersion(namespace, name string, version uint64) (cluster, memberVersion string, ok bool) {
	return "", "", false
}

// List begins a list. The caller must Close it.
func (s *Store) List(options ListOptions) (*List, error) { return nil, errDraft }

// Watch begins a watch. The caller must Close it.
func (s *Store) Watch(options WatchOptions) (*Watcher, error) { return nil, errDraft }

// Clusters returns the state of every member that has a feed, by name.
func (s *Store) Clusters() []ClusterState { return nil }

// Stats returns what the Store holds and costs.
func (s *Store) Stats() Stats { return Stats{} }

// ClusterState is the state of a member.
type ClusterState struct {
	// Name is the member's name.
	Name string
	// Objects counts its objects, shadowed ones included.
	Objects int
	// Shadowed counts those of them that are not shown, as another member has one of the same name.
	Shadowed int
	// Synced tells whether a list of it was complete once.
	Synced bool
	// Stale is since when it cannot be followed, or zero.
	Stale time.Time
}

// Stats say what a Store holds and costs.
type Stats struct {
	// Objects counts the objects, shadowed ones included.
	Objects int
	// Shadowed counts those that are not shown.
	Shadowed int
	// History counts the events that can be continued from.
	History int
	// EncodedBytes is the size of the objects, and CompressedBytes what it takes to hold them.
	EncodedBytes, CompressedBytes int64
	// ReservedBytes is the memory the Store has taken from the system, all in but for a few tables.
	ReservedBytes int64
	// Dictionaries counts the compression dictionaries in use.
	Dictionaries int
	// Watchers counts the watches, and CutWatchers those that were cut for being slow.
	Watchers, CutWatchers int
}

// Feed fills a Store with the objects of one member. It must not be used by two goroutines at once.
type Feed struct{}

// Feed returns the feed of a member. Feeds of different members do not wait for each other.
func (s *Store) Feed(cluster string) *Feed { return nil }

// Begin says that everything there is follows: what is not applied until End leaves then. It may be called again to start over.
func (f *Feed) Begin() {}

// Apply puts in an object: the encoded protobuf as it comes inside of the envelope (runtime.Unknown.Raw). The bytes are not kept. An
// object of the same UID and resourceVersion as before is no change.
func (f *Feed) Apply(raw []byte) error { return errDraft }

// ApplyObject puts in a decoded object.
func (f *Feed) ApplyObject(object runtime.Object) error { return errDraft }

// Delete takes out the object of a DELETED event, encoded like that of Apply. If another object of its name is there by now, that stays.
func (f *Feed) Delete(raw []byte) error { return errDraft }

// DeleteObject takes out an object whatever its UID. It is no error if there is none.
func (f *Feed) DeleteObject(namespace, name string) {}

// End says that everything was applied since Begin. The rest leaves; the member is synced and no longer stale.
func (f *Feed) End() {}

// MarkStale says since when the member cannot be followed. Watchers see nothing of it: the objects did not change. End and Fresh undo it.
func (f *Feed) MarkStale(since time.Time) {}

// Fresh says that the member is followed again and nothing was missed.
func (f *Feed) Fresh() {}

// Drop takes out all objects of the member and forgets it. The Feed may be used again afterwards, as if new.
func (f *Feed) Drop() {}

// List is a list under way: one version of the objects a Filter selects, in the order of their namespace and name.
type List struct{}

// Version returns the version that the list shows, the same on every page.
func (l *List) Version() uint64 { return 0 }

// Objects yields the objects once. What an Object refers to is valid until the next one; Clone keeps it. An error (410, when reading took so
// long that the version left the history) ends it.
func (l *List) Objects() iter.Seq2[Object, error] { return nil }

// Continue returns the token for the page after this one, or nothing if this is the last, and how many objects are left, which is known only
// without selectors. It must be called after Objects.
func (l *List) Continue() (token string, remaining *int64) { return "", nil }

// WriteProtobuf writes the list instead of yielding Objects: in the envelope, as an API server answers it. Nothing is decoded.
func (l *List) WriteProtobuf(w io.Writer) error { return errDraft }

// Close ends the list.
func (l *List) Close() {}

// Watcher is a watch under way.
type Watcher struct{}

// Next waits for the next event. The error is a 410 if the watcher is too slow, which ends it, or that of the context.
func (w *Watcher) Next(ctx context.Context) (*Event, error) { return nil, errDraft }

// Close ends the watch.
func (w *Watcher) Close() {}

// Event is an event of a watch. All watchers that see the same event share it: it must not be changed.
type Event struct {
	// Type is ADDED, MODIFIED, DELETED or BOOKMARK, as it concerns the watcher's selection.
	Type watch.EventType
	// Version is where a watch continues after the event. It is the resourceVersion of the Object, too.
	Version uint64
	// InitialEventsEnd marks the bookmark after the initial events.
	InitialEventsEnd bool
	// Object is the object after the event, or for DELETED as it was before. A bookmark has none.
	Object Object
}

// Encoded returns what encode writes. It is called once for an event and a format, whoever asks; initial events and bookmarks, which one
// watcher alone sees, are encoded each time.
func (e *Event) Encoded(format string, encode func(io.Writer) error) ([]byte, error) {
	return nil, errDraft
}
