package protection

import (
	"context"
	"net/url"

	"golang.org/x/sync/semaphore"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// searches is the number of concurrent searches of all requests. The API servers of cells take the gateway for one user, whose requests they
// limit, and answer 429 beyond that. The deletion of one namespace searches each kind in each cell.
const searches = 64

// bounded has other searches wait.
type bounded struct {
	Objects
	running *semaphore.Weighted
}

// Bounded returns Objects with a bound on how many searches run at once. Further ones wait.
func Bounded(objects Objects) Objects {
	return bounded{objects, semaphore.NewWeighted(searches)}
}

// Find implements Objects.
func (b bounded) Find(ctx context.Context, resource kinds.Resource, namespace string, query url.Values, limit int) ([][]byte, error) {
	if err := b.running.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer b.running.Release(1)
	return b.Objects.Find(ctx, resource, namespace, query, limit)
}
