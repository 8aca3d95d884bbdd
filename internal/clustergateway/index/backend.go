package index

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Target is a search engine, and the Secret with the credentials for it.
type Target struct {
	// Addresses are the URLs of its nodes, separated by spaces.
	Addresses string
	Secret    types.NamespacedName
}

// Backend is a connection to a search engine.
type Backend interface {
	// Prepare creates an index, unless it is there.
	Prepare(ctx context.Context, index string) error
	// Bulk applies operations, and returns a result for each. An error means that none may have been applied.
	Bulk(ctx context.Context, index string, operations []*Operation) ([]Result, error)
	// Documents visits the documents of a source.
	Documents(ctx context.Context, index string, of Source, visit func(id string, version int64)) error
	// Close ends the connection. Requests that are being served finish.
	Close() error
}

// ErrTooLarge is wrapped by errors of bulks that are larger than the search engine accepts.
var ErrTooLarge = errors.New("the request is too large")

// Source is where documents come from: a cluster, and the API version of a kind.
type Source struct {
	Cluster    string `json:"cluster"`
	APIVersion string `json:"apiVersion"`
}

// Operation writes or deletes a document, unless the index has a later version of it.
type Operation struct {
	// ID is the UID of the object.
	ID string
	// Version is the resourceVersion of the object; 0 if that is no number, and then the operation always applies.
	Version int64
	// Document is nil for a deletion.
	Document []byte
	// Cluster and Name are those of the object, for messages.
	Cluster, Name string

	since time.Time // when the first change that it includes was seen
}

// Outcome is what became of an operation.
type Outcome int

const (
	// Applied means that the operation was applied, or was not necessary.
	Applied Outcome = iota
	// Outdated means that the index has a later version.
	Outdated
	// Failed means that the operation can be tried again.
	Failed
	// Missing means that there is no index. The operation can be tried again after Prepare.
	Missing
	// Refused means that it would be refused again.
	Refused
)

// Result is the result of an operation.
type Result struct {
	Outcome Outcome
	// Message explains a failure.
	Message string
}
