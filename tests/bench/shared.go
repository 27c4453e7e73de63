package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// What a guest in this process copies to and fro: two buffers in its own memory and
// in its VRAM, at these addresses.
const (
	guestArea = 8 << 20
	guestSrc  = 0x10_0000_0000
	guestVRAM = 0x11_0000_0000
	guestDst  = 0x12_0000_0000
)

// guestSizes are copied by one guest, from its memory to VRAM.
var guestSizes = []uint64{4 << 10, 64 << 10, 1 << 20, 4 << 20}

// crowds are the numbers of guests that copy at the same time.
var crowds = []int{1, 2, 4, 8, 16, 32}

const (
	submissions = 300                    // of one measurement of their latency
	crowdTime   = 400 * time.Millisecond // that a crowd copies
	crowdVRAM   = 64 << 20
	crowdCopy   = 256 << 10
)

// inGuest is a guest in this process with a channel and its buffers.
type inGuest struct {
	*guest.Guest
	ch   *guest.Channel
	vram *guest.Buffer
	src  *guest.Buffer
	dst  *guest.Buffer
}

func newInGuest(ctx context.Context, socket string, area uint64) (_ *inGuest, err error) {
	g := &inGuest{}
	if g.Guest, err = guest.Attach(ctx, socket, guest.Config{RAM: 2*area + 1<<20}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	space, err := g.NewSpace()
	if err != nil {
		return nil, err
	}
	for _, b := range []struct {
		buf   **guest.Buffer
		alloc func(uint64) (*guest.Buffer, error)
		va    uint64
	}{{&g.src, g.AllocRAM, guestSrc}, {&g.vram, g.AllocVRAM, guestVRAM}, {&g.dst, g.AllocRAM, guestDst}} {
		if *b.buf, err = b.alloc(area); err != nil {
			return nil, err
		}
		if err = space.Map(b.va, *b.buf, guest.Small); err != nil {
			return nil, err
		}
	}
	for i, data := 0, g.src.Data; i < len(data); i++ {
		data[i] = byte(i * 7)
	}
	g.ch, err = g.NewChannel(1, space)
	return g, err
}

// round copies n bytes to VRAM and back, and waits.
func (g *inGuest) round(n uint64) error {
	if err := g.ch.Copy(guest.M2MF, guestVRAM, guestSrc, n); err != nil {
		return err
	}
	if err := g.ch.Copy(guest.M2MF, guestDst, guestVRAM, n); err != nil {
		return err
	}
	return g.ch.Finish()
}

// verify wants what the rounds have moved to be there.
func (g *inGuest) verify(n uint64) error {
	if !bytes.Equal(g.src.Data[:n], g.dst.Data[:n]) {
		return errors.New("the copies went wrong")
	}
	return nil
}

// figuresOf one guest in nanoseconds, by name.
func figuresOf(ctx context.Context, socket string) (map[string]float64, error) {
	out := map[string]float64{}
	began := time.Now()
	g, err := newInGuest(ctx, socket, guestArea)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	out["attach, bring-up, tables, channel"] = float64(time.Since(began))
	var each []float64
	for range submissions {
		began := time.Now()
		f, err := g.ch.Fence()
		if err == nil {
			err = g.Poll(f)
		}
		if err != nil {
			return nil, err
		}
		each = append(each, float64(time.Since(began)))
	}
	out["empty submission, to its fence"] = median(each)
	for _, n := range guestSizes {
		var each []float64
		for range 20 {
			began := time.Now()
			if err := g.round(n); err != nil {
				return nil, err
			}
			each = append(each, float64(time.Since(began)))
		}
		out[copyName(n)] = median(each)
		if err := g.verify(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func copyName(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("copy of %d KiB to VRAM and back", n>>10)
	}
	return fmt.Sprintf("copy of %d MiB to VRAM and back", n>>20)
}

// shared measures a virtual GPU against the whole card, and a card with many guests.
func (b *bench) shared(ctx context.Context) error {
	b.section().Notes = []string{
		"virtual / whole: time on a virtual GPU by time on a card of one's own, in turns in this run",
		"a crowd's guests copy 256 KiB to VRAM and back, each as fast as it can; share: the least of a guest by the mean",
	}
	if err := b.overhead(ctx); err != nil {
		return err
	}
	for _, n := range crowds {
		if err := b.crowd(ctx, n); err != nil {
			return fmt.Errorf("%d guests: %w", n, err)
		}
	}
	return b.sharedProbe(ctx)
}

func (b *bench) overhead(ctx context.Context) (err error) {
	whole, err := stand.New(stand.Config{Card: soft.Config{VRAM: 256 << 20}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	virtual, err := stand.NewShared(soft.Config{VRAM: 256 << 20}, 1, 128<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, virtual.Close()) }()
	times, ratios := map[string][]float64{}, map[string][]float64{}
	for range b.repeat {
		w, err := figuresOf(ctx, whole.Socket())
		if err != nil {
			return err
		}
		v, err := figuresOf(ctx, virtual.GPUs[0].Socket)
		if err != nil {
			return err
		}
		for name := range w {
			times[name] = append(times[name], v[name])
			ratios[name] = append(ratios[name], v[name]/w[name])
		}
	}
	names := []string{"attach, bring-up, tables, channel", "empty submission, to its fence"}
	for _, n := range guestSizes {
		names = append(names, copyName(n))
	}
	for _, name := range names {
		b.add("virtual GPU: "+name, nanoseconds, times[name])
		b.add("  virtual / whole", ratio, ratios[name])
	}
	return nil
}

// crowd has n guests copy at the same time.
func (b *bench) crowd(ctx context.Context, n int) (err error) {
	s, err := stand.NewShared(soft.Config{VRAM: 3 << 30}, n, crowdVRAM)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	guests := make([]*inGuest, n)
	for i := range guests {
		if guests[i], err = newInGuest(ctx, s.GPUs[i].Socket, crowdCopy); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, guests[i].Close()) }()
	}
	var sums, shares []float64
	for range b.repeat {
		rounds := make([]float64, n)
		errs := make([]error, n)
		var all sync.WaitGroup
		began := time.Now()
		for i, g := range guests {
			all.Go(func() {
				for time.Since(began) < crowdTime && errs[i] == nil {
					errs[i] = g.round(crowdCopy)
					rounds[i]++
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		for i, g := range guests {
			if err := errors.Join(errs[i], g.verify(crowdCopy)); err != nil {
				return err
			}
		}
		total := 0.0
		for _, r := range rounds {
			total += r
		}
		sums = append(sums, total*2*crowdCopy/float64(took))
		shares = append(shares, slices.Min(rounds)*float64(n)/total)
	}
	b.add(fmt.Sprintf("%d guests together", n), bandwidth, sums)
	b.add("  least share / mean", ratio, shares)
	return nil
}

// sharedProbe has a stock kernel probe a virtual GPU and a card of its own.
func (b *bench) sharedProbe(ctx context.Context) error {
	probe := func(socket string) (float64, error) {
		vm, err := lab.Start(ctx, lab.Config{Kernel: accessKernel, Sockets: []string{socket}, Progress: b.log})
		if err != nil {
			return 0, err
		}
		defer vm.Close()
		var r proto.ModprobeResult
		if err := vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &r); err != nil {
			return 0, err
		}
		for _, m := range r.Loaded {
			if m.Name == "nouveau" {
				return float64(m.InitNS), nil
			}
		}
		return 0, errors.New("nouveau was not loaded")
	}
	var times, ratios []float64
	for range b.boots {
		whole, err := stand.New(stand.Config{})
		if err != nil {
			return err
		}
		w, err := probe(whole.Socket())
		if err = errors.Join(err, whole.Close()); err != nil {
			return err
		}
		shared, err := stand.NewShared(soft.Config{VRAM: 1 << 30}, 1, 512<<20)
		if err != nil {
			return err
		}
		v, err := probe(shared.GPUs[0].Socket)
		if err = errors.Join(err, shared.Close()); err != nil {
			return err
		}
		times, ratios = append(times, v), append(ratios, v/w)
	}
	b.add("nouveau's probe of a virtual GPU, guest's time", nanoseconds, times)
	b.add("  virtual / whole", ratio, ratios)
	return nil
}
