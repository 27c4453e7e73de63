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
	// prepare readies a guest that was reset, and returns what it does again and again.
	prepare func(g *guest.Guest) (func() error, error)
}

var nuisances = []nuisance{
	{"pages thrash", "lazy incremental bar1+bar3+pramin+rom trap off", thrash},
	{"tables storm", "lazy incremental bar1+bar3+pramin+rom trap off", storm},
	{"doorbells ring, trapped", "lazy incremental bar1+bar3+pramin+rom trap off", ring},
	{"doorbells ring, polled", "lazy incremental bar1+bar3+pramin+rom poll off", ring},
	{"doorbells ring, scheduled", "lazy incremental bar1+bar3+pramin+rom trap credit", ring},
}

// thrashed is how much of its memory a guest has go from window to window.
const thrashed = 8 << 20

// thrash shows the same pages in BAR1 and, by turns, in BAR3, so that each invalidate
// moves all of them, and writes to them in between.
func thrash(g *guest.Guest) (func() error, error) {
	b, err := g.AllocVRAM(thrashed)
	if err != nil {
		return nil, err
	}
	if _, err := b.BAR1(); err != nil {
		return nil, err
	}
	page := make([]byte, shadowpt.SmallPage)
	for off := uint64(0); off < thrashed; off += shadowpt.SmallPage {
		binary.LittleEndian.PutUint64(page, off)
		if err := b.Write(off, page); err != nil {
			return nil, err
		}
	}
	return func() error {
		_, hide, err := b.BAR3()
		if err != nil {
			return err
		}
		return errors.Join(b.Write(0, page), hide())
	}, nil
}

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
	stormVA      = 0x1000_0000
	stormEntries = 32768 // a whole table
)

// storm writes all entries of a table anew, invalidates, and submits, and does not
// wait: what a guest has to pay, it pays later.
func storm(g *guest.Guest) (func() error, error) {
	s, ch, err := channel(g)
	if err != nil {
		return nil, err
	}
	b, err := g.AllocVRAM(shadowpt.BigPage)
	if err != nil {
		return nil, err
	}
	turn := uint64(0)
	return func() error {
		turn++
		err := s.Put(stormVA, stormEntries*shadowpt.SmallPage, false, func(i uint64) uint64 {
			return shadowpt.PTE{Valid: true, Addr: b.Addr + (i+turn)%32*shadowpt.SmallPage}.Encode()
		})
		return errors.Join(err, g.Raw().Invalidate(uint32(s.Directory()>>12<<4), 1<<31|1), ch.Submit(0))
	}, nil
}

const bells = 64 // in one go

// ring moves GP_PUT over entries without words, for ever, as fast as it can.
func ring(g *guest.Guest) (func() error, error) {
	_, ch, err := channel(g)
	if err != nil {
		return nil, err
	}
	if err := ch.Finish(); err != nil {
		return nil, err
	}
	clear(ch.Ring().Data)
	at := ch.DoorbellOffset()
	mem := g.Mapped(1, at)
	entries := uint32(len(ch.Ring().Data) / gf100.GPEntrySize)
	put := ch.GPGet()
	return func() error {
		for range bells {
			put = (put + 1) % entries
			b := binary.LittleEndian.AppendUint32(nil, put)
			if mem != nil {
				copy(mem, b)
			} else if err := g.Raw().Post(1, at, b); err != nil {
				return err
			}
		}
		// A read is behind all of them: what was posted has landed.
		g.Raw().Reg(0)
		return nil
	}, nil
}

// busy reads a register for ever: what a neighbour costs that takes no more than its
// own part of the processors.
func busy(g *guest.Guest) func() error {
	return func() error {
		for range bells {
			g.Raw().Reg(0)
		}
		return nil
	}
}

// during does f again and again for so long.
func during(d time.Duration, f func() error) func() error {
	return func() error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}
