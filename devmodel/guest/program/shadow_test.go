package program_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/program"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// shadowed is a guest of a virtual GPU, with its card.
type shadowed struct {
	*guest.Guest
	card  *soft.Card
	share *aggregator.Guest
	seen  int // entries that were compared
}

func newShadowed(t *testing.T, p shadowpt.Policy, m aperture.Map) *shadowed {
	sh, err := testserver.NewSharedWith(testserver.SharedConfig{Card: soft.Config{VRAM: 256 << 20}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sh.Close()) })
	endpoint, err := sh.Add(serve.GPUConfig{Share: aggregator.GuestConfig{Name: "a", VRAM: 64 << 20, Map: m, Shadow: p}})
	require.NoError(t, err)
	g, err := guest.Attach(context.Background(), endpoint.Socket, guest.Config{Map: true, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return &shadowed{Guest: g, card: sh.Card, share: endpoint.Guest}
}

// guestMemory is the guest's memory, as its tables name it.
type guestMemory struct{ *shadowed }

func (o guestMemory) read(t shadowpt.Target, addr uint64, p []byte) bool {
	at, ok := o.cardAddr(addr)
	return t == shadowpt.VRAM && ok && o.card.ReadVRAM(at, p) // tables are not larger than pieces
}

func (o guestMemory) Read64(t shadowpt.Target, addr uint64) (uint64, bool) { return read64(o, t, addr) }

// cardAddr is where a page of the guest's VRAM lies on the card.
func (s *shadowed) cardAddr(addr uint64) (uint64, bool) {
	for _, e := range s.share.Extents() {
		if addr >= e.Guest && addr < e.Guest+e.Size {
			return e.Card + addr - e.Guest, true
		}
	}
	return 0, false
}

// cardMemory is the card's memory, as its MMU reads it.
type cardMemory struct{ *shadowed }

func (c cardMemory) read(t shadowpt.Target, addr uint64, p []byte) bool {
	return t == shadowpt.VRAM && c.card.ReadVRAM(addr, p)
}

func (c cardMemory) Read64(t shadowpt.Target, addr uint64) (uint64, bool) { return read64(c, t, addr) }

type reader interface {
	read(t shadowpt.Target, addr uint64, p []byte) bool
}

func read64(r reader, t shadowpt.Target, addr uint64) (uint64, bool) {
	var b [8]byte
	ok := r.read(t, addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), ok
}

// valid adds the small pages with valid entries in the tables of a directory in VRAM,
// including hidden ones.
func valid(r reader, dir uint64, vas map[uint64]bool) error {
	b := make([]byte, shadowpt.DirSize)
	if !r.read(shadowpt.VRAM, dir, b) {
		return fmt.Errorf("there is no directory at %#x", dir)
	}
	for d := range uint64(shadowpt.DirEntries) {
		pde := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{binary.LittleEndian.Uint64(b[d*8:])})
		for _, level := range []struct {
			shadowpt.Table
			size, page uint64
		}{{pde.Big, shadowpt.BigTableSize, shadowpt.BigPage}, {pde.Small, shadowpt.SmallTableSize, shadowpt.SmallPage}} {
			if !level.Present {
				continue
			}
			table := make([]byte, level.size)
			if !r.read(level.Target, level.Addr, table) {
				return fmt.Errorf("there is no table at %#x", level.Addr)
			}
			for i := uint64(0); i < level.size/8; i++ {
				for at := uint64(0); table[i*8]&1 != 0 && at < level.page; at += shadowpt.SmallPage {
					vas[d*shadowpt.DirSpan+i*level.page+at] = true
				}
			}
		}
	}
	return nil
}

// shadow finds what the card walks for a channel: the space of the instance block that
// has its ring.
func (s *shadowed) shadow(ch *guest.Channel) (sp shadowpt.Space, err error) {
	for id := range uint64(gf100.Channels) {
		var v [4]byte
		s.card.ReadBAR(card.BAR0, 0x3000+id*8, v[:])
		inst := binary.LittleEndian.Uint32(v[:])
		block := make([]byte, gf100.InstanceSize)
		if inst&gf100.InstanceBound == 0 || !s.card.ReadVRAM(uint64(inst&gf100.InstanceAddr)<<12, block) {
			continue
		}
		if uint64(gf100.InstGPBaseHi.Get(block))<<32|uint64(gf100.InstGPBaseLo.Get(block))<<3 == ch.RingVA() {
			dir, target, limit := gf100.InstanceSpace(block)
			return shadowpt.Space{Dir: dir, Target: shadowpt.Target(target), Limit: limit}, nil
		}
	}
	return sp, fmt.Errorf("the card has no channel with the ring of channel %d", ch.ID)
}

// same holds the shadow that a channel walks against the guest's tables: at each page
// for which either has an entry, the same, and where the guest's memory lies.
func (s *shadowed) same(ch *guest.Channel, space *guest.Space) error {
	sp, err := s.shadow(ch)
	if err != nil {
		return err
	}
	vas := map[uint64]bool{}
	if err := valid(guestMemory{s}, space.Directory(), vas); err != nil {
		return err
	}
	if err := valid(cardMemory{s}, sp.Dir, vas); err != nil {
		return err
	}
	guests := shadowpt.Space{Dir: space.Directory(), Limit: sp.Limit}
	for va := range vas {
		want, _, is := shadowpt.Walk(guestMemory{s}, guests, va)
		got, _, has := shadowpt.Walk(cardMemory{s}, sp, va)
		s.seen++
		if is {
			if want.Addr += va - want.VA; want.Target == shadowpt.VRAM {
				want.Addr, is = s.cardAddr(want.Addr)
			} else {
				want.Addr = s.share.BusAddress(want.Addr)
			}
		}
		got.Addr += va - got.VA
		want.VA, want.Size, got.VA, got.Size = va, 0, va, 0
		if is != has || is && want != got {
			return fmt.Errorf("channel %d, VA %#x: the shadow has %v %+v, the guest's tables %v %+v", ch.ID, va, has, got.PTE, is, want.PTE)
		}
	}
	return nil
}

// flush brings each channel of a program to a point at which its shadow has to be
// right, its work being done, and looks.
func (s *shadowed) flush(r *program.Runner, p *program.Program) error {
	for i := range p.Channels {
		ch, space := r.Channel(i)
		if err := ch.Finish(); err != nil {
			return err
		}
		if err := s.same(ch, space); err != nil {
			return err
		}
	}
	return nil
}

// run does a program, and looks after each change of tables.
func (s *shadowed) run(p *program.Program) error {
	if err := s.Reset(); err != nil {
		return err
	}
	r, err := program.NewRunner(s.Guest, p)
	if err != nil {
		return err
	}
	for i, o := range p.Ops {
		if err := r.Do(o); err != nil {
			return fmt.Errorf("operation %d, %v: %w", i, o, err)
		}
		switch o.Kind {
		case program.Map, program.Unmap, program.Recreate, program.Fault:
			if err := s.flush(r, p); err != nil {
				return err
			}
		}
	}
	return errors.Join(r.Check(), s.flush(r, p))
}

// TestShadowsOfPrograms: for any mappings and work of a guest's driver, the tables that the
// card walks equal the guest's whenever its work runs.
func TestShadowsOfPrograms(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		for _, m := range []aperture.Map{aperture.MapAll, aperture.MapNone} {
			t.Run(fmt.Sprintf("%v %v %v", policy.Sync, policy.Scan, m), func(t *testing.T) {
				s := newShadowed(t, policy, m)
				n, gen := 6, program.Gen(program.Limits{})
				if m == aperture.MapNone { // every access is a round trip
					n, gen = 2, program.Gen(program.Limits{NoLarge: true, Buffers: 3})
				}
				for i := range n {
					p := gen.Example(i)
					require.NoError(t, s.run(&p), "%v", p)
				}
				require.NotZero(t, s.seen)
				t.Logf("%d pages compared", s.seen)
			})
		}
	}
}
