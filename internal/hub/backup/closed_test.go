package backup

import (
	"errors"
	"sync"
	"testing"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
)

// TestClosedTarget closes the connection to a backup cell, as a change of its Cell or its Secrets does. It has to be opened again.
func TestClosedTarget(t *testing.T) {
	p := newPair("cell-a", storetest.Closed(t, "cell-b"), 1, 10)
	p.add("configmaps/shop/a", []byte("1"))
	p.advance(12)
	if err := p.follow(t.Context()); !errors.Is(err, errCompareAgain) {
		t.Errorf("following changes ends with %v", err)
	}
	var compared sync.WaitGroup
	compared.Add(1)
	s := &source{store: &cellstore.Store{Cell: "cell-a"}}
	if err := s.serve(t.Context(), 0, &comparison{pair: p, err: errUnreachable}, 1, &compared); !errors.Is(err, errCompareAgain) {
		t.Errorf("a comparison ends with %v", err)
	}
}
