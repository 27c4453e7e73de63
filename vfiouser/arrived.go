package vfiouser

import "github.com/umbra-gpu/umbra/vfiouser/wire"

// arrived holds received descriptors until their message is complete.
//
// The kernel ends a read after the sendmsg that carried descriptors, but earlier data may come
// first in the same read. Descriptors belong to the message that begins in the same sendmsg: the
// last message that begins in the read or, if a client put several messages into one sendmsg, the
// last one that may have descriptors.
type arrived struct {
	groups []fdGroup
}

type fdGroup struct {
	start int // of the message, in the receive buffer
	fds   []int
	cut   bool // some were lost or were more than any message may have
}

func (a *arrived) arrive(c *conn, from, to int, fds []int, cut bool) {
	start := c.messageFor(from, to)
	g := a.at(start)
	if g == nil {
		a.groups = append(a.groups, fdGroup{start: start})
		g = &a.groups[len(a.groups)-1]
	}
	g.cut = g.cut || cut
	// One more than any message may have is enough to have it refused.
	keep := min(len(fds), maxMsgFDs+1-len(g.fds))
	g.fds = append(g.fds, fds[:keep]...)
	c.srv.discards.close(fds[keep:]...)
}

// messageFor returns the start of the message to which descriptors in the bytes from..to
// belong.
func (c *conn) messageFor(from, to int) int {
	best, bestTakes := c.r, false // if none begins here, the one in progress
	for at := c.r; at < to; {
		takes, size := true, 0
		if to-at >= wire.HeaderSize {
			h := wire.Parse[wire.Header](c.buf[at:])
			row := rowOf(h.Command)
			takes, size = row != nil && row.maxFDs > 0, int(h.Size)
		}
		if at >= from && (takes || !bestTakes) {
			best, bestTakes = at, takes
		}
		if size < wire.HeaderSize {
			break
		}
		at += size
	}
	return best
}

func (a *arrived) at(start int) *fdGroup {
	for i := range a.groups {
		if a.groups[i].start == start {
			return &a.groups[i]
		}
	}
	return nil
}

// of takes out the descriptors of the message at start.
func (a *arrived) of(start int) (fds []int, cut bool) {
	if len(a.groups) == 0 {
		return nil, false
	}
	g := a.at(start)
	if g == nil {
		return nil, false
	}
	fds, cut = g.fds, g.cut
	*g = a.groups[len(a.groups)-1]
	a.groups = a.groups[:len(a.groups)-1]
	return fds, cut
}

// shift follows the receive buffer's content by n bytes to its start.
func (a *arrived) shift(n int) {
	for i := range a.groups {
		a.groups[i].start -= n
	}
}

func (a *arrived) drop() (fds []int) {
	for _, g := range a.groups {
		fds = append(fds, g.fds...)
	}
	a.groups = nil
	return fds
}
