package options

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/stand"
)

const gpuVRAM = 64 << 20

// begin has a guest come to a GPU of a kind, as its machine would: it waits for the
// reply to each write as soon as there is anything to map.
func begin(c Combination, cfg soft.Config, plant func(*soft.Card) card.Card) (s *stand.Shared, g *guest.Guest, seat *stand.Seat, err error) {
	limits, err := c.Limits()
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.VRAM = 2 * gpuVRAM
	if s, err = stand.NewSharedWith(stand.SharedConfig{Card: cfg, Plant: plant, Limits: limits}); err != nil {
		return nil, nil, nil, err
	}
	gpu, err := c.GPU("a", gpuVRAM)
	if err != nil {
		return s, nil, nil, err
	}
	if seat, err = s.Add(gpu); err != nil {
		return s, nil, nil, err
	}
	timeout := time.Minute
	if plant != nil || cfg.DisableEngines {
		timeout = time.Second // what a hole stops does not go on
	}
	g, err = guest.Attach(context.Background(), seat.Socket, guest.Config{RAM: 1 << 20, Map: c.Maps(), Timeout: timeout})
	return s, g, seat, err
}

func attach(t *testing.T, c Combination) *guest.Guest {
	t.Helper()
	s, g, _, err := begin(c, soft.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close())
		require.NoError(t, s.Close())
	})
	return g
}

// Where the suite maps what it has: under one table, for each that a driver clears by
// trapped writes takes it most of a second.
const (
	srcVA, viaVA, backVA = 0x1000_0000, 0x1100_0000, 0x1200_0000
	bothVA               = 0x1300_0000
	holeVA, nowhereVA    = 0x1400_0000, 0x7000_0000 // nothing is there, with a table and without
	reusedVA             = 0x2000_0000
	pieceSize            = 2 * shadowpt.SmallPage
)

// suite is a guest with two pieces of RAM and VRAM between them.
type suite struct {
	g         *guest.Guest
	rng       *rand.Rand
	space     *guest.Space
	ch        *guest.Channel
	src, back *guest.Buffer
	via       *guest.Buffer
}

func newSuite(g *guest.Guest) (s *suite, err error) {
	s = &suite{g: g, rng: rand.New(rand.NewPCG(1, 2))}
	if s.src, err = g.AllocRAM(pieceSize); err != nil {
		return nil, err
	}
	if s.back, err = g.AllocRAM(pieceSize); err != nil {
		return nil, err
	}
	if s.via, err = g.AllocVRAM(pieceSize); err != nil {
		return nil, err
	}
	if s.space, err = g.NewSpace(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.space.Map(srcVA, s.src, guest.Small), s.space.Map(viaVA, s.via, guest.Small), s.space.Map(backVA, s.back, guest.Small)); err != nil {
		return nil, err
	}
	return s, s.channel()
}

func (s *suite) channel() (err error) {
	s.ch, err = s.g.NewChannelWith(3, s.space, guest.ChannelConfig{RingLog2: 4, Push: 4096, RingRAM: true, PushRAM: true, Sparse: true})
	return err
}

// round copies from RAM through VRAM and back, with one engine, and looks at each
// byte: at odd places, so that what is beside them has to stay.
func (s *suite) round(e guest.Engine, asleep bool) error {
	fill(s.src.Data, s.rng)
	fill(s.back.Data, s.rng)
	want := bytes.Clone(s.back.Data)
	from, to, n := s.rng.Uint64N(200), s.rng.Uint64N(200), shadowpt.SmallPage+s.rng.Uint64N(3000)
	copy(want[to:to+n], s.src.Data[from:])
	if err := errors.Join(s.ch.Copy(e, viaVA+from, srcVA+from, n), s.ch.Copy(e, backVA+to, viaVA+from, n)); err != nil {
		return err
	}
	f, err := s.ch.Fence()
	if err != nil {
		return err
	}
	wait := s.g.Poll
	if asleep {
		wait = s.g.Wait
	}
	return errors.Join(wait(f), same(want, s.back.Data, "copied by "+e.String()))
}

// copies has all engines copy.
func (s *suite) copies() error {
	for i, e := range guest.CopyEngines {
		if err := s.round(e, i%2 == 0); err != nil {
			return err
		}
	}
	return nil
}

// remaps puts other memory where engines copy through, by turns: each has what was
// copied when it was there.
func (s *suite) remaps() error {
	first, err := s.read(s.via)
	if err != nil {
		return err
	}
	other, err := s.g.AllocVRAM(pieceSize)
	if err != nil {
		return err
	}
	if err := errors.Join(s.space.Map(viaVA, other, guest.Small), s.round(guest.CE1, true)); err != nil {
		return err
	}
	still, err := s.read(s.via)
	if err := errors.Join(err, same(first, still, "memory that is mapped no more")); err != nil {
		return err
	}
	if err := errors.Join(s.space.Unmap(viaVA, pieceSize, guest.Small), s.fault(viaVA, guest.CE0, true)); err != nil {
		return err
	}
	return errors.Join(s.space.Map(viaVA, s.via, guest.Small), other.Free(), s.round(guest.M2MF, false))
}

// reuse makes a table of a piece of memory, then data, then a table again, and so
// on: what an engine stores in it is an entry when it is a table, and only then.
func (s *suite) reuse() error {
	table, err := s.g.AllocVRAM(shadowpt.SmallTableSize)
	if err != nil {
		return err
	}
	const at = 16 // entries, of which the first names the memory between
	if err := s.space.Map(bothVA, table, guest.Small); err != nil {
		return err
	}
	present := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table.Addr}}.Encode()
	for turn := range uint64(2) {
		entry := shadowpt.PTE{Valid: true, Addr: s.via.Addr + turn*shadowpt.SmallPage}.Encode()
		fill(s.src.Data, s.rng)
		binary.LittleEndian.PutUint64(s.src.Data[at*8:], entry)
		if err := errors.Join(s.ch.Copy(guest.CopyEngines[turn], bothVA, srcVA, at*8+8), s.ch.Finish()); err != nil {
			return err
		}
		s.space.PutPDE(reusedVA/shadowpt.DirSpan, present)
		va := uint64(reusedVA + at*shadowpt.SmallPage)
		if err := errors.Join(s.space.Invalidate(), s.ch.Copy(guest.CE0, va, srcVA, shadowpt.SmallPage), s.ch.Finish()); err != nil {
			return err
		}
		got, err := s.read(s.via)
		if err := errors.Join(err, same(s.src.Data[:shadowpt.SmallPage], got[turn*shadowpt.SmallPage:][:shadowpt.SmallPage], "through a table that was data")); err != nil {
			return err
		}
		s.space.PutPDE(reusedVA/shadowpt.DirSpan, 0)
		if err := errors.Join(s.space.Invalidate(), s.fault(va, guest.CE1, true)); err != nil {
			return err
		}
	}
	return s.copies()
}

// fault has an engine go where nothing is. The channel is stopped, and is told why.
func (s *suite) fault(va uint64, e guest.Engine, write bool) error {
	dst, src := uint64(backVA), va
	if write {
		dst, src = va, srcVA
	}
	if err := s.ch.Copy(e, dst, src, 64); err != nil {
		return err
	}
	var stopped *guest.ChannelError
	if err := s.ch.Finish(); !errors.As(err, &stopped) {
		return fmt.Errorf("a copy at VA %#x, where nothing is, ended with %v", va, err)
	}
	f := stopped.Fault
	if f.Channel != s.ch.ID || f.VA/shadowpt.SmallPage != va/shadowpt.SmallPage || f.Write != write ||
		f.Reason != shadowpt.PageNotPresent && f.Reason != shadowpt.PTNotPresent {
		return fmt.Errorf("%v; want channel %d, VA %#x, write %t, nothing there", f, s.ch.ID, va, write)
	}
	err := s.ch.Close()
	if err == nil {
		err = s.channel()
	}
	return err
}

// race has a processor store into one half of each page, through BAR1, while engines
// copy into the other half, and while the pages come and go in BAR3: each byte is
// there in the end, whoever looks.
func (s *suite) race() error {
	const pages, half = 2, shadowpt.SmallPage / 2
	both, err := s.g.AllocVRAM(pages * shadowpt.SmallPage)
	if err != nil {
		return err
	}
	at, err := both.BAR1()
	if err := errors.Join(err, s.space.Map(bothVA, both, guest.Small)); err != nil {
		return err
	}
	want := make([]byte, both.Size)
	fill(want, s.rng)
	done := make(chan error, 1)
	go func() { done <- s.stores(at, want, half) }()
	for round := range 3 {
		copy(s.src.Data, want)
		for p := range uint64(pages) {
			from := p*shadowpt.SmallPage + half
			if err := s.ch.Copy(guest.CopyEngines[round], bothVA+from, srcVA+from, half); err != nil {
				return err
			}
		}
		_, hide, err := both.BAR3()
		if err := errors.Join(err, s.ch.Finish(), hide()); err != nil {
			return err
		}
	}
	_, err = s.read(both) // while stores are still under way
	if err := errors.Join(<-done, err); err != nil {
		return err
	}
	got, err := s.read(both)
	if err != nil {
		return err
	}
	// It goes home, and into PRAMIN, and out of it again.
	if err := errors.Join(same(want, got, "seen by the processor"), both.Hide(), s.g.Raw().VRAM(both.Addr, got[:64]), s.g.Raw().VRAM(0, make([]byte, 8))); err != nil {
		return err
	}
	err = errors.Join(same(want[:64], got[:64], "seen through PRAMIN"), s.ch.Copy(guest.CE0, backVA, bothVA, both.Size), s.ch.Finish())
	return errors.Join(err, same(want, s.back.Data[:both.Size], "seen by an engine"))
}

// stores is the processor of a race: it stores the first half of each page.
func (s *suite) stores(at uint64, want []byte, half int) error {
	mem := s.g.Mapped(1, at)
	for i := 0; i < len(want); i += 16 {
		if i%shadowpt.SmallPage >= half {
			continue
		}
		for k := i; k < i+16; k += 8 {
			if mem != nil {
				binary.LittleEndian.PutUint64(mem[k:], binary.LittleEndian.Uint64(want[k:]))
			} else if err := s.g.Raw().Post(1, at+uint64(k), want[k:k+8]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *suite) read(b *guest.Buffer) ([]byte, error) {
	p := make([]byte, b.Size)
	return p, b.Read(0, p)
}

func (s *suite) nothing() error {
	for i, va := range []uint64{holeVA, nowhereVA} {
		if err := s.fault(va, guest.CopyEngines[1+i], i == 1); err != nil {
			return err
		}
	}
	return s.copies()
}

func fill(p []byte, rng *rand.Rand) {
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, rng.Uint64())
	}
}

func same(want, got []byte, what string) error {
	if bytes.Equal(want, got) {
		return nil
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: byte %#x is %02x, want %02x", what, i, got[i], want[i])
		}
	}
	return fmt.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
}

// parts of the suite, in this order.
var suiteParts = []struct {
	name string
	do   func(*suite) error
}{
	{"copies", (*suite).copies}, {"remaps", (*suite).remaps}, {"nothing there", (*suite).nothing}, {"reuse", (*suite).reuse}, {"race", (*suite).race},
}

func data(g *guest.Guest) error {
	s, err := newSuite(g)
	if err != nil {
		return err
	}
	for _, p := range suiteParts {
		if err := p.do(s); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// TestData: data, fences and faults are right with every combination of options. They
// run beside each other: each has a card of its own, and mostly waits for replies.
func TestData(t *testing.T) {
	for i, c := range All() {
		if i%share != 0 {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			// Not by Cleanup: what that remembers stays until all of them have ended.
			s, g, seat, err := begin(c, soft.Config{}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, errors.Join(g.Close(), s.Close())) }()
			require.NoError(t, data(g))
			stats := seat.Guest.Stats()
			require.Equal(t, c.Polled(), stats.PolledDoorbells.Load() > 0)
			require.Equal(t, c.Windows(), stats.Mapped.PagesMoved.Load() > 0)
			require.NotZero(t, stats.MMUFaults.Load())
		})
	}
}
