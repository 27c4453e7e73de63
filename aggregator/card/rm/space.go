package rm

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// space is an address space. Its record has what the guest's tables map, also what the card does not reach: memory that is
// not registered, and pages that are only for drivers, since all channels on the card are a user's.
type space struct {
	share  *share
	number uint32
	dirty  bool // changed since the last invalidate; share.changing
	plan   plan // share.changing

	mu     sync.Mutex
	record pieces // changed with share.changing
}

// NewSpace implements card.Share.
func (s *share) NewSpace() (card.Space, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	sp := &space{share: s, number: s.spaces.take()}
	sp.plan.space = sp
	if err := s.worker.NewSpace(sp.number); err != nil {
		s.spaces.give(sp.number)
		return nil, noRoom(err)
	}
	s.bySpace[sp] = struct{}{}
	return sp, nil
}

// Free implements card.Space.
func (sp *space) Free() {
	s := sp.share
	s.changing.Lock()
	defer s.changing.Unlock()
	delete(s.bySpace, sp)
	sp.record.each(func(p *piece) { s.count(-1, p) })
	s.invalidate(sp) // the driver takes the unmaps for effective, and may give the directory to another space
	s.must(s.worker.FreeSpace(sp.number))
	s.spaces.give(sp.number)
}

// noRoom makes card.ErrTables of the driver's answers that mean it.
func noRoom(err error) error {
	if nvrm.Is(err, nvrm.StatusNoMemory) || nvrm.Is(err, nvrm.StatusResources) {
		return fmt.Errorf("%w: %w", card.ErrTables, err)
	}
	return err
}

// note changes the record.
func (sp *space) note(add bool, x piece) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if add {
		sp.record.add(x)
		sp.share.count(1, &x)
	} else {
		sp.record.remove(x.va)
		sp.share.count(-1, &x)
	}
}

func (sp *space) overlap(list []piece, va, end uint64) []piece {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.record.overlap(list, va, end)
}

// step is the step that maps a piece.
func (p *piece) step() worker.Step {
	return worker.Step{
		Op: worker.Map, Object: p.object, VA: p.va, Size: p.size, Offset: p.off, Page: p.page,
		ReadOnly: p.flags&shadowpt.ReadOnly != 0, Kind: p.kind,
	}
}

var (
	errEnded  = errors.New("the guest's process has ended")
	errSparse = errors.New("the host's driver has no sparse pages in the ranges that it lets us reserve")
)

// refuses says why the card refuses to map pages.
func (sp *space) refuses(c *card.Change) error {
	end := c.VA + c.Size
	switch {
	case sp.share.dead.Load():
		return errEnded
	case c.Flags&shadowpt.Mapped == 0:
		return errSparse
	case !slices.ContainsFunc(nvrm.Guest[:], func(r [2]uint64) bool { return c.VA >= r[0] && c.VA < end && end <= r[1] }):
		return fmt.Errorf("map %#x+%#x: the host's driver keeps the addresses outside of %#x", c.VA, c.Size, nvrm.Guest)
	}
	if sp.share.pieces+len(c.Addrs) >= sp.share.mostPieces {
		return card.ErrTables
	}
	return nil
}

// Steps of one call of the worker, about.
const mostSteps = 2048

// Apply implements card.Space.
func (sp *space) Apply(list []card.Change) (done int, err error) {
	sp.share.changing.Lock()
	defer sp.share.changing.Unlock()
	p := &sp.plan
	for i := range list {
		c := &list[i]
		p.change = i
		if c.Unmaps() {
			p.remove(c.VA, c.VA+c.Size)
		} else {
			refused := sp.refuses(c)
			if c.Flags&shadowpt.Over != 0 {
				p.pause(true) // no channel may find the range without pages
				p.remove(c.VA, c.VA+c.Size)
			}
			if refused != nil {
				if at, err := p.run(); err != nil {
					return sp.undo(list, at, err)
				}
				return i, refused
			}
			sp.mapPages(c)
		}
		if len(p.steps) >= mostSteps {
			if at, err := p.run(); err != nil {
				return sp.undo(list, at, err)
			}
		}
	}
	if at, err := p.run(); err != nil {
		return sp.undo(list, at, err)
	}
	return len(list), nil
}

// undo unmaps what was mapped of a change that the card refused, and resumes channels.
func (sp *space) undo(list []card.Change, at int, err error) (int, error) {
	for at < len(list) && list[at].Unmaps() && sp.share.dead.Load() {
		at++ // nothing is mapped any more
	}
	if at == len(list) {
		return at, nil
	}
	sp.plan.remove(list[at].VA, list[at].VA+list[at].Size)
	_, _ = sp.plan.run() // the worker has ended if it fails
	return at, noRoom(err)
}

// mapPages plans the pages of a change, in pieces that lie together.
func (sp *space) mapPages(c *card.Change) {
	bus := c.Target.System()
	for i, n := uint64(0), c.Pages(); i < n; {
		addr, together := c.PageAddr(i), uint64(1)
		if c.Addrs == nil {
			together = n
		}
		for i+together < n && c.Addrs != nil && c.Addrs[i+together] == addr+together*c.Page {
			together++
		}
		sp.mapRun(piece{
			va: c.VA + i*c.Page, size: together * c.Page, addr: addr, page: uint32(min(c.Page, largePage)),
			flags: c.Flags & (shadowpt.ReadOnly | shadowpt.Supervisor), kind: c.Kind, bus: bus,
		})
		i += together
	}
}

// smaller is the next size of pages.
var smaller = map[uint32]uint32{largePage: bigPage, bigPage: page}

// mapRun plans a range that lies together by its addresses. It is in several objects perhaps.
func (sp *space) mapRun(x piece) {
	for x.size > 0 {
		part := x
		var together uint64
		part.object, part.off, together = sp.share.locate(&x)
		part.size = min(x.size, together)
		for part.page > page && (part.object != cardObject || (part.va|part.off|part.size)%uint64(part.page) != 0) {
			part.page = smaller[part.page] // memory of the host lies together by the smallest
		}
		if !x.bus {
			sp.share.vram.touch(x.addr-sp.share.base(), part.size)
		}
		sp.plan.add(part)
		x = x.part(x.va+part.size, x.size-part.size)
	}
}

// again maps pieces anew whose memory has another place, or none: those that which picks. share.changing is held. A piece
// that the driver refuses is what it was.
func (sp *space) again(which func(*piece) bool) error {
	var list []piece
	sp.record.each(func(p *piece) {
		if which(p) {
			list = append(list, *p)
		}
	})
	for _, x := range list {
		sp.plan.remove(x.va, x.end())
		x.depth = 0
		sp.mapRun(x)
	}
	_, err := sp.plan.run()
	return err
}

// read copies memory at va as the guest's channels would.
func (sp *space) read(va uint64, p []byte) bool {
	for len(p) > 0 {
		sp.mu.Lock()
		x := sp.record.at(va)
		if x == nil || x.object == noObject {
			sp.mu.Unlock()
			return false
		}
		addr, n, bus := x.addr+(va-x.va), min(x.end()-va, uint64(len(p))), x.bus
		sp.mu.Unlock()
		if !sp.share.readAt(addr, bus, p[:n]) {
			return false
		}
		va, p = va+n, p[n:]
	}
	return true
}
