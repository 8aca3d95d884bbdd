package storespace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
)

const (
	// interval is how often a store is looked at, and retryAfter is the time after which the Cells are listed again if that has failed.
	interval, retryAfter = 30 * time.Second, 2 * time.Second
	// askTimeout is how long a member may take to answer.
	askTimeout = 3 * time.Second
	// stepTimeout is how long a step may take. A defragmentation writes all that is in use anew.
	stepTimeout = 10 * time.Minute
	// history is how much of the past a compaction keeps: what API servers keep, too.
	history = 5 * time.Minute
	// settling is how long members may take to remove what a compaction gives up.
	settling = 3 * history
	// again is the shortest time between two defragmentations of a member, unless the etcd takes no writes.
	again = time.Hour
	// maxSteps bounds what is done to an etcd at once.
	maxSteps = 32
)

// Keeper looks after the etcds of all cells.
type Keeper struct {
	Hub    client.Client
	Events events.EventRecorder
	// Open returns the connection to the store of a cell. The keeper does not close it.
	Open func(ctx context.Context, cell string) (*cellstore.Store, error)
	// Term of the hub manager.
	Term cellstore.Term
	// TellOnly means that nothing is done to an etcd. Its condition is published nevertheless.
	TellOnly bool

	mu     sync.Mutex
	stores map[types.UID]*memory // by that of the Cell
	// scarce are the cells whose etcds need what is left of their quota for themselves.
	scarce map[string]bool
}

// memory is what is remembered of a store. One goroutine at a time uses it.
type memory struct {
	busy bool // guarded by that of the keeper
	// revisions are former ones of the store, the oldest first, of which the first is at least as old as history once they go back that far.
	revisions []revisionAt
	// compacted is the revision up to which the store was compacted, and compactedAt is when.
	compacted   int64
	compactedAt time.Time
	// defragmented is when the members were.
	defragmented map[uint64]time.Time
}

type revisionAt struct {
	revision int64
	time     time.Time
}

// Fullness returns why a cell has no room for copies of what other cells have; empty if it has, or if that is not known.
func (k *Keeper) Fullness(cell string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.scarce[cell] {
		return fmt.Sprintf("a member of its etcd has more than %.0f percent of the quota in use", scarce*100)
	}
	return ""
}

// noteFullness remembers whether a cell has room for copies. It has again only if all members say so.
func (k *Keeper) noteFullness(cell string, seen *view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.scarce == nil {
		k.scarce = map[string]bool{}
	}
	k.scarce[cell] = seen.scarce() || seen.problem != "" && k.scarce[cell]
}

// Run looks after the stores until the context ends or a hub manager with a higher term has taken over.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tending sync.WaitGroup
	defer tending.Wait()
	defer cancel()
	deposed := make(chan error, 1)
	for {
		pause := interval
		if err := k.tendAll(ctx, &tending, deposed); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("listing the cells whose stores are looked after failed, will retry", "err", err.Error())
			pause = retryAfter
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-deposed:
			return err
		case <-time.After(pause):
		}
	}
}

// tendAll begins to look after the stores of all cells, except for those for which that still goes on.
func (k *Keeper) tendAll(ctx context.Context, tending *sync.WaitGroup, deposed chan<- error) error {
	var cells cellplanev1alpha1.CellList
	if err := k.Hub.List(ctx, &cells); err != nil {
		return err
	}
	failed, err := k.failed(ctx)
	if err != nil {
		return err
	}
	k.remember(cells.Items)
	for i := range cells.Items {
		cell := &cells.Items[i]
		m := k.begin(cell)
		if m == nil {
			continue
		}
		tending.Go(func() {
			defer k.end(m)
			err := k.tend(ctx, cell, m, failed[cell.Name])
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, cellstore.ErrFenced):
				select {
				case deposed <- err:
				default: // another has told
				}
			default:
				klog.FromContext(ctx).Info("looking after the store of a cell failed, will retry", "cell", cell.Name, "err", err.Error())
			}
		})
	}
	return nil
}

// failed returns the cells that have failed. Nobody changes their stores.
func (k *Keeper) failed(ctx context.Context) (map[string]bool, error) {
	topology := &cellplanev1alpha1.CellTopology{}
	if err := k.Hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	failed := map[string]bool{}
	for i := range topology.Spec.Cells {
		failed[topology.Spec.Cells[i].Name] = topology.Spec.Cells[i].State == cellplanev1alpha1.CellStateFailed
	}
	return failed, nil
}

// remember makes a memory for each Cell, and drops those of Cells that are gone.
func (k *Keeper) remember(cells []cellplanev1alpha1.Cell) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stores, scarce := map[types.UID]*memory{}, map[string]bool{}
	for i := range cells {
		m := k.stores[cells[i].UID]
		if m == nil {
			m = newMemory()
		} else {
			scarce[cells[i].Name] = k.scarce[cells[i].Name]
		}
		stores[cells[i].UID] = m
	}
	k.stores, k.scarce = stores, scarce
}

func newMemory() *memory { return &memory{defragmented: map[uint64]time.Time{}} }

// begin returns the memory of a store, nil if somebody uses it.
func (k *Keeper) begin(cell *cellplanev1alpha1.Cell) *memory {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.stores[cell.UID]
	if m.busy {
		return nil
	}
	m.busy = true
	return m
}

func (k *Keeper) end(m *memory) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.busy = false
}

// tend looks at the store of a cell, publishes the condition, and does what has to be done.
func (k *Keeper) tend(ctx context.Context, cell *cellplanev1alpha1.Cell, m *memory, failed bool) error {
	if failed {
		return k.publish(ctx, cell, ofFailed())
	}
	store, err := k.Open(ctx, cell.Name)
	if err != nil {
		return errors.Join(err, k.publish(ctx, cell, unreadable()))
	}
	for range maxSteps {
		seen, err := m.look(ctx, store)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return errors.Join(err, k.publish(ctx, cell, unreadable()))
		}
		k.noteFullness(cell.Name, seen)
		if err := k.publish(ctx, cell, conditionOf(seen, k.TellOnly)); err != nil {
			return err
		}
		next := seen.next(m.past(len(seen.full) > 0, time.Now()))
		if next.action == nothing || k.TellOnly {
			return nil
		}
		if again, err := k.do(ctx, cell, store, seen, next, m); err != nil || !again {
			return err
		}
	}
	return nil
}

// note remembers the present revision of a store.
func (m *memory) note(revision int64, now time.Time) {
	if last := len(m.revisions) - 1; last >= 0 && revision < m.revisions[last].revision {
		m.revisions, m.compacted = nil, 0 // the store has been replaced
	}
	m.revisions = append(m.revisions, revisionAt{revision, now})
	for len(m.revisions) > 1 && now.Sub(m.revisions[1].time) >= history {
		m.revisions = m.revisions[1:]
	}
}

// old returns a revision that is so old that nobody needs what came before; 0 if none is known.
func (m *memory) old(now time.Time) int64 {
	if len(m.revisions) == 0 || now.Sub(m.revisions[0].time) < history {
		return 0
	}
	return m.revisions[0].revision
}

// past returns what was done to the members of a store, that may be full.
func (m *memory) past(full bool, now time.Time) past {
	pause := again
	if full {
		pause = interval
	}
	return past{
		lately: func(id uint64) bool { return now.Sub(m.defragmented[id]) < pause },
		compacted: func(id uint64) bool {
			last := m.defragmented[id]
			return m.compactedAt.After(last) || now.Sub(m.compactedAt) < settling && now.Sub(last) >= history
		},
	}
}

// ask repeats a request of an etcd, each time to another member, until one of them answers.
func ask[T any](ctx context.Context, store *cellstore.Store, request func(context.Context) (T, error)) (answer T, err error) {
	for range len(store.Client().Endpoints()) {
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err = request(limited)
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}

// look asks an etcd and all its members.
func (m *memory) look(ctx context.Context, store *cellstore.Store) (*view, error) {
	revision, err := ask(ctx, store, store.Revision)
	if err != nil {
		return nil, err
	}
	m.note(revision, time.Now())
	members, err := ask(ctx, store, func(ctx context.Context) (*clientv3.MemberListResponse, error) { return store.Client().MemberList(ctx) })
	if err != nil {
		return nil, fmt.Errorf("reading the members of the etcd of cell %s: %w", store.Cell, err)
	}
	alarms, err := ask(ctx, store, store.Client().AlarmList)
	if err != nil {
		return nil, fmt.Errorf("reading the alarms of the etcd of cell %s: %w", store.Cell, err)
	}
	seen := newView(members.Members, alarms.Alarms, statuses(ctx, store))
	if len(seen.full) > 0 && m.old(time.Now()) <= m.compacted && revision > m.compacted {
		seen.waits = fmt.Sprintf("it waits for revisions that are older than %s", history)
	}
	return seen, nil
}

// statuses asks all endpoints, and returns the answers of those that answer.
func statuses(ctx context.Context, store *cellstore.Store) map[string]*clientv3.StatusResponse {
	var mu sync.Mutex
	var asked sync.WaitGroup
	answers := map[string]*clientv3.StatusResponse{}
	for _, endpoint := range store.Client().Endpoints() {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			if status, err := store.Client().Status(ctx, endpoint); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[endpoint] = status
			}
		})
	}
	asked.Wait()
	return answers
}

// do does a step, and reports whether another may follow at once.
func (k *Keeper) do(ctx context.Context, cell *cellplanev1alpha1.Cell, store *cellstore.Store, seen *view, next step, m *memory) (bool, error) {
	switch term, err := store.Term(ctx); {
	case err != nil:
		return false, err
	case term > k.Term:
		return false, cellstore.ErrFenced
	}
	logger := klog.FromContext(ctx).WithValues("cell", cell.Name)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	switch next.action {
	case moveLeader:
		logger.Info("moving the leader of an etcd, to defragment the member that leads", "from", id(next.member.id), "to", id(next.to.id))
		return true, store.MoveLeader(ctx, next.member.endpoint, next.to.id)
	case defragment:
		m.defragmented[next.member.id] = time.Now()
		if _, err := store.Client().Defragment(ctx, next.member.endpoint); err != nil {
			return false, fmt.Errorf("defragmenting member %s of the etcd of cell %s: %w", id(next.member.id), cell.Name, err)
		}
		logger.Info("defragmented a member of an etcd", "member", id(next.member.id), "mebibytesBefore", next.member.size>>20)
		defragmentations.WithLabelValues(cell.Name).Inc()
		k.Events.Eventf(cell, nil, corev1.EventTypeNormal, "StoreDefragmented", "Upkeep", "member %s of the etcd had %d MiB, of which %d were in use", id(next.member.id), next.member.size>>20, next.member.inUse>>20)
		return true, nil
	case compact:
		return false, m.compact(ctx, store)
	default:
		return true, k.disarm(ctx, cell, store, seen.full)
	}
}

// compact removes old revisions, if there are any. The members do not tell when they have done it.
func (m *memory) compact(ctx context.Context, store *cellstore.Store) error {
	now := time.Now()
	revision := m.old(now)
	if revision <= m.compacted {
		return nil
	}
	_, err := store.Client().Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // an API server was first
		return fmt.Errorf("compacting the etcd of cell %s: %w", store.Cell, err)
	}
	m.compacted, m.compactedAt = revision, now
	klog.FromContext(ctx).Info("compacted an etcd that has used up its quota", "cell", store.Cell, "revision", revision)
	return nil
}

// disarm lets an etcd take writes again.
func (k *Keeper) disarm(ctx context.Context, cell *cellplanev1alpha1.Cell, store *cellstore.Store, alarms []clientv3.AlarmMember) error {
	for i := range alarms {
		if _, err := store.Client().AlarmDisarm(ctx, &alarms[i]); err != nil {
			return fmt.Errorf("clearing the alarm %s of the etcd of cell %s: %w", etcdserverpb.AlarmType_NOSPACE, cell.Name, err)
		}
	}
	klog.FromContext(ctx).Info("cleared the alarm of an etcd that had used up its quota", "cell", cell.Name)
	k.Events.Eventf(cell, nil, corev1.EventTypeNormal, "StoreAlarmCleared", "Upkeep", "the etcd had used up its quota, and takes writes again")
	return nil
}

func id(member uint64) string { return fmt.Sprintf("%x", member) }

// publish writes the condition if it has changed. The cell gets it.
func (k *Keeper) publish(ctx context.Context, cell *cellplanev1alpha1.Cell, condition metav1.Condition) error {
	condition.ObservedGeneration = cell.Generation
	if !meta.SetStatusCondition(&cell.Status.Conditions, condition) {
		return nil
	}
	return cellstatus.Apply(ctx, k.Hub, cell, "cellplane-store-space", cellstatus.Of(cell.Status.Conditions, names.CellStoreSpace))
}
