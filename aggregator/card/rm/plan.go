package rm

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// maxDepth is how often parts of a piece are unmapped before what is left of it is mapped anew. The host's kernel stops at some
// hundred.
const maxDepth = 12

// plan collects steps of one space, with what they change in its record. share.changing is held.
type plan struct {
	space  *space
	steps  []worker.Step
	of     []int // by step: the change that it is for
	log    []entry
	change int // that is being planned
	now    piece
	since  int  // the change that now began with
	paused bool // the space's channels, by the steps
	found  []piece
}

// entry is a change of the record that a step makes.
type entry struct {
	step  int // that it goes with, if any
	of    int // the change
	add   bool
	piece piece
}

// record changes the space's record.
func (p *plan) record(add bool, x piece, of int) {
	p.log = append(p.log, entry{len(p.steps), of, add, x})
	p.space.note(add, x)
}

func (p *plan) step(s worker.Step, of int) {
	p.steps, p.of = append(p.steps, s), append(p.of, of)
}

// add maps a piece. Those that continue one another become one.
func (p *plan) add(x piece) {
	if p.now.size > 0 && p.now.continues(&x) {
		p.now.size += x.size
		return
	}
	p.close()
	p.now, p.since = x, p.change
}

// close makes a step of the piece that may be continued.
func (p *plan) close() {
	if x := p.now; x.size > 0 {
		p.now = piece{}
		p.put(x, p.since)
	}
}

// put enters a piece and maps it, if it has memory.
func (p *plan) put(x piece, of int) {
	p.record(true, x, of)
	if x.object != noObject {
		p.step(x.step(), of)
	}
}

func (p *plan) pause(on bool) {
	if p.paused != on {
		p.close()
		op := worker.Pause
		if p.paused = on; !on {
			op = worker.Resume
		}
		p.step(worker.Step{Op: op}, p.change)
	}
}

// remove unmaps what is mapped in a range.
func (p *plan) remove(va, end uint64) {
	p.close()
	p.found = p.space.overlap(p.found[:0], va, end)
	for _, x := range p.found {
		from, to := max(va, x.va), min(end, x.end())
		var rest []piece
		for _, r := range [2][2]uint64{{x.va, from}, {to, x.end()}} {
			if r[0] < r[1] {
				rest = append(rest, x.part(r[0], r[1]-r[0]))
			}
		}
		if x.object == noObject {
			p.record(false, x, p.change)
			for _, r := range rest {
				p.record(true, r, p.change)
			}
			continue
		}
		anew := len(rest) > 0 && x.depth >= maxDepth
		if anew {
			p.pause(true)
			from, to = x.va, x.end()
		}
		p.record(false, x, p.change)
		if !anew {
			for i := range rest {
				rest[i].depth++
				p.record(true, rest[i], p.change)
			}
		}
		p.unmap(x.object, from, to)
		for i := range rest {
			if anew {
				rest[i].depth = 0
				p.put(rest[i], p.change)
			}
		}
	}
}

// unmap makes a step, or continues the last one.
func (p *plan) unmap(object uint32, va, end uint64) {
	if n := len(p.steps); n > 0 {
		if l := &p.steps[n-1]; l.Op == worker.Unmap && l.Object == object && l.VA+l.Size == va {
			l.Size += end - va
			for i := len(p.log) - 1; i >= 0 && p.log[i].step == n; i-- { // what was entered for a step of its own
				p.log[i].step--
			}
			return
		}
	}
	p.step(worker.Step{Op: worker.Unmap, Object: object, VA: va, Size: end - va}, p.change)
}

// run has the worker carry the steps out. If it refuses one, the record is again what it was before that step; change says
// which change the step was for.
func (p *plan) run() (change int, err error) {
	p.pause(false)
	p.close()
	s := p.space
	done := len(p.steps)
	if done > 0 {
		s.dirty = true
		done, err = s.share.apply(s.number, p.steps)
	}
	if err != nil {
		change = p.of[done]
		for _, e := range slices.Backward(p.log) {
			if e.step >= done && e.of >= change { // entries without a step go with the next one
				s.note(!e.add, e.piece)
			}
		}
		p.paused = false
		for _, x := range p.steps[:done] {
			p.paused = x.Op == worker.Pause || p.paused && x.Op != worker.Resume
		}
	}
	p.steps, p.of, p.log = p.steps[:0], p.of[:0], p.log[:0]
	return change, err
}
