package protection

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Drop is a decrease of replicas.
type Drop struct {
	Time time.Time `json:"time"`
	From int64     `json:"from"`
	To   int64     `json:"to"`
}

func (d Drop) size() int64 { return d.From - d.To }

// Records stores drops where every gateway finds them.
type Records interface {
	// List returns the drops of the object of a request.
	List(ctx context.Context, info *request.RequestInfo, uid string) ([]Drop, error)
	// Add adds a drop, and removes those older than keep.
	Add(ctx context.Context, info *request.RequestInfo, uid string, drop Drop, keep time.Duration) error
}
