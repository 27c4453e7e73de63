package fakeworker

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// Apply implements worker.Worker.
func (w *Worker) Apply(id uint32, steps []worker.Step) (done int, err error) {
	err = w.call(func() error {
		s := w.spaces[id]
		if s == nil {
			w.Fail("apply: there is no space %d", id)
		}
		for i := range steps {
			if err := w.step(id, s, &steps[i]); err != nil {
				return err
			}
			done++
		}
		return nil
	})
	return done, err
}

func (w *Worker) step(id uint32, s *space, x *worker.Step) error {
	switch x.Op {
	case worker.Map:
		if status := w.Refuse(*x); status != 0 {
			return &nvrm.Error{Call: "map", Status: status}
		}
		w.doMap(s, x)
	case worker.Unmap:
		w.unmap(s, x)
	default:
		for _, c := range w.channels {
			if c.cfg.Space == id {
				c.paused = x.Op == worker.Pause
			}
		}
		return nil
	}
	s.stale = true
	return nil
}

func (w *Worker) doMap(s *space, x *worker.Step) {
	o, ok := w.objects[x.Object]
	if !ok || x.Size == 0 || x.Offset+x.Size > uint64(len(o.mem)) {
		w.Fail("map %#x bytes of object %d at %#x of it", x.Size, x.Object, x.Offset)
	}
	if p := uint64(x.Page); p != page && (!o.card || x.Offset%p != 0) || (x.VA|x.Size)%p != 0 || x.Offset%page != 0 {
		w.Fail("map at %#x, %#x of object %d, by pages of %#x", x.VA, x.Offset, x.Object, p)
	}
	inside := false
	for _, r := range append(nvrm.Guest[:], [2]uint64{nvrm.OwnFirst, nvrm.OwnEnd}) {
		inside = inside || x.VA >= r[0] && x.VA+x.Size <= r[1]
	}
	if !inside {
		w.Fail("map at %#x: nobody reserved that", x.VA)
	}
	for at := uint64(0); at < x.Size; at += page {
		if _, ok := s.pages[(x.VA+at)/page]; ok {
			w.Fail("map over a map at %#x", x.VA+at)
		}
		s.pages[(x.VA+at)/page] = leaf{x.Object, x.Offset + at, x.ReadOnly}
	}
	s.maps = append(s.maps, mapping{x.VA, x.Size, x.Object, uint64(x.Page), 0})
}

func (w *Worker) unmap(s *space, x *worker.Step) {
	var rest []mapping
	found := uint64(0)
	s.maps = slices.DeleteFunc(s.maps, func(m mapping) bool {
		from, to := max(m.va, x.VA), min(m.va+m.size, x.VA+x.Size)
		if m.object != x.Object || from >= to {
			return false
		}
		found += to - from
		if (from|to)%m.page != 0 {
			w.Fail("unmap %#x to %#x of pages of %#x", from, to, m.page)
		}
		whole := from == m.va && to == m.va+m.size
		if !whole {
			if w.deepest = max(w.deepest, m.depth+1); m.depth+1 > MaxDepth {
				w.Fail("a part of a part %d times at %#x", m.depth+1, m.va)
			}
		}
		for _, r := range [][2]uint64{{m.va, from}, {to, m.va + m.size}} {
			if r[0] < r[1] {
				rest = append(rest, mapping{r[0], r[1] - r[0], m.object, m.page, m.depth + 1})
			}
		}
		for at := from; at < to; at += page {
			delete(s.pages, at/page)
		}
		return true
	})
	if s.maps = append(s.maps, rest...); found != x.Size {
		w.Fail("unmap %#x bytes at %#x of object %d: %#x are mapped", x.Size, x.VA, x.Object, found)
	}
}
