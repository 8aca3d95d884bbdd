package clustercache

import (
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultHistory is how many events of a kind watches and pages can continue from, unless somebody says otherwise.
const DefaultHistory = 1 << 16

// Options are the options of a Store. All but Kind have useful zero values.
type Options struct {
	// Kind is what the Store holds.
	Kind Kind
	// Incarnation begins the Store's versions; that of the zero value is NewIncarnation(time.Now(), "").
	Incarnation Incarnation
	// KeepManagedFields keeps metadata.managedFields, which are dropped otherwise.
	KeepManagedFields bool
	// KeepLastApplied keeps the annotation of kubectl apply, which is dropped otherwise.
	KeepLastApplied bool
	// History is how many events stay for watches and pages to continue from. The default is DefaultHistory.
	History int
	// PinnedHistory is how many events stay at most while a list or the initial events of a watch are being read. One that takes longer
	// is cut off. The default is 1 048 576.
	PinnedHistory int
	// TrainingSamples is how many objects a compression dictionary is made of. The default is 1 000.
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

// Filter says which objects are asked for.
type Filter struct {
	// Namespace limits it to one namespace, unless empty.
	Namespace string
	// Labels limits it to objects with such labels, besides which every object has the virtual label cellplane.io/cluster; nil selects all.
	Labels labels.Selector
	// Fields limits it to objects with such fields; nil selects all. Only the fields of the Kind may be asked for.
	Fields fields.Selector
	// Owner limits it to objects whose controlling owner has this UID, unless empty.
	Owner string
}

// ListOptions say what to list.
type ListOptions struct {
	Filter
	// Limit is how many objects to return at most; 0 means all.
	Limit int
	// Continue is the token of the page before, or empty. Such a page shows the same version as the one before.
	Continue string
	// Version is the exact version to show, if it is still in the history; 0 means the current one. It must be 0 with Continue.
	Version uint64
}

// WatchOptions say what to watch.
type WatchOptions struct {
	Filter
	// From is the version to continue after; 0 begins with the current state as initial events.
	From uint64
	// Contested asks for another kind of event when an object comes or goes whose name others have in other members, or had until a moment ago: one
	// that says that the name is to be looked up again. Besides the namespace and name it does not matter what is selected. Who shows a share of the
	// members learns so that it, or another share, shows something else now.
	Contested bool
	// Bookmarks is how often to send a bookmark when nothing else happens; 0 means never but for the end of the initial events.
	Bookmarks time.Duration
}
