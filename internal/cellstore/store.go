package cellstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// Patience is how long a store may take to answer a request: one that hangs must not hold up those who wait for others as well.
	Patience = 10 * time.Second
	// dialTimeout bounds how long a connection attempt takes.
	dialTimeout = 5 * time.Second
	// keepAlive finds connections that lead nowhere.
	keepAlive = 10 * time.Second
	// pageSize is how many keys are read at once, unless they are so large that fewer fit into a message.
	pageSize = 512
	// largestMessage is more than any page of objects of the largest size that etcd stores by default.
	largestMessage = 1 << 30
)

// Store is a connection to the etcd of a cell.
type Store struct {
	// Cell is the name of the cell.
	Cell   string
	client *clientv3.Client
	prefix string
}

// Open connects to the store of a cell with the credentials in a Secret of the hub. It does not wait for an answer.
func Open(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) (*Store, error) {
	config, err := fleet.StoreTLS(credentials)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the store of cell %s: %w", cell.Name, err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cell.Spec.Etcd.Endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAlive,
		MaxCallRecvMsgSize:   largestMessage,
		TLS:                  config,
		Logger:               zap.NewNop(), // errors reach whoever asks
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the store of cell %s: %w", cell.Name, err)
	}
	prefix := cell.Spec.Etcd.Prefix
	if prefix == "" {
		prefix = "/registry"
	}
	return &Store{Cell: cell.Name, client: client, prefix: strings.TrimSuffix(prefix, "/") + "/"}, nil
}

// Close ends the connection.
func (s *Store) Close() error { return s.client.Close() }

// Client returns the connection itself, for watches and snapshots. Requests go through the Store, which bounds them.
func (s *Store) Client() *clientv3.Client { return s.client }

// Prefix is what all keys of the cell's API server begin with. It ends in a slash.
func (s *Store) Prefix() string { return s.prefix }

// Relative returns a key of the cell's API server without the prefix, and whether it is one.
func (s *Store) Relative(key string) (string, bool) { return strings.CutPrefix(key, s.prefix) }

// Key returns the key of the cell's API server for a relative one.
func (s *Store) Key(relative string) string { return s.prefix + relative }

// Revision returns the current revision of the store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	response, err := s.client.Get(ctx, termKey)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of the store of cell %s: %w", s.Cell, err)
	}
	return response.Header.Revision, nil
}

// KV is a stored object.
type KV struct {
	// Key is where it is stored.
	Key string
	// Value is the object as the API server has encoded it.
	Value []byte
	// ModRevision is the revision of its last change, which is the object's resourceVersion; 0 means that there is none.
	ModRevision int64
	// Lease is the etcd lease that the key ends with; 0 means that it stays.
	Lease int64
}

// Get returns what is stored under a key; its ModRevision is 0 if nothing is. The revision is that of the store when it was read.
func (s *Store) Get(ctx context.Context, key string) (kv KV, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	response, err := s.client.Get(ctx, key)
	if err != nil {
		return KV{}, 0, fmt.Errorf("reading %s in cell %s: %w", key, s.Cell, err)
	}
	kv.Key = key
	for _, found := range response.Kvs {
		kv = KV{Key: key, Value: found.Value, ModRevision: found.ModRevision, Lease: found.Lease}
	}
	return kv, response.Header.Revision, nil
}

// GetAll returns what is stored under several keys, in their order, all as it was at one revision.
func (s *Store) GetAll(ctx context.Context, keys []string) ([]KV, error) {
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(key)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	response, err := s.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, fmt.Errorf("reading %d keys in cell %s: %w", len(keys), s.Cell, err)
	}
	all := make([]KV, len(keys))
	for i, key := range keys {
		all[i].Key = key
		for _, found := range response.Responses[i].GetResponseRange().Kvs {
			all[i] = KV{Key: key, Value: found.Value, ModRevision: found.ModRevision, Lease: found.Lease}
		}
	}
	return all, nil
}

// errStop ends an iteration from inside.
var errStop = errors.New("stop")

// Range yields everything under a prefix as it was at a revision, in the order of the keys, page by page. Revision 0 means the one of
// the first page. An error is the last thing it yields.
func (s *Store) Range(ctx context.Context, prefix string, revision int64) iter.Seq2[KV, error] {
	return func(yield func(KV, error) bool) {
		err := s.pages(ctx, prefix, revision, func(page []KV) error {
			for _, kv := range page {
				if !yield(kv, nil) {
					return errStop
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(KV{}, fmt.Errorf("reading %s* in cell %s: %w", prefix, s.Cell, err))
		}
	}
}

func (s *Store) pages(ctx context.Context, prefix string, revision int64, visit func([]KV) error) error {
	key, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		response, err := s.page(ctx, key, end, revision)
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = response.Header.Revision
		}
		page := make([]KV, len(response.Kvs))
		for i, found := range response.Kvs {
			page[i] = KV{Key: string(found.Key), Value: found.Value, ModRevision: found.ModRevision, Lease: found.Lease}
		}
		if err := visit(page); err != nil {
			return err
		}
		if !response.More || len(page) == 0 {
			return nil
		}
		key = page[len(page)-1].Key + "\x00"
	}
}

func (s *Store) page(ctx context.Context, key, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return s.client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
}

// Next returns the first key under a prefix that is not before another; it is empty if there is none.
func (s *Store) Next(ctx context.Context, prefix, from string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	response, err := s.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return "", fmt.Errorf("reading the keys %s* in cell %s: %w", prefix, s.Cell, err)
	}
	for _, found := range response.Kvs {
		return string(found.Key), nil
	}
	return "", nil
}

// Passes is how many stores are read through at once where nobody waits for it. Reading through a store takes all that its etcd and the
// reader can give: so there is room for requests.
func Passes() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// Through returns the revision up to which a watch has delivered everything with a response. The header tells it only if there are no
// events: with events it is the store's revision, which a watch that is still catching up has not reached.
func Through(response clientv3.WatchResponse) int64 {
	if n := len(response.Events); n > 0 {
		return response.Events[n-1].Kv.ModRevision
	}
	return response.Header.Revision
}
