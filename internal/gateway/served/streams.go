package served

import (
	"context"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// streams are the watches and other long-running requests of users who can be limited. The zero value is empty and ready.
type streams struct {
	mu   sync.Mutex
	open map[*stream]struct{}
}

type stream struct {
	groups []string
	info   *request.RequestInfo
	cancel context.CancelFunc
}

// add returns a context that ends when limits no longer allow the request. done must be called.
func (s *streams) add(ctx context.Context, groups []string, info *request.RequestInfo) (with context.Context, done func()) {
	with, cancel := context.WithCancel(ctx)
	one := &stream{groups: groups, info: info, cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	s.open[one] = struct{}{}
	return with, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one)
	}
}

// end ends the streams that limits do not allow.
func (s *streams) end(limits *Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open {
		if limit := limits.For(one.groups); limit != nil && !limit.allowsRequest(one.info) {
			one.cancel()
		}
	}
}
