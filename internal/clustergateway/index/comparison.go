package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

// comparePage is how many objects are read from the store at a time. Between pages the store is not kept from forgetting old versions.
const comparePage = 500

// maxComparisons is how many clusters are compared at a time, by all indexers. The versions of their documents are in memory meanwhile.
const maxComparisons = 2

// comparison compares the documents of a cluster with its objects.
type comparison struct {
	*indexer
	cluster string
	// documents are the versions of those that have not been matched with an object.
	documents map[string]int64
}

var errNotTaken = errors.New("the search engine does not take the changes")

func (c *comparison) run(ctx context.Context) error {
	if err := c.flush(ctx, false); err != nil { // the documents shall include what is pending
		return err
	}
	backend, err := c.backend()
	if err != nil {
		return err
	}
	c.prepared = false // somebody may have deleted it
	if err := c.prepare(ctx, backend); err != nil {
		return err
	}
	c.documents = map[string]int64{}
	source := Source{Cluster: c.cluster, APIVersion: c.kind.GroupVersion().String()}
	if err := backend.Documents(ctx, c.index, source, func(id string, version int64) { c.documents[id] = version }); err != nil {
		return fmt.Errorf("reading the index %s: %w", c.index, err)
	}
	if err := c.objects(ctx); err != nil {
		return err
	}
	if _, wanted := c.scoped[c.cluster]; wanted && !c.isFresh() {
		c.clusters[c.cluster].due = true // when it is again
		return nil
	}
	for id, version := range c.documents {
		if err := c.enqueue(ctx, &Operation{ID: id, Version: version, Cluster: c.cluster, Name: id}); err != nil {
			return err
		}
	}
	return c.flush(ctx, false)
}

func (c *comparison) isFresh() bool {
	for _, state := range c.store.Clusters() {
		if state.Name == c.cluster {
			return state.Synced && state.Stale.IsZero()
		}
	}
	return false
}

// objects compares each wanted object of the cluster.
func (c *comparison) objects(ctx context.Context) error {
	ofCluster, err := labels.NewRequirement(names.ClusterLabel, selection.Equals, []string{c.cluster})
	if err != nil {
		return err
	}
	options := clustercache.ListOptions{Filter: clustercache.Filter{Labels: labels.NewSelector().Add(*ofCluster)}, Limit: comparePage}
	for {
		if options.Continue, err = c.page(ctx, options); err != nil || options.Continue == "" {
			return err
		}
	}
}

// page compares a page of objects and returns the token of the next.
func (c *comparison) page(ctx context.Context, options clustercache.ListOptions) (string, error) {
	list, err := c.store.List(options)
	if err != nil {
		return "", err
	}
	defer list.Close()
	for o, err := range list.Objects() {
		if err != nil {
			return "", err
		}
		if err := c.object(ctx, &o); err != nil {
			return "", err
		}
	}
	next, _ := list.Continue()
	return next, nil
}

func (c *comparison) object(ctx context.Context, o *clustercache.Object) error {
	if !c.scoped.has(o.Cluster, o.Namespace) {
		return nil
	}
	found, err := identity(o)
	if err != nil {
		c.refuse(&Operation{ID: o.Cluster + "/" + o.Name, Cluster: o.Cluster, Name: o.Name}, err.Error())
		return nil
	}
	version, there := c.documents[found.ID]
	delete(c.documents, found.ID)
	if there && version == found.Version && version != 0 {
		return nil
	}
	if found.Document, err = encode(c.kind, o); err != nil {
		c.refuse(found, err.Error())
		return nil
	}
	return c.enqueue(ctx, found)
}

// enqueue notes an operation, and makes room for others.
func (c *comparison) enqueue(ctx context.Context, o *Operation) error {
	c.pending.add(o, time.Now())
	return c.flush(ctx, true)
}

// flush sends what is pending: if it is too much, or all. What the search engine does not take at once is left to the caller, which
// pauses.
func (c *comparison) flush(ctx context.Context, onlyFull bool) error {
	for !c.pending.empty() && (c.pending.full() || !onlyFull) {
		c.send(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.pause > 0 {
			return errNotTaken
		}
	}
	return nil
}
