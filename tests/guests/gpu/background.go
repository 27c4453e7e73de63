package gpu

import "sync"

// background is work that goes on until it is stopped.
type background struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu  sync.Mutex // guards err
	err error      // the first
}

// run does f on a goroutine, and keeps its error.
func (b *background) run(f func() error) {
	b.wg.Go(func() {
		err := f()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.err == nil {
			b.err = err
		}
	})
}

// failure is the text of the first error.
func (b *background) failure() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		return ""
	}
	return b.err.Error()
}

func (b *background) stopped() bool {
	select {
	case <-b.stop:
		return true
	default:
		return false
	}
}

// end stops the work, and waits for its end.
func (b *background) end() {
	close(b.stop)
	b.wg.Wait()
}
