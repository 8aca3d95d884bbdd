package cellstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Term is the fencing token of a leader that writes to the stores of cells. Each new leader has a higher one.
type Term int64

// termKey holds the highest term that a store has seen. API servers do not see it.
const termKey = "/cellplane/mover"

// ErrFenced means that a leader with a higher term has taken over. The caller has to stop.
var ErrFenced = errors.New("another hub manager has taken over")

// ErrConflict means that a transaction was not applied because one of its conditions does not hold.
var ErrConflict = errors.New("the stored value has changed")

// Term returns the highest term that the store has seen, 0 if none.
func (s *Store) Term(ctx context.Context) (Term, error) {
	term, _, err := s.term(ctx)
	return term, err
}

func (s *Store) term(ctx context.Context) (Term, int64, error) {
	kv, _, err := s.Get(ctx, termKey)
	if err != nil || kv.ModRevision == 0 {
		return 0, 0, err
	}
	number, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the term in cell %s: %w", s.Cell, err)
	}
	return Term(number), kv.ModRevision, nil
}

// RaiseTerm makes the store refuse transactions of all lower terms. No such transaction can succeed after it returns. It returns
// ErrFenced if the store has seen a higher term.
func (s *Store) RaiseTerm(ctx context.Context, term Term) error {
	for {
		current, revision, err := s.term(ctx)
		switch {
		case err != nil:
			return err
		case current > term:
			return fmt.Errorf("raising the term in cell %s to %d, which already has %d: %w", s.Cell, term, current, ErrFenced)
		case current == term && revision != 0:
			return nil
		}
		response, err := s.commit(ctx, []clientv3.Cmp{Unchanged(termKey, revision)}, []clientv3.Op{clientv3.OpPut(termKey, term.String())})
		if err != nil {
			return fmt.Errorf("raising the term in cell %s to %d: %w", s.Cell, term, err)
		}
		if response.Succeeded {
			return nil
		}
	}
}

// String returns the term as it is stored.
func (t Term) String() string { return strconv.FormatInt(int64(t), 10) }

// Unchanged is the condition that a key was last modified at a revision; revision 0 means that it does not exist.
func Unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// Put is the operation that stores a value.
func Put(key string, value []byte) clientv3.Op { return clientv3.OpPut(key, string(value)) }

// Delete is the operation that removes a key.
func Delete(key string) clientv3.Op { return clientv3.OpDelete(key) }

// Txn applies all operations if all conditions hold and the store has seen no higher term. It returns the revision at which they were
// applied. With ErrFenced or ErrConflict they were not; after any other error they may have been. If the store has not seen the term
// yet, because its cell has just joined or the leader is new, Txn raises it first.
func (s *Store) Txn(ctx context.Context, term Term, conditions []clientv3.Cmp, operations ...clientv3.Op) (int64, error) {
	operations, err := s.sealed(ctx, operations)
	if err != nil {
		return 0, err
	}
	guarded := append([]clientv3.Cmp{clientv3.Compare(clientv3.Value(termKey), "=", term.String())}, conditions...)
	for {
		response, err := s.commit(ctx, guarded, operations, clientv3.OpGet(termKey))
		switch {
		case err != nil:
			return 0, fmt.Errorf("writing to the store of cell %s: %w", s.Cell, err)
		case response.Succeeded:
			return response.Header.Revision, nil
		}
		for _, found := range response.Responses[0].GetResponseRange().Kvs {
			if string(found.Value) == term.String() {
				return 0, ErrConflict
			}
		}
		if err := s.RaiseTerm(ctx, term); err != nil {
			return 0, fmt.Errorf("writing to the store of cell %s: %w", s.Cell, err)
		}
	}
}

func (s *Store) commit(ctx context.Context, conditions []clientv3.Cmp, operations []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.client.Txn(ctx).If(conditions...).Then(operations...).Else(otherwise...).Commit()
}
