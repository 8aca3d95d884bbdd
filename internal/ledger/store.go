package ledger

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
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
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Store follows the ledgers of all clusters on a hub and makes promises there. It is safe for concurrent use.
type Store struct {
	options Options
}

// NewStore prepares a store; Run makes it work.
func NewStore(options Options) (*Store, error) {
	return &Store{options: options}, nil
}

// Subscribe has a function called when a cluster may have more room than before. It must be quick, and all
// subscriptions come before Run.
func (s *Store) Subscribe(func(cluster string)) {}

// Run follows the ledgers until the context ends.
func (s *Store) Run(ctx context.Context) { <-ctx.Done() }

// Estimators tell how many more of a pod clusters have room for, promises subtracted: with all that could grow, and
// how much of that is growth. Without a pod the requirements of the binding count. Both answer schedule.Unknown for a
// cluster without a ledger.
func (s *Store) Estimators(*simulate.Pod) (room, growth schedule.Estimator) {
	return nil, nil
}

// Reserve makes all the promises that a decision needs, or none. The error is a *Refusal if a cluster has no room for
// them any more, and the decision must be made anew. It returns when the hub has the promises, or, if the hub cannot be
// reached, when they are kept here.
func (s *Store) Reserve(context.Context, []Claim) error { return nil }

// Release gives back all that is promised to a workload in a cluster, without waiting for the hub. An empty cluster
// means all of them.
func (s *Store) Release(cellplanev1alpha1.WorkloadReference, string) {}

// Away tells since when the hub has not answered, zero if it does.
func (s *Store) Away() time.Time { return time.Time{} }
