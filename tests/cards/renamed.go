// Package cards has cards for tests. They show that the aggregator needs no more of a card than
// the interfaces of package card: [Plain] has registers and nothing that is optional; [Renamed] has
// no registers, and its own names for everything; [Spaces] has no page tables.
package cards

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Addresses of a Renamed. VRAM is in banks with gaps between, so that most guests get several runs.
const (
	bankSize   = 13<<20 + shadowpt.BigPage
	bankStride = 16 << 20
	firstBank  = 0x3_4560_0000
)

// renumber converts between the numbers of a Renamed's channels and the software card's.
func renumber(id uint32) uint32 { return id ^ 0x2a }

// toBank returns the address of the byte at addr of the software card.
func toBank(addr uint64) uint64 { return firstBank + addr/bankSize*bankStride + addr%bankSize }

// fromBank is the reverse of toBank for n bytes. ok is false unless all are in one bank.
func fromBank(addr, n uint64) (at uint64, ok bool) {
	off := (addr - firstBank) % bankStride
	return (addr-firstBank)/bankStride*bankSize + off, addr >= firstBank && n <= bankSize && off <= bankSize-n
}

// Renamed is the software card as a card.GPU whose addresses and numbers are its own. It has spaces as
// [Spaces] has them, shows no USERD and no memory of tables, and keeps no state of a channel that was freed. It has no meter and no
// relocator, and does not tell whom an engine serves.
type Renamed struct {
	card.GPU
	card     *soft.Card
	channels [gf100.Channels]atomic.Pointer[channel] // by the software card's number
}

var _ card.GPU = (*Renamed)(nil)

// NewRenamed makes a software card and its Renamed. The caller closes both, the Renamed first.
func NewRenamed(cfg soft.Config, o driver.Options) (r *Renamed, c *soft.Card, err error) {
	r = new(Renamed)
	if to := cfg.Watch; to != nil {
		cfg.Watch = func(id uint32, t shadowpt.Target, addr uint64, n int, write bool) {
			if t != shadowpt.VRAM {
				to(renumber(id), t, addr, n, write)
				return
			}
			if ch := r.channels[id].Load(); ch != nil && ch.hides(addr, write) {
				return
			}
			for part := 0; n > 0; addr, n = addr+uint64(part), n-part {
				part = min(n, int(bankSize-addr%bankSize))
				to(renumber(id), t, toBank(addr), part, write)
			}
		}
	}
	if r.card, err = soft.New(cfg); err != nil {
		return nil, nil, err
	}
	if r.GPU, err = driver.New(r.card, o); err != nil {
		return nil, nil, errors.Join(err, r.card.Close())
	}
	return r, r.card, nil
}

// Meter implements card.GPU.
func (r *Renamed) Meter() card.Meter { return nil }

// Relocator implements card.GPU.
func (r *Renamed) Relocator() card.Relocator { return nil }

// Slices implements card.GPU.
func (r *Renamed) Slices() card.Slices { return nil }

// Serving implements card.GPU.
func (r *Renamed) Serving(card.Engine) card.ChannelEvents { return nil }

// ReadVRAM implements card.Memory.
func (r *Renamed) ReadVRAM(addr uint64, p []byte) bool {
	at, ok := fromBank(addr, uint64(len(p)))
	return ok && r.GPU.ReadVRAM(at, p)
}

// WriteVRAM implements card.Memory.
func (r *Renamed) WriteVRAM(addr uint64, p []byte) bool {
	at, ok := fromBank(addr, uint64(len(p)))
	return ok && r.GPU.WriteVRAM(at, p)
}

// SameVRAM implements card.Memory.
func (r *Renamed) SameVRAM(addr uint64, p []byte) bool {
	at, ok := fromBank(addr, uint64(len(p)))
	return ok && r.GPU.SameVRAM(at, p)
}

// ScrubVRAM implements card.Memory.
func (r *Renamed) ScrubVRAM(addr, n uint64) error {
	at, ok := fromBank(addr, n)
	if !ok {
		return errors.New("cards: no memory there")
	}
	return r.GPU.ScrubVRAM(at, n)
}

// LookVRAM calls f with each allocated piece of the n bytes at addr, which are in one bank. f must not
// call the card.
func (r *Renamed) LookVRAM(addr, n uint64, f func(at uint64, p []byte)) {
	if at, ok := fromBank(addr, n); ok {
		r.card.LookVRAM(at, n, func(at uint64, p []byte) { f(toBank(at), p) })
	}
}

// Preempt implements card.GPU.
func (r *Renamed) Preempt(channels ...card.Channel) bool {
	inner := make([]card.Channel, len(channels))
	for i, ch := range channels {
		inner[i] = ch.(*channel).Channel
	}
	return r.GPU.Preempt(inner...)
}

// NewShare implements card.GPU.
func (r *Renamed) NewShare(c card.ShareConfig) (card.Share, error) {
	inner, err := (&spaces{room: c.Tables, translate: fromBank}).over(r.GPU, c)
	if err != nil {
		return nil, err
	}
	return &share{inner, r}, nil
}

// share is one guest's part of the card.
type share struct {
	*spaces
	r *Renamed
}

// AllocVRAM implements card.Share.
func (s *share) AllocVRAM(size, align uint64) (out []card.Run, err error) {
	runs, err := s.spaces.AllocVRAM(size, align)
	for _, run := range runs {
		for run.Size > 0 {
			n := min(run.Size, bankSize-run.Addr%bankSize)
			out = append(out, card.Run{Addr: toBank(run.Addr), Size: n})
			run.Addr, run.Size = run.Addr+n, run.Size-n
		}
	}
	return out, err
}

func (s *share) Memory() []card.Run { return nil }
func (s *share) Tables() []card.Run { return nil }

func (s *share) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	c.Prefer, c.State.Token = renumber(c.Prefer), 0
	inner, err := s.spaces.NewChannel(c, ev)
	if err != nil {
		return nil, err
	}
	ch := &channel{inner, s}
	s.r.channels[inner.ID()].Store(ch)
	return ch, nil
}

// channel is a channel of a Renamed.
type channel struct {
	card.Channel
	share *share
}

func (ch *channel) ID() uint32      { return renumber(ch.Channel.ID()) }
func (ch *channel) USERD() card.Run { return card.Run{} }

func (ch *channel) State() card.State {
	s := ch.Channel.State()
	s.Token = 0
	return s
}

// hides reports whether the software card has at addr what a Renamed does not show of the channel:
// its USERD and, for reads, its tables.
func (ch *channel) hides(addr uint64, write bool) bool {
	in := func(r card.Run) bool { return addr >= r.Addr && addr-r.Addr < r.Size }
	return in(ch.Channel.USERD()) || !write && slices.ContainsFunc(ch.share.spaces.Memory(), in)
}
