package lab

import (
	"context"
	"sync"
)

// journal is a list that only grows, and on which readers can wait. The zero
// journal is not ready for use: see newJournal.
type journal[T any] struct {
	mu      sync.Mutex
	items   []T
	changed chan struct{} // closed and replaced at every change
	closed  error         // set when nothing will be added any more
}

func newJournal[T any]() *journal[T] { return &journal[T]{changed: make(chan struct{})} }

func (j *journal[T]) add(item T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.items = append(j.items, item)
	close(j.changed)
	j.changed = make(chan struct{})
}

// close makes waits end with err once they have seen all items.
func (j *journal[T]) close(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed == nil {
		j.closed = err
		close(j.changed)
		j.changed = make(chan struct{})
	}
}

func (j *journal[T]) all() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.items[:len(j.items):len(j.items)]
}

// wait returns the first item at or after from that match accepts, and the
// index behind it.
func (j *journal[T]) wait(ctx context.Context, from int, match func(T) bool) (T, int, error) {
	for {
		j.mu.Lock()
		items, changed, closed := j.items, j.changed, j.closed
		j.mu.Unlock()
		for ; from < len(items); from++ {
			if match(items[from]) {
				return items[from], from + 1, nil
			}
		}
		var zero T
		if closed != nil {
			return zero, from, closed
		}
		select {
		case <-ctx.Done():
			return zero, from, context.Cause(ctx)
		case <-changed:
		}
	}
}
