package cellstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// RequestTimeout is the timeout of a request, so that one store that hangs does not block those that wait for several.
	RequestTimeout = 10 * time.Second
	// dialTimeout is the timeout of a connection attempt.
	dialTimeout = 5 * time.Second
	// keepAlive detects dead connections.
	keepAlive = 10 * time.Second
	// pageSize is how many keys are read at once, unless fewer fit into a message.
	pageSize = 512
	// largestMessage is larger than any page of objects of the largest size that etcd stores by default.
	largestMessage = 1 << 30
)

// Store is a connection to the etcd of a cell.
type Store struct {
	// Cell is the name of the cell.
	Cell   string
	client *clientv3.Client
	config clientv3.Config
	prefix string
	keys   *atrest.Keys // nil if nothing is encrypted
	// unprotected lets encrypted objects be copied to stores that do not encrypt them.
	unprotected bool
}

// Open connects to the store of a cell with the credentials in a Secret of the hub. It does not wait for an answer.
func Open(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) (*Store, error) {
	config, err := fleet.StoreTLS(credentials)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the store of cell %s: %w", cell.Name, err)
	}
	settings := clientv3.Config{
		Endpoints:            cell.Spec.Etcd.Endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAlive,
		MaxCallRecvMsgSize:   largestMessage,
		TLS:                  config,
		Logger:               zap.NewNop(), // errors are returned to the caller
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the store of cell %s: %w", cell.Name, err)
	}
	prefix := cell.Spec.Etcd.Prefix
	if prefix == "" {
		prefix = "/registry"
	}
	return &Store{Cell: cell.Name, client: client, config: settings, prefix: strings.TrimSuffix(prefix, "/") + "/"}, nil
}

// Close ends the connection.
func (s *Store) Close() error {
	s.keys.Close()
	return s.client.Close()
}

// Closed reports whether the connection was closed, for example because the Cell or a Secret of it has changed. Nothing opens it again.
func (s *Store) Closed() bool { return s.client.Ctx().Err() != nil }

// Client returns the etcd client, for watches and snapshots. Requests go through the Store, which sets timeouts.
func (s *Store) Client() *clientv3.Client { return s.client }

// MoveLeader makes another member the leader of the etcd. The endpoint is that of the present leader: only it can do so.
func (s *Store) MoveLeader(ctx context.Context, endpoint string, to uint64) error {
	config := s.config
	config.Endpoints = []string{endpoint}
	leader, err := clientv3.New(config)
	if err != nil {
		return fmt.Errorf("preparing to reach the leader of the etcd of cell %s: %w", s.Cell, err)
	}
	defer func() { _ = leader.Close() }()
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	if _, err := leader.MoveLeader(ctx, to); err != nil {
		return fmt.Errorf("moving the leader of the etcd of cell %s: %w", s.Cell, err)
	}
	return nil
}

// Prefix is the prefix of all keys of the cell's API server. It ends in a slash.
func (s *Store) Prefix() string { return s.prefix }

// Relative returns a key without the prefix, and whether it is a key of the cell's API server.
func (s *Store) Relative(key string) (string, bool) { return strings.CutPrefix(key, s.prefix) }

// Key returns the key of the cell's API server for a relative key.
func (s *Store) Key(relative string) string { return s.prefix + relative }

// Revision returns the current revision of the store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	response, err := s.client.Get(ctx, termKey)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of the store of cell %s: %w", s.Cell, err)
	}
	return response.Header.Revision, nil
}

// KV is a stored object.
type KV struct {
	// Key is the etcd key.
	Key string
	// Value is the object as the API server encoded it, decrypted.
	Value []byte
	// Outdated means that it is stored without encryption or under another key than is in use now.
	Outdated bool
	// ModRevision is the revision of its last change, which is the object's resourceVersion; 0 means that the key does not exist.
	ModRevision int64
	// Lease is the etcd lease of the key; 0 means none.
	Lease int64
}

// Get returns the value of a key, and the revision of the store. The ModRevision is 0 if the key does not exist.
func (s *Store) Get(ctx context.Context, key string) (kv KV, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	response, err := s.client.Get(ctx, key)
	if err != nil {
		return KV{}, 0, fmt.Errorf("reading %s in cell %s: %w", key, s.Cell, err)
	}
	kv.Key = key
	for _, found := range response.Kvs {
		if kv, err = s.open(ctx, found); err != nil {
			return KV{}, 0, err
		}
	}
	return kv, response.Header.Revision, nil
}

// GetAll returns the values of several keys, in their order, at one revision.
func (s *Store) GetAll(ctx context.Context, keys []string) ([]KV, error) {
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(key)
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	response, err := s.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, fmt.Errorf("reading %d keys in cell %s: %w", len(keys), s.Cell, err)
	}
	all := make([]KV, len(keys))
	for i, key := range keys {
		all[i].Key = key
		for _, found := range response.Responses[i].GetResponseRange().Kvs {
			if all[i], err = s.open(ctx, found); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// errStop ends an iteration from inside.
var errStop = errors.New("stop")

// Range yields all keys under a prefix at a revision, in key order, page by page. Revision 0 means that of the first page. An error is
// yielded last.
func (s *Store) Range(ctx context.Context, prefix string, revision int64) iter.Seq2[KV, error] {
	return s.each(ctx, prefix, revision, s.open)
}

// RangeReadable is Range at the current revision, without an error for values that cannot be decrypted. They have no Value, and are Outdated.
func (s *Store) RangeReadable(ctx context.Context, prefix string) iter.Seq2[KV, error] {
	return s.each(ctx, prefix, 0, func(ctx context.Context, found *mvccpb.KeyValue) (KV, error) {
		kv, err := s.open(ctx, found)
		var unreadable *UnreadableError
		if errors.As(err, &unreadable) {
			kv, err = unreadable.KV, nil
			kv.Value, kv.Outdated = nil, true
		}
		return kv, err
	})
}

// opening makes a KV of what was read.
type opening func(context.Context, *mvccpb.KeyValue) (KV, error)

func (s *Store) each(ctx context.Context, prefix string, revision int64, open opening) iter.Seq2[KV, error] {
	return func(yield func(KV, error) bool) {
		err := s.pages(ctx, prefix, revision, open, func(page []KV) error {
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

func (s *Store) pages(ctx context.Context, prefix string, revision int64, open opening, visit func([]KV) error) error {
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
			if page[i], err = open(ctx, found); err != nil {
				return err
			}
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
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
}

// Next returns the first key under a prefix that is equal to or after another; empty if there is none.
func (s *Store) Next(ctx context.Context, prefix, from string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
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

// Passes is how many stores background work reads completely at once. A complete read takes all the capacity of the etcd and the
// reader; this bound leaves some for requests.
func Passes() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// Through returns the revision up to which a watch has delivered all events with this response. The header has it only if there are no
// events: with events it has the revision of the store, which a watch that is catching up has not reached.
func Through(response clientv3.WatchResponse) int64 {
	if n := len(response.Events); n > 0 {
		return response.Events[n-1].Kv.ModRevision
	}
	return response.Header.Revision
}
