package aperture

import (
	"errors"
	"sync/atomic"
)

// Holder has the windows of a GPU's client, and those of the last client until they are closed.
// Any goroutine may call its methods.
type Holder struct {
	none      *Set                // while there is no client
	set, left atomic.Pointer[Set] // of the client; of the last client, which could not be closed
}

// NewHolder returns the holder of a GPU without a client.
func NewHolder() *Holder {
	return &Holder{none: &Set{stats: new(Stats)}}
}

// Set returns the windows of the client. Without a client it returns a Set that has none.
func (h *Holder) Set() *Set {
	if s := h.set.Load(); s != nil {
		return s
	}
	return h.none
}

// Free returns an error if the windows of the last client are not closed.
func (h *Holder) Free() error {
	if h.left.Load() != nil {
		return errors.New("windows are not closed: pages of VRAM are still where the last client had them mapped")
	}
	return nil
}

// Open makes the windows of a client. The holder is free.
func (h *Holder) Open(cfg Config, owner Owner, stats *Stats) error {
	s, err := New(cfg, owner, stats)
	if err == nil {
		h.set.Store(s)
	}
	return err
}

// Close closes the windows and moves every page back to the card. If the card refuses some pages,
// the client can still reach them. Close then returns an error, and the next call tries again:
// until it succeeds no other client may have the GPU. One call only reports that it closed them.
func (h *Holder) Close() (closed bool, err error) {
	if s := h.set.Swap(nil); s != nil {
		h.left.Store(s)
	}
	s := h.left.Load()
	if s == nil {
		return false, nil
	}
	if err := s.Close(); err != nil {
		return false, err
	}
	return h.left.CompareAndSwap(s, nil), nil
}
