package dlq

import (
	"context"
	"errors"
	"sync"
)

// each begins with one entry after the other, n at a time, until ctx ends or an error says that the rest need not be tried. It
// returns that error, the first one, when all that was begun is done. Being stopped is none.
func each(ctx context.Context, n int, refs []ref, do func(context.Context, ref) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan ref)
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for one := range queue {
				if err := do(ctx, one); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, one := range refs {
		if ctx.Err() != nil {
			break
		}
		queue <- one
	}
	close(queue)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
