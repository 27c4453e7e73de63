package guest

import (
	"fmt"
	"time"
)

// Fence is a point in a channel's work.
type Fence struct {
	ch  *Channel
	seq uint32
}

// Fence submits a fence: a semaphore release after all earlier work, and an interrupt.
func (ch *Channel) Fence() (Fence, error) {
	return ch.fence(func(words []uint32) error { return ch.Submit(words...) })
}

func (ch *Channel) fence(submit func([]uint32) error) (Fence, error) {
	var p Push
	ch.seq++
	f := Fence{ch, ch.seq}
	return f, submit(p.Semaphore(ch.FenceVA(), f.seq, SemRelease).NonStall(M2MF).Words)
}

// signalled reads the channel's fence.
func (ch *Channel) signalled() (uint32, error) {
	var b [4]byte
	err := ch.g.fences.Read(uint64(ch.ID)*fenceSize, b[:])
	return le.Uint32(b[:]), err
}

// Done reports whether the fence was reached.
func (f Fence) Done() (bool, error) {
	at, err := f.ch.signalled()
	return err == nil && int32(at-f.seq) >= 0, err
}

// Wait waits for a fence: it sleeps until the device's interrupt and looks again.
// A channel that the GPU stopped is a ChannelError.
func (g *Guest) Wait(f Fence) error { return g.wait(f, g.cfg.Interrupts != None, false) }

// WaitEvent is Wait, but takes the fence's interrupt even if the fence was reached before. So the
// traps that it costs do not depend on who is faster.
func (g *Guest) WaitEvent(f Fence) error { return g.wait(f, true, true) }

// Poll waits for a fence by looking at it.
func (g *Guest) Poll(f Fence) error { return g.wait(f, false, false) }

func (g *Guest) wait(f Fence, asleep, event bool) error {
	if asleep {
		g.setIntr(g.intrEn | intrEngine)
		defer g.setIntr(g.intrEn &^ intrEngine)
	}
	end := time.Now().Add(g.cfg.Timeout)
	var p pause
	p.start(g.cfg.Timeout)
	for ; ; event = false {
		if done, err := f.Done(); done && !event || err != nil {
			return err
		}
		if f.ch.err != nil {
			return f.ch.err
		}
		more := true
		if asleep {
			more = g.sleep(time.Until(end))
		} else {
			more = p.next()
		}
		if err := g.look(); err != nil {
			return err
		}
		if !more {
			return fmt.Errorf("guest: channel %d did not reach fence %d within %v (GP_GET %d, GP_PUT %d)",
				f.ch.ID, f.seq, g.cfg.Timeout, f.ch.GPGet(), f.ch.put)
		}
	}
}

// Finish waits for everything that was submitted so far.
func (ch *Channel) Finish() error { return ch.finish(ch.g.Wait) }

// FinishByEvent is Finish with WaitEvent.
func (ch *Channel) FinishByEvent() error { return ch.finish(ch.g.WaitEvent) }

func (ch *Channel) finish(wait func(Fence) error) error {
	f, err := ch.Fence()
	if err != nil {
		return err
	}
	return wait(f)
}
