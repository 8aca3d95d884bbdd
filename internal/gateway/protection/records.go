package protection

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
)

// Drop is a decrease of replicas.
type Drop struct {
	Time time.Time `json:"time"`
	From int64     `json:"from"`
	To   int64     `json:"to"`
}

func (d Drop) size() int64 { return d.From - d.To }

// Subject is the object that a record is about.
type Subject struct {
	UID string
	// MovedFrom is where the object came from when it last moved between cells; "" if it never did.
	MovedFrom string
}

func subjectOf(o *object) Subject {
	return Subject{UID: o.Metadata.UID, MovedFrom: o.Metadata.Annotations[names.MovedFromAnnotation]}
}

// Records stores drops where every gateway finds them.
type Records interface {
	// List returns the drops of the object of a request.
	List(ctx context.Context, info *request.RequestInfo, subject Subject) ([]Drop, error)
	// Add adds a drop, and removes those older than keep.
	Add(ctx context.Context, info *request.RequestInfo, subject Subject, drop Drop, keep time.Duration) error
	// Collect brings drops that were recorded before the object moved to where it is now.
	Collect(ctx context.Context, info *request.RequestInfo, subject Subject) error
}
