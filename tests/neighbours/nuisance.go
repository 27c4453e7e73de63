package neighbours

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// nuisance is a way to make work.
type nuisance struct {
	name    string
	options string // of the street
	// prepare readies a guest that was reset.
	prepare func(g *guest.Guest) (pest, error)
}

// pest is a guest that makes work: do is what it does again and again.
type pest interface{ do() error }

const (
	mapped  = "lazy incremental bar1+bar3+pramin+rom off"
	trapped = "lazy incremental none off"
)

var nuisances = []nuisance{
	{thrashes, mapped, thrash},
	{comesAndGoes, mapped, visit},
	{storms, mapped, storm},
	{rings, mapped, ring},
	{ringsScheduled, "lazy incremental bar1+bar3+pramin+rom credit", ring},
	{aliases, "lazy incremental bar1+bar3+pramin+rom off", alias},
}

const (
	thrashes       = "pages thrash"
	comesAndGoes   = "pages come and go"
	storms         = "tables storm"
	rings          = "doorbells ring, trapped"
	ringsScheduled = "doorbells ring, scheduled"
	aliases        = "doorbells ring, aliases" // each doorbell flushes as many aliases as there may be
)

// thrashed is how much of its memory a guest has move: as many pages as may be shown
// twice (limits.map-aliases), for those beyond would stay where they are.
const thrashed = 4 << 20

// thrasher shows the same pages in BAR1 and, by turns, in BAR3, so that each invalidate
// moves all of them, and writes to them in between.
type thrasher struct {
	b    *guest.Buffer
	page [shadowpt.SmallPage]byte
}

func thrash(g *guest.Guest) (pest, error) { return newThrasher(g) }

func newThrasher(g *guest.Guest) (*thrasher, error) {
	t := new(thrasher)
	var err error
	if t.b, err = g.AllocVRAM(thrashed); err != nil {
		return nil, err
	}
	if _, err := t.b.BAR1(); err != nil {
		return nil, err
	}
	for off := uint64(0); off < thrashed; off += shadowpt.SmallPage {
		binary.LittleEndian.PutUint64(t.page[:], off)
		if err := t.b.Write(off, t.page[:]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *thrasher) do() error {
	_, hide, err := t.b.BAR3()
	if err != nil {
		return err
	}
	return errors.Join(t.b.Write(0, t.page[:]), hide())
}

// visitor is a thrasher that shows its pages in BAR1 alone, and hides them: by turns all
// of them move to the window, and home.
type visitor struct{ *thrasher }

func visit(g *guest.Guest) (pest, error) {
	t, err := newThrasher(g)
	return visitor{t}, err
}

func (v visitor) do() error { return errors.Join(v.b.Write(0, v.page[:]), v.b.Hide()) }

// channel makes a space and a channel in it.
func channel(g *guest.Guest) (*guest.Space, *guest.Channel, error) {
	s, err := g.NewSpace()
	if err != nil {
		return nil, nil, err
	}
	ch, err := g.NewChannelWith(1, s, guest.ChannelConfig{RingRAM: true, PushRAM: true})
	return s, ch, err
}

const (
	stormVA     = 0x1000_0000
	stormTables = 1
)

// stormer writes entries anew, invalidates, and submits, and does not wait: what a
// guest has to pay, it pays later.
type stormer struct {
	g       *guest.Guest
	space   *guest.Space
	ch      *guest.Channel
	b       *guest.Buffer
	tables  uint64 // whole ones that there are
	changed uint64 // entries that are written each time, of the first
	apart   uint64 // so many entries from one to the next; 0: they are together
	same    bool   // what is written stood there before
	invalid bool   // and name nothing
	quiet   bool   // nobody is told of them: what remains is what the guest's own processor does
	turn    uint64
}

func storm(g *guest.Guest) (pest, error) {
	return newStorm(g, stormer{tables: stormTables, changed: stormTables * shadowpt.SmallEntries})
}

// newStorm makes one with tables of entries that are valid.
func newStorm(g *guest.Guest, kind stormer) (*stormer, error) {
	s := &kind
	s.g = g
	var err error
	if s.space, s.ch, err = channel(g); err != nil {
		return nil, err
	}
	if s.b, err = g.AllocVRAM(shadowpt.BigPage); err != nil {
		return nil, err
	}
	if err := errors.Join(s.write(s.tables*shadowpt.SmallEntries, false), s.space.Invalidate(), s.ch.Finish()); err != nil {
		return nil, err
	}
	return s, nil
}

// write writes the first n entries, each another than the last time.
func (s *stormer) write(n uint64, invalid bool) error {
	s.turn++
	return s.put(0, n, invalid)
}

// put writes n entries from the one at first on.
func (s *stormer) put(first, n uint64, invalid bool) error {
	return s.space.Put(stormVA+first*shadowpt.SmallPage, n*shadowpt.SmallPage, false, func(i uint64) uint64 {
		return shadowpt.PTE{Valid: !invalid, Addr: s.b.Addr + (first+i+s.turn)%32*shadowpt.SmallPage}.Encode()
	})
}

// writeApart writes single entries.
func (s *stormer) writeApart() error {
	if !s.same {
		s.turn++
	}
	for i := range s.changed {
		if err := s.put(i*s.apart, 1, s.invalid); err != nil {
			return err
		}
	}
	return nil
}

func (s *stormer) do() error {
	write := func() error { return s.write(s.changed, s.invalid) }
	if s.apart > 0 {
		write = s.writeApart
	}
	if err := write(); err != nil || s.quiet {
		return err
	}
	return errors.Join(s.g.Raw().Invalidate(uint32(s.space.Directory()>>12<<4), 1<<31|1), s.ch.Submit(0))
}

// calm is the same guest when it tells nobody.
func (s *stormer) calm() pest {
	c := *s
	c.quiet = true
	return &c
}

const bells = 64 // in one go

// ringer moves GP_PUT over entries without words, for ever, as fast as it can.
type ringer struct {
	g            *guest.Guest
	at           uint64 // of GP_PUT, in BAR1
	put, entries uint32
}

func ring(g *guest.Guest) (pest, error) {
	_, ch, err := channel(g)
	if err != nil {
		return nil, err
	}
	if err := ch.Finish(); err != nil {
		return nil, err
	}
	clear(ch.Ring().Data)
	at := ch.DoorbellOffset()
	return &ringer{g: g, at: at, put: ch.GPGet(), entries: uint32(len(ch.Ring().Data) / gf100.GPEntrySize)}, nil
}

func (r *ringer) do() error {
	for range bells {
		r.put = (r.put + 1) % r.entries
		b := binary.LittleEndian.AppendUint32(nil, r.put)
		if err := r.g.Raw().Post(1, r.at, b); err != nil {
			return err
		}
	}
	// A read is behind all of them: what was posted has landed.
	r.g.Raw().Reg(0)
	return nil
}

// alias is ring by a guest that shows as many pages in two windows as may be held equal:
// before each doorbell counts, they are to be.
func alias(g *guest.Guest) (pest, error) {
	b, err := g.AllocVRAM(aliased << 12)
	if err != nil {
		return nil, err
	}
	_, err = b.BAR1()
	_, _, err3 := b.BAR3()
	if err := errors.Join(err, err3); err != nil {
		return nil, err
	}
	return ring(g)
}

// aliased is how many pages that are: the usual limit (limits.map-aliases).
const aliased = 1024

// reader reads a register for ever: what a neighbour costs that takes no more than its
// own part of the processors.
type reader struct{ g *guest.Guest }

func (r reader) do() error {
	for range bells {
		r.g.Raw().Reg(0)
	}
	return nil
}

// during has a pest go on for so long.
func during(d time.Duration, p pest) func() error {
	return func() error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := p.do(); err != nil {
				return err
			}
		}
		return nil
	}
}
