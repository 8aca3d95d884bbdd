package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Options configure a Store.
type Options struct {
	// Hub is the address of the hub.
	Hub *rest.Config
	// Holder is the name of the cell.
	Holder string
	// Expiry is the lifetime of a reservation whose pods never run; 0 means ten minutes.
	Expiry time.Duration
	// RequestTimeout bounds requests to the hub, after which it counts as unreachable; 0 means three seconds.
	RequestTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Store watches the ledgers of all clusters on a hub and makes reservations. It is safe for concurrent use.
type Store struct {
	options     Options
	client      rest.Interface
	subscribers []func(cluster string)
	synced      chan struct{}

	mu      sync.Mutex
	writers map[string]*writer
	seen    map[string]bool // names of the list in progress
	isReady bool
	away    time.Time // since when the hub is unreachable
}

// NewStore returns a store. It must be started with Run.
func NewStore(options Options) (*Store, error) {
	options.Expiry = cmp.Or(options.Expiry, 10*time.Minute)
	options.RequestTimeout = cmp.Or(options.RequestTimeout, 3*time.Second)
	if options.Now == nil {
		options.Now = time.Now
	}
	client, err := ledgerClient(options.Hub)
	if err != nil {
		return nil, fmt.Errorf("connecting to the ledgers on the hub: %w", err)
	}
	return &Store{options: options, client: client, synced: make(chan struct{}), writers: map[string]*writer{}}, nil
}

// Subscribe registers a function that is called when a cluster may have more free capacity. It must not block.
// Subscribe before Run.
func (s *Store) Subscribe(f func(cluster string)) { s.subscribers = append(s.subscribers, f) }

// Synced is closed when all ledgers have been read once.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Run watches the ledgers until the context ends. It also writes reservations made while the hub was unreachable.
func (s *Store) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		logger := klog.FromContext(ctx)
		fleet.Watch(ctx, sourceOf(s.client, resourceName, func() runtime.Object { return &cellplanev1alpha1.ClusterLedgerList{} }), s, func(err error) { logger.V(1).Info("cannot watch the ledgers, retrying", "err", err) })
	})
	both.Go(func() { s.reconnectLoop(ctx) })
	both.Wait()
}

// Estimators returns two estimators for one decision: the free capacity including growth, and the part of it that
// is growth. A nil pod uses the requirements of the binding. Both return schedule.Unknown for a cluster without a
// ledger.
func (s *Store) Estimators(pod *simulate.Pod) (free, growth schedule.Estimator) {
	return Estimators(s.Account, pod)
}

// Account returns the account of a cluster, or nil.
func (s *Store) Account(cluster string) *Account {
	d := s.writer(cluster, false)
	if d == nil {
		return nil
	}
	return d.account(s)
}

// Reserve makes all reservations of a decision, or none. It returns a *Refusal if a cluster has no capacity for
// them any more; then the decision must be repeated. It returns after the hub stored the reservations or, if the
// hub is unreachable, after they are stored in memory.
func (s *Store) Reserve(ctx context.Context, claims []Claim) error {
	byCluster := map[string][]Claim{}
	for i := range claims {
		byCluster[claims[i].Cluster] = append(byCluster[claims[i].Cluster], claims[i])
	}
	names := slices.Sorted(maps.Keys(byCluster))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = s.writer(name, true).submit(ctx, s, byCluster[name]) })
	}
	all.Wait()
	var failed error
	for _, err := range errs {
		failed = cmp.Or(failed, err)
	}
	if failed == nil {
		return nil
	}
	for i, name := range names {
		if errs[i] == nil {
			s.writer(name, true).submitAsync(s, undo(byCluster[name]))
		}
	}
	return failed
}

// undo returns the claims that revert others.
func undo(claims []Claim) []Claim {
	var opposite []Claim
	for _, claim := range claims {
		if claim.More > 0 {
			claim.Total, claim.More = claim.Total-claim.More, -claim.More
			opposite = append(opposite, claim)
		}
	}
	return opposite
}

// Release releases all reservations of a workload in a cluster without waiting for the hub. An empty cluster means
// all clusters.
func (s *Store) Release(workload cellplanev1alpha1.WorkloadReference, cluster string) {
	for _, name := range s.holding(workload, cluster) {
		s.writer(name, true).submitAsync(s, []Claim{{Cluster: name, Workload: workload, More: -1 << 30}})
	}
}

// holding returns the clusters with reservations of a workload.
func (s *Store) holding(workload cellplanev1alpha1.WorkloadReference, cluster string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, d := range s.writers {
		if (cluster == "" || name == cluster) && d.reserved(&Claim{Workload: workload}) {
			names = append(names, name)
		}
	}
	return names
}

// Away returns since when the hub is unreachable; zero if it is reachable.
func (s *Store) Away() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// setReachable records whether the hub is reachable.
func (s *Store) setReachable(answers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case answers:
		s.away = time.Time{}
	case s.away.IsZero():
		s.away = s.options.Now()
	}
}

func (s *Store) writer(cluster string, make bool) *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.writers[cluster]
	if d == nil && make {
		d = &writer{cluster: cluster}
		s.writers[cluster] = d
	}
	return d
}

// Set implements fleet.Sink.
func (s *Store) Set(obj runtime.Object) {
	l, ok := obj.(*cellplanev1alpha1.ClusterLedger)
	if !ok {
		return
	}
	l.ManagedFields = nil
	s.mu.Lock()
	if s.seen != nil {
		s.seen[l.Name] = true
	}
	s.mu.Unlock()
	s.learn(s.writer(l.Name, true), l)
}

// learn stores a ledger from the watch or from the response to a write. The second of the two is ignored.
func (s *Store) learn(d *writer, l *cellplanev1alpha1.ClusterLedger) {
	for _, fault := range append(dropInvalid(l), invalidNodes(l)...) {
		klog.Background().Error(nil, "ignoring invalid entries in a cluster's ledger; the hub manager will remove them", "cluster", l.Name, "fault", fault)
	}
	if d.learn(l) {
		s.announce(l.Name)
	}
}

// Unset implements fleet.Sink.
func (s *Store) Unset(obj runtime.Object) {
	if l, ok := obj.(*cellplanev1alpha1.ClusterLedger); ok {
		s.writer(l.Name, true).forget()
	}
}

// Relist implements fleet.Sink.
func (s *Store) Relist() func(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = map[string]bool{}
	return func(string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, d := range s.writers {
			if !s.seen[name] {
				d.forget()
			}
		}
		s.seen = nil
		if !s.isReady {
			s.isReady = true
			close(s.synced)
		}
	}
}

func (s *Store) announce(cluster string) {
	for _, subscriber := range s.subscribers {
		subscriber(cluster)
	}
}
