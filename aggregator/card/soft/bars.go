package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// barWindow is BAR1 or BAR3: a window into an address space, or into VRAM as it
// lies while no instance block is set. It is guarded by Card.mu.
type barWindow struct {
	card *Card
	unit faultUnit
	BARState
	vm  vm
	hot [hotPages]hotPage
}

// BARState is what a window's block register says.
type BARState struct {
	Virtual bool
	Broken  bool   // the instance block is not in VRAM
	Inst    uint64 // of the instance block
}

// hotPage is a page of VRAM that the window shows, ready to be used. Drivers
// write through these windows byte by byte, millions of times: such an access
// must cost no look-up, and no pin, for VRAM needs none.
type hotPage struct {
	tag      uint64 // page number in the window plus one
	gen      uint64 // windowGen when it was looked up
	mem      []byte
	readOnly bool
}

const hotPages = 16

func (w *barWindow) init(c *Card, i int) {
	w.card = c
	w.unit = [2]faultUnit{gf100.ClientBAR1, gf100.ClientBAR3}[i]
	w.vm.card, w.vm.user, w.vm.owner = c, -1, anyOwner
}

// block acts on a write of the window's block register.
func (w *barWindow) block(v uint32) {
	w.Inst, w.Virtual = gf100.BlockMemory(v)
	w.hot = [hotPages]hotPage{}
	inst := w.card.vram.slice(w.Inst, gf100.InstanceSize)
	w.Broken = inst == nil
	if !w.Virtual || w.Broken {
		w.vm.tlb.Bind(shadowpt.Fermi, shadowpt.Space{})
	} else {
		w.vm.tlb.Bind(shadowpt.Fermi, instanceSpace(inst))
	}
}

func (w *barWindow) read(off uint64, p []byte) {
	if mem := w.quick(off, len(p), false); mem != nil {
		load(p, mem)
		return
	}
	w.slow(off, p, false)
}

func (w *barWindow) write(off uint64, p []byte) {
	if mem := w.quick(off, len(p), true); mem != nil {
		store(mem, p)
	} else {
		w.slow(off, p, true)
	}
	w.card.fifo.memoryChanged(anyOwner)
}

// quick returns the n bytes at off if they lie in one hot page, or nil.
func (w *barWindow) quick(off uint64, n int, write bool) []byte {
	page := off >> shadowpt.SmallShift
	h := &w.hot[page%hotPages]
	if h.tag != page+1 || h.gen != w.card.windowGen() || write && h.readOnly {
		return nil
	}
	at := int(off & (shadowpt.SmallPage - 1))
	if at+n > len(h.mem) {
		return nil
	}
	return h.mem[at : at+n]
}

// slow serves an access that is not quick: it walks the tables and reports faults. Bytes
// after a fault read as ones.
func (w *barWindow) slow(off uint64, p []byte, write bool) {
	if !w.Virtual {
		w.physical(off, p, write)
		return
	}
	var fault *engine.Fault
	done := 0
	w.card.access(shadowpt.SystemCoherent, func(t shadowpt.Target) {
		if t == shadowpt.Peer { // the host's memory went away
			fault = w.vm.fail(off+uint64(done), write, shadowpt.PageNotPresent)
			return
		}
		fault = w.each(off, p, write, &done)
	})
	if fault == nil {
		w.heat(off)
		return
	}
	if !write {
		fill(p[done:])
	}
	w.card.stats.BARFaults.Add(1)
	w.card.regs.mmuFault(w.unit, w.Inst, *fault)
	w.card.settle()
}

func (w *barWindow) physical(off uint64, p []byte, write bool) {
	mem := w.card.vram.slice(off, len(p))
	switch {
	case mem == nil:
		w.card.stats.BARFaults.Add(1)
		if !write {
			fill(p)
		}
	case write:
		store(mem, p)
	default:
		load(p, mem)
	}
}

// each moves p, run by run of memory, and counts the bytes done.
func (w *barWindow) each(off uint64, p []byte, write bool, done *int) *engine.Fault {
	if w.Broken {
		return w.vm.fail(off, write, shadowpt.NoChannel)
	}
	w.vm.sync()
	defer w.vm.writes.report()
	for *done < len(p) {
		part := p[*done:]
		mem, fault := w.vm.Bytes(off+uint64(*done), len(part), write)
		if fault != nil {
			return fault
		}
		part = part[:len(mem)]
		if write {
			store(mem, part)
		} else {
			load(part, mem)
		}
		*done += len(mem)
	}
	return nil
}

// heat caches the page at off, which has just been looked up, if it is VRAM.
func (w *barWindow) heat(off uint64) {
	base := off &^ (shadowpt.SmallPage - 1)
	pte, _, ok := w.vm.tlb.Cached(base)
	if !ok || pte.Target != shadowpt.VRAM || pte.Supervisor {
		return
	}
	page := off >> shadowpt.SmallShift
	w.hot[page%hotPages] = hotPage{
		tag: page + 1, gen: w.vm.gen + w.vm.flush, readOnly: pte.ReadOnly,
		mem: w.card.vram.slice(pte.Addr, shadowpt.SmallPage),
	}
}

// store writes p to mem, a naturally sized piece in one go: an engine that polls
// the dword must not see half of it.
func store(mem, p []byte) {
	switch len(p) {
	case 1:
		mem[0] = p[0]
	case 2:
		binary.LittleEndian.PutUint16(mem, binary.LittleEndian.Uint16(p))
	case 4:
		binary.LittleEndian.PutUint32(mem, binary.LittleEndian.Uint32(p))
	case 8:
		binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(p))
	default:
		copy(mem, p)
	}
}

// load is the reverse of store.
func load(p, mem []byte) { store(p, mem) }
