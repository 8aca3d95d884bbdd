package clustercache

import (
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultHistory is the default of Options.History.
const DefaultHistory = 1 << 16

// Options are the options of a Store. All but Kind have useful zero values.
type Options struct {
	// Kind is the kind of objects in the Store.
	Kind Kind
	// Incarnation is the base of the Store's versions; the default is NewIncarnation(time.Now(), "").
	Incarnation Incarnation
	// KeepManagedFields keeps metadata.managedFields, which are otherwise dropped.
	KeepManagedFields bool
	// KeepLastApplied keeps the last-applied annotation of kubectl apply, which is otherwise dropped.
	KeepLastApplied bool
	// History is the number of events from which watches and pages can continue. The default is DefaultHistory.
	History int
	// PinnedHistory bounds the events that are kept while a list or the initial events of a watch are read. A slower reader gets 410. The
	// default is 1 048 576.
	PinnedHistory int
	// TrainingSamples is the number of objects to train a compression dictionary on. The default is 1 000.
	TrainingSamples int
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

func (o *Options) complete() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Incarnation == (Incarnation{}) {
		o.Incarnation = NewIncarnation(o.Now(), "")
	}
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	if o.PinnedHistory <= 0 {
		o.PinnedHistory = 1 << 20
	}
	o.PinnedHistory = max(o.PinnedHistory, o.History)
	if o.TrainingSamples <= 0 {
		o.TrainingSamples = 1000
	}
}

// Filter selects objects.
type Filter struct {
	// Namespace selects one namespace, unless empty.
	Namespace string
	// Labels selects by labels; nil selects all. Every object also has the virtual label cellplane.io/cluster.
	Labels labels.Selector
	// Fields selects by the fields of the Kind; nil selects all.
	Fields fields.Selector
	// Owner selects objects whose controlling owner has this UID, unless empty.
	Owner string
}

// ListOptions are the options of a list.
type ListOptions struct {
	Filter
	// Limit is the largest number of objects to return; 0 means all.
	Limit int
	// Continue is the token of the previous page, or empty. All pages show the same version.
	Continue string
	// Version is the exact version to show, which must be in the history; 0 means the current one. It must be 0 with Continue.
	Version uint64
}

// WatchOptions are the options of a watch.
type WatchOptions struct {
	Filter
	// From is the version to continue after; 0 starts with the current state as initial events.
	From uint64
	// Contested asks for events on names that several members have, or had recently. Such an event means that the name has to be looked up
	// again, because this or another share of the members may now show another object. Only namespace and name are matched.
	Contested bool
	// Bookmarks is the interval of bookmarks in an idle watch; 0 means only the one after the initial events.
	Bookmarks time.Duration
}
