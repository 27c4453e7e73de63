package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var tables = scene.Scenario{
	Name: "tables", About: "many entries of small pages are written through BAR3 while a channel uses the address space: neighbours, every eighth, or at random",
	Cases: func(p scene.Params) (out []scene.Case) {
		n := pick(p, 16<<10, 256<<10)
		for _, pattern := range patterns {
			out = append(out, alone(fmt.Sprintf("%s/entries=%d", pattern.name, n), 0, func(t *scene.Take, g *guest.Guest) error {
				return updates(t, g, n, pattern)
			}))
		}
		return out
	},
}

// entryPattern is an order in which entries are written.
type entryPattern struct {
	name  string
	every int                      // entries between invalidates
	run   int                      // neighbours that are written at once
	at    func(i, n uint64) uint64 // index of the i-th run
}

var patterns = []entryPattern{
	{"dense", 4096, 4096, func(i, _ uint64) uint64 { return i * 4096 }},
	{"strided", 4096, 1, func(i, n uint64) uint64 { return i*8%n + i*8/n }},
	{"sparse", 512, 1, func(i, n uint64) uint64 { return i * 0x9e3779b1 % n }}, // an odd factor: each index once
}

// The pool is VRAM that entries point to. Each of its pages begins with its own number.
const (
	poolPages = 256
	poolSize  = poolPages * shadowpt.SmallPage
)

// poolPage is the page that entry i points to.
func poolPage(i uint64) uint64 { return (i*2654435761 + i>>7) % poolPages }

// entrySpace is an address space with a channel and a pool.
type entrySpace struct {
	g     *guest.Guest
	space *guest.Space
	ch    *guest.Channel
	pool  buffer
	out   buffer
}

func newEntrySpace(g *guest.Guest) (*entrySpace, error) {
	e := &entrySpace{g: g}
	var err error
	if e.space, err = g.NewSpace(); err != nil {
		return nil, err
	}
	if e.pool, err = mapped(g, e.space, vaVRAM, poolSize, false); err != nil {
		return nil, err
	}
	if e.out, err = mapped(g, e.space, vaBack, shadowpt.SmallPage, true); err != nil {
		return nil, err
	}
	for i := range uint64(poolPages) {
		if err := e.pool.Write(i*shadowpt.SmallPage, le.AppendUint64(nil, ^i)); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// start makes the channel, which puts the address space in use.
func (e *entrySpace) start() (err error) {
	if e.ch, err = e.g.NewChannel(1, e.space); err != nil {
		return err
	}
	return e.ch.Finish()
}

func (e *entrySpace) entry(i uint64) uint64 {
	return shadowpt.PTE{Valid: true, Target: shadowpt.VRAM, Addr: e.pool.Addr + poolPage(i)*shadowpt.SmallPage}.Encode()
}

// put writes run entries from index at.
func (e *entrySpace) put(at, run uint64) error {
	return e.space.Put(vaTables+at*shadowpt.SmallPage, run*shadowpt.SmallPage, false, func(k uint64) uint64 { return e.entry(at + k) })
}

// verify has the GPU read through 64 of n entries.
func (e *entrySpace) verify(n, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, n))
	var entries []uint64
	var p guest.Push
	for k := range uint64(64) {
		i := r.Uint64N(n)
		entries = append(entries, i)
		p.CopyLines(guest.M2MF, guest.Surface{VA: e.out.va + k*8, Pitch: 8}, guest.Surface{VA: vaTables + i*shadowpt.SmallPage, Pitch: 8}, 8, 1)
	}
	if err := errors.Join(e.ch.Submit(p.Words...), e.ch.Finish()); err != nil {
		return err
	}
	for k, i := range entries {
		if got, want := le.Uint64(e.out.Data[k*8:]), ^poolPage(i); got != want {
			return fmt.Errorf("through entry %d the GPU read %#x, want %#x", i, got, want)
		}
	}
	return nil
}

func updates(t *scene.Take, g *guest.Guest, n int, p entryPattern) error {
	e, err := newEntrySpace(g)
	if err != nil {
		return err
	}
	if err := e.start(); err != nil {
		return err
	}
	all := (uint64(n) + shadowpt.SmallEntries - 1) / shadowpt.SmallEntries * shadowpt.SmallEntries
	for at := uint64(0); at < all; at += shadowpt.SmallEntries {
		if err := e.space.Put(vaTables+at*shadowpt.SmallPage, shadowpt.SmallPage, false, func(uint64) uint64 { return 0 }); err != nil {
			return err
		}
	}
	if err := errors.Join(e.space.Invalidate(), settle(g)); err != nil {
		return err
	}
	err = t.Phase("update", func() error {
		since := 0
		for i := range uint64(n / p.run) {
			if err := e.put(p.at(i, uint64(n)), uint64(p.run)); err != nil {
				return err
			}
			if since += p.run; since >= p.every {
				since = 0
				if err := e.space.Invalidate(); err != nil {
					return err
				}
			}
		}
		return errors.Join(e.space.Invalidate(), settle(g))
	})
	if err != nil {
		return err
	}
	t.Rate("entries/s", float64(n))
	if err := t.Phase("use", func() error { return errors.Join(e.ch.Finish(), settle(g)) }); err != nil {
		return err
	}
	return e.verify(uint64(n), uint64(n))
}

var growth = scene.Scenario{
	Name: "growth", About: "one entry is changed in tables that map 128 MiB, 10 and 100 times as much; each change is a write, a TLB invalidate and a submission",
	Cases: func(p scene.Params) (out []scene.Case) {
		changes := pick(p, 5, 20)
		for _, times := range pick(p, []int{1, 10}, []int{1, 10, 100}) {
			out = append(out, scene.Case{
				Name: fmt.Sprint("tables=", times), Shape: setup.Common,
				Prepare: func(ctx context.Context, s *setup.Server) (io.Closer, error) { return populate(ctx, s, times) },
				Run:     func(_ context.Context, t *scene.Take) error { return t.State.(*populated).change(t, changes) },
			})
		}
		return out
	},
}

// populated is a guest whose tables are full of valid entries.
type populated struct {
	*entrySpace
	entries uint64
	rng     *rand.Rand
}

func populate(ctx context.Context, s *setup.Server, times int) (_ *populated, err error) {
	g, err := s.Endpoints[0].Attach(ctx, guest.Config{Timeout: patience})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	e, err := newEntrySpace(g)
	if err != nil {
		return nil, err
	}
	p := &populated{e, uint64(times) * shadowpt.SmallEntries, rand.New(rand.NewPCG(1, uint64(times)))}
	for at := uint64(0); at < p.entries; at += shadowpt.SmallEntries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := e.put(at, shadowpt.SmallEntries); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(e.space.Invalidate(), e.start()); err != nil {
		return nil, err
	}
	return p, errors.Join(e.verify(p.entries, 1), settle(g))
}

// change changes one entry at a time. It restores the entry without an invalidate, so the next
// change includes that.
func (p *populated) change(t *scene.Take, changes int) error {
	for k := 0; k < changes; k++ {
		at := p.rng.Uint64N(p.entries)
		entry := p.entry(at)
		if k%2 == 0 {
			entry = p.entry(at + 1)
		}
		err := t.Phase("change", func() error {
			err := p.space.Put(vaTables+at*shadowpt.SmallPage, shadowpt.SmallPage, false, func(uint64) uint64 { return entry })
			return errors.Join(err, p.space.Invalidate(), p.ch.Finish(), settle(p.g))
		})
		if err != nil {
			return err
		}
		if err := errors.Join(p.put(at, 1), settle(p.g)); err != nil {
			return err
		}
	}
	return p.verify(p.entries, uint64(changes))
}

// Close disconnects the guest.
func (p *populated) Close() error { return p.g.Close() }
