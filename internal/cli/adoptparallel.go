package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/adopt"
)

// inParallel calls produce, which starts pieces of work, and waits for them. Start blocks while --parallel of them run.
// The first error ends all.
func (f *adoptFlags) inParallel(ctx context.Context, produce func(ctx context.Context, start func(func() error)) error) error {
	if f.parallel < 1 {
		return fmt.Errorf("--parallel must be at least 1, not %d", f.parallel)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.parallel)
	err := produce(ctx, group.Go)
	if failed := group.Wait(); failed != nil {
		return failed
	}
	return err
}

// outcomes prints what came of each workload, in the order in which they are done.
type outcomes struct {
	mu          sync.Mutex
	out         io.Writer
	all, undone int
	// what should have been done with those that are not done.
	what string
}

// print prints that something is done, or why it is not. It returns an error if nothing more is to be done.
func (o *outcomes) print(key adopt.Key, done string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all++
	if err != nil {
		o.undone++
		done, o.what = "not "+done+": "+err.Error(), done
	}
	_, err = fmt.Fprintf(o.out, "%s: %s\n", key, done)
	return err
}

// result prints how many are not done, and returns the exit code.
func (o *outcomes) result() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.undone == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(o.out, "%d of %d were not %s.\n", o.undone, o.all, o.what); err != nil {
		return err
	}
	return exitError{code: 2}
}
