package bench

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var tables = scenario{
	name: "tables", about: "many entries of small pages are written through BAR3 while a channel uses the address space: neighbours, every eighth, or at random",
	cases: func(quick bool) (out []testCase) {
		n := uint64(pick(quick, 16<<10, 256<<10))
		for _, pattern := range patterns {
			out = append(out, alone(fmt.Sprintf("%s/entries=%d", pattern.name, n), 0, func(t *take, g *guest.Guest) {
				updates(t, g, n, &pattern)
			}))
		}
		return out
	},
}

// entryPattern is an order in which entries are written.
type entryPattern struct {
	name  string
	every uint64                   // entries between invalidates
	run   uint64                   // neighbours that are written at once
	at    func(i, n uint64) uint64 // index of the i-th run
}

var patterns = []entryPattern{
	{"dense", 4096, 4096, func(i, _ uint64) uint64 { return i * 4096 }},
	{"strided", 4096, 1, func(i, n uint64) uint64 { return i*8%n + i*8/n }},
	{"sparse", 512, 1, scattered},
}

// scattered is an order without a pattern. If n is a power of two, each index below it comes once.
func scattered(i, n uint64) uint64 { return i * 0x9e3779b1 % n }

// poolPages is how many pages of VRAM entries point to. Each page begins with its own number.
const poolPages = 256

// poolPage is the page that entry i points to.
func poolPage(i uint64) uint64 { return (i*2654435761 + i>>7) % poolPages }

// entrySpace is an address space with a channel and a pool.
type entrySpace struct {
	g         *guest.Guest
	space     *guest.Space
	ch        *guest.Channel
	pool, out buffer
}

func newEntrySpace(g *guest.Guest) *entrySpace {
	e := &entrySpace{g: g, space: get(g.NewSpace())}
	e.pool = mapped(g, e.space, vaVRAM, poolPages*shadowpt.SmallPage, false)
	e.out = mapped(g, e.space, vaBack, shadowpt.SmallPage, true)
	for i := range uint64(poolPages) {
		must(e.pool.Write(i*shadowpt.SmallPage, le.AppendUint64(nil, ^i)))
	}
	return e
}

// start makes the channel, which puts the address space in use.
func (e *entrySpace) start() {
	e.ch = get(e.g.NewChannel(1, e.space))
	must(e.ch.Finish())
}

// fill writes run entries from index at, as if they were those from index as.
func (e *entrySpace) fill(at, run, as uint64) {
	must(e.space.Put(vaTables+at*shadowpt.SmallPage, run*shadowpt.SmallPage, false, func(k uint64) uint64 {
		return shadowpt.PTE{Valid: true, Target: shadowpt.VRAM, Addr: e.pool.Addr + poolPage(as+k)*shadowpt.SmallPage}.Encode()
	}))
}

// verify has the GPU read through 64 of n entries, from one of the scattered on.
func (e *entrySpace) verify(n, from uint64) {
	var entries []uint64
	var p guest.Push
	for k := range uint64(64) {
		i := scattered(from+k, n)
		entries = append(entries, i)
		p.CopyLines(guest.M2MF, guest.Surface{VA: e.out.va + k*8, Pitch: 8}, guest.Surface{VA: vaTables + i*shadowpt.SmallPage, Pitch: 8}, 8, 1)
	}
	must(e.ch.Submit(p.Words...), e.ch.Finish())
	for k, i := range entries {
		if got, want := le.Uint64(e.out.Data[k*8:]), ^poolPage(i); got != want {
			must(fmt.Errorf("through entry %d the GPU read %#x, want %#x", i, got, want))
		}
	}
}

func updates(t *take, g *guest.Guest, n uint64, p *entryPattern) {
	e := newEntrySpace(g)
	e.start()
	for at := uint64(0); at < n; at += shadowpt.SmallEntries { // makes the tables
		must(e.space.Unmap(vaTables+at*shadowpt.SmallPage, shadowpt.SmallPage, guest.Small))
	}
	settle(g)
	took := t.phase("update", func() {
		for i := range n / p.run {
			at := p.at(i, n)
			if e.fill(at, p.run, at); (i+1)*p.run%p.every == 0 {
				must(e.space.Invalidate())
			}
		}
		must(e.space.Invalidate())
		settle(g)
	})
	t.metric("entries/s", float64(n)/took.Seconds())
	t.phase("use", func() {
		must(e.ch.Finish())
		settle(g)
	})
	e.verify(n, 0)
}

var growth = scenario{
	name: "growth", about: "one entry is changed in tables that map 128 MiB, 10 and 100 times as much; each change is a write, a TLB invalidate and a submission",
	cases: func(quick bool) (out []testCase) {
		for _, times := range pick(quick, []uint64{1, 10}, []uint64{1, 10, 100}) {
			entries := times * shadowpt.SmallEntries
			out = append(out, testCase{
				name: fmt.Sprint("tables=", times), shape: common,
				prepare: func(s *server) any { return populate(s, entries) },
				run:     func(t *take) { t.state.(*entrySpace).change(t, entries, uint64(pick(quick, 5, 20))) },
			})
		}
		return out
	},
}

// populate makes a guest whose tables are full of valid entries.
func populate(s *server, entries uint64) *entrySpace {
	e := newEntrySpace(s.attach(0, 0))
	for at := uint64(0); at < entries; at += shadowpt.SmallEntries {
		must(s.ctx.Err())
		e.fill(at, shadowpt.SmallEntries, at)
	}
	must(e.space.Invalidate())
	e.start()
	e.verify(entries, 0)
	settle(e.g)
	return e
}

// change changes one entry at a time. It restores the entry without an invalidate, so the next
// change includes that.
func (e *entrySpace) change(t *take, entries, changes uint64) {
	for k := range changes {
		at := scattered(k, entries)
		t.phase("", func() {
			e.fill(at, 1, at+1-k%2)
			must(e.space.Invalidate(), e.ch.Finish())
			settle(e.g)
		})
		e.fill(at, 1, at)
		settle(e.g)
	}
	e.verify(entries, changes) // not those of the last change
}
