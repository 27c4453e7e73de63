package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// Each channel has a page of ring, a page with the words that end submissions, and a page
// with the fence that those release. They are at the end of the address space.
const (
	addressBits = 40 // of an address space

	ownPages  = 3 * 4096
	ownFirst  = 1<<addressBits - 16*ownPages
	ringLog2  = 9
	ringSize  = 1 << ringLog2
	fencePage = 2 * 4096
	endSize   = 128 // of the words that end a submission
)

// Push is a part of a submission: words that the card fetches.
type Push struct {
	VA, Size   uint64 // bytes
	NoPrefetch bool   // fetch only when the words before have been executed
}

// Channel executes submissions, one after the other.
type Channel struct {
	machine *Machine
	ch      card.Channel
	own     *Buffer
	put     uint32
	fence   uint32 // of the last submission

	doorbell chan struct{}         // capacity 1: the card reported something
	err      atomic.Pointer[error] // why the channel was stopped
}

// NewChannel makes a channel.
func (m *Machine) NewChannel() (*Channel, error) {
	c := &Channel{machine: m, doorbell: make(chan struct{}, 1)}
	var err error
	c.own, err = m.Alloc(Place{VA: ownFirst + uint64(len(m.channels))*ownPages, Size: ownPages})
	if err != nil {
		return nil, err
	}
	c.ch, err = m.share.NewChannel(card.ChannelConfig{
		Space: m.space, Limit: 1<<addressBits - 1, Ring: card.Ring{Base: c.own.VA, Log2: ringLog2},
	}, events{c})
	if err != nil {
		return nil, err
	}
	m.channels = append(m.channels, c)
	c.ch.Enable()
	if !m.share.Commit() {
		return nil, errors.New("the card did not take the new channel in time")
	}
	return c, nil
}

// Run submits words and returns when the card has executed them.
func (c *Channel) Run(list []Push) error {
	n, err := c.Submit(list)
	if err != nil {
		return err
	}
	return c.Wait(n)
}

// mostAhead is how many submissions a program is ahead of the card at most. Each has its part of the ring.
const mostAhead = 16

// Submit submits words, and returns what to wait for. It waits for the card while that is far behind.
func (c *Channel) Submit(list []Push) (n uint32, err error) {
	long := len(list) >= ringSize/mostAhead-1 // one more ends it
	if long {
		err = c.Wait(c.fence) // and after it
	} else {
		err = c.Wait(c.fence - mostAhead + 1)
	}
	if err != nil {
		return 0, err
	}
	var end push.Buffer
	c.fence++
	end.Semaphore(c.own.VA+fencePage, c.fence, push.SemRelease|push.SemOneWord)
	end.Inc(0, push.HostNonStall, 0)
	at := ringSize*8 + uint64(c.fence%mostAhead)*endSize
	for i, w := range end.Words {
		binary.LittleEndian.PutUint32(c.own.mem[at+uint64(i)*4:], w)
	}
	list = append(list[:len(list):len(list)], Push{VA: c.own.VA + at, Size: uint64(len(end.Words) * 4)})
	if len(list) >= ringSize {
		return 0, fmt.Errorf("a submission of %d parts: a ring has %d entries", len(list), ringSize-1)
	}
	for _, p := range list {
		if p.Size == 0 {
			continue
		}
		entry := p.VA | p.Size/4<<42
		if p.NoPrefetch {
			entry |= 1 << 63
		}
		binary.LittleEndian.PutUint64(c.own.mem[c.put*8:], entry)
		c.put = (c.put + 1) % ringSize
	}
	c.ch.Doorbell(c.put)
	if long {
		err = c.Wait(c.fence)
	}
	return c.fence, err
}

// Done reports whether the card has executed a submission.
func (c *Channel) Done(n uint32) bool { return int32(c.executed()-n) >= 0 }

// executed is the number of the last submission that the card has executed.
func (c *Channel) executed() uint32 { return binary.LittleEndian.Uint32(c.own.mem[fencePage:]) }

// Wait returns when the card has executed a submission, or has failed. The limit is for each one before it, too.
func (c *Channel) Wait(n uint32) error {
	limit := time.NewTimer(c.machine.cfg.Limit)
	defer limit.Stop()
	for last := c.executed(); ; {
		if err := c.machine.faulted.Load(); err != nil {
			return *err
		}
		if err := c.err.Load(); err != nil {
			return *err
		}
		if c.Done(n) {
			return c.machine.executed()
		}
		if now := c.executed(); now != last {
			last = now
			limit.Reset(c.machine.cfg.Limit)
		}
		select {
		case <-c.doorbell:
		case <-limit.C:
			return fmt.Errorf("the card did not complete a submission in %v: an endless program, or more work than -limit allows", c.machine.cfg.Limit)
		}
	}
}

// executed names the methods that the card stored and did not carry out.
func (m *Machine) executed() error {
	if m.cfg.AllowNotExecuted {
		return nil
	}
	var names []string
	for _, n := range m.card.Stats().Engine.NotExecuted() {
		names = append(names, fmt.Sprintf("%s of class %04x", n.Name, n.Class))
	}
	if len(names) > 0 {
		return fmt.Errorf("the card does not carry out %s", strings.Join(names, ", "))
	}
	return nil
}

// events receives what the card reports about a channel.
type events struct{ c *Channel }

func (e events) ringDoorbell() {
	select {
	case e.c.doorbell <- struct{}{}:
	default:
	}
}

func (e events) stop(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	e.c.err.CompareAndSwap(nil, &err)
	e.ringDoorbell()
}

func (e events) Completed(card.EngineSet) { e.ringDoorbell() }

func (e events) Fault(f card.Fault) {
	if f.Kind == card.Translation {
		e.stop("no page at %#x, engine %v, reason %#x", f.VA, f.Engine, f.Reason)
		return
	}
	e.stop("%v, engine %v, class %04x, method %#x, data %#x (code %#x) %s", f.Kind, f.Engine, f.Class, f.Method, f.Data, f.Code, f.Text)
}
