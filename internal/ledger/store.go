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

// Options say on whose behalf a Store promises.
type Options struct {
	// Hub leads to the hub.
	Hub *rest.Config
	// Holder is the cell.
	Holder string
	// Expiry is how long a promise lasts if its pods never run; 0 means ten minutes.
	Expiry time.Duration
	// RequestTimeout bounds how long the hub may take to answer before it counts as away; 0 means three seconds.
	RequestTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Store follows the ledgers of all clusters on a hub and makes promises there. It is safe for concurrent use.
type Store struct {
	options     Options
	client      rest.Interface
	subscribers []func(cluster string)
	synced      chan struct{}

	mu      sync.Mutex
	desks   map[string]*desk
	seen    map[string]bool // in the list that is going on
	isReady bool
	away    time.Time // since when the hub does not answer
}

// NewStore prepares a store; Run makes it work.
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
	return &Store{options: options, client: client, synced: make(chan struct{}), desks: map[string]*desk{}}, nil
}

// Subscribe has a function called when a cluster may have more room than before. It must be quick, and all
// subscriptions come before Run.
func (s *Store) Subscribe(f func(cluster string)) { s.subscribers = append(s.subscribers, f) }

// Synced is closed when all ledgers have been seen once.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Run follows the ledgers until the context ends, and brings what was promised in the hub's absence to it.
func (s *Store) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		logger := klog.FromContext(ctx)
		fleet.Follow(ctx, sourceOf(s.client, resourceName, func() runtime.Object { return &cellplanev1alpha1.ClusterLedgerList{} }), s, func(err error) { logger.V(1).Info("cannot follow the ledgers, trying again", "err", err) })
	})
	both.Go(func() { s.reconcile(ctx) })
	both.Wait()
}

// Estimators tell how many more of a pod clusters have room for, promises subtracted: with all that could grow, and
// how much of that is growth. Without a pod the requirements of the binding count. Both answer schedule.Unknown for a
// cluster without a ledger. They serve one decision.
func (s *Store) Estimators(pod *simulate.Pod) (room, growth schedule.Estimator) {
	return Estimators(s.Account, pod)
}

// Account returns what is known of a cluster, nil if nothing is.
func (s *Store) Account(cluster string) *Account {
	d := s.desk(cluster, false)
	if d == nil {
		return nil
	}
	return d.account(s)
}

// Reserve makes all the promises that a decision needs, or none. The error is a *Refusal if a cluster has no room for
// them any more, and the decision must be made anew. It returns when the hub has the promises, or, if the hub cannot be
// reached, when they are kept here.
func (s *Store) Reserve(ctx context.Context, claims []Claim) error {
	byCluster := map[string][]Claim{}
	for i := range claims {
		byCluster[claims[i].Cluster] = append(byCluster[claims[i].Cluster], claims[i])
	}
	names := slices.Sorted(maps.Keys(byCluster))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = s.desk(name, true).submit(ctx, s, byCluster[name]) })
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
			s.desk(name, true).leave(s, undo(byCluster[name]))
		}
	}
	return failed
}

// undo returns the claims that give back what others took.
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

// Release gives back all that is promised to a workload in a cluster, without waiting for the hub. An empty cluster
// means all of them.
func (s *Store) Release(workload cellplanev1alpha1.WorkloadReference, cluster string) {
	for _, name := range s.holding(workload, cluster) {
		s.desk(name, true).leave(s, []Claim{{Cluster: name, Workload: workload, More: -1 << 30}})
	}
}

// holding returns the clusters where something is promised to a workload.
func (s *Store) holding(workload cellplanev1alpha1.WorkloadReference, cluster string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, d := range s.desks {
		if (cluster == "" || name == cluster) && d.promised(&Claim{Workload: workload}) {
			names = append(names, name)
		}
	}
	return names
}

// Away tells since when the hub has not answered, zero if it does.
func (s *Store) Away() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// noteHub takes note of whether the hub answers.
func (s *Store) noteHub(answers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case answers:
		s.away = time.Time{}
	case s.away.IsZero():
		s.away = s.options.Now()
	}
}

func (s *Store) desk(cluster string, make bool) *desk {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.desks[cluster]
	if d == nil && make {
		d = &desk{cluster: cluster}
		s.desks[cluster] = d
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
	s.learn(s.desk(l.Name, true), l)
}

// learn takes over a ledger, be it told by the watch or by the answer to a write: whichever comes second is no news.
func (s *Store) learn(d *desk, l *cellplanev1alpha1.ClusterLedger) {
	for _, fault := range append(sift(l), unreadable(l)...) {
		klog.Background().Error(nil, "Not counting what makes no sense in the ledger of a cluster; the hub manager will remove it", "cluster", l.Name, "fault", fault)
	}
	if d.learn(l) {
		s.announce(l.Name)
	}
}

// Unset implements fleet.Sink.
func (s *Store) Unset(obj runtime.Object) {
	if l, ok := obj.(*cellplanev1alpha1.ClusterLedger); ok {
		s.desk(l.Name, true).forget()
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
		for name, d := range s.desks {
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
