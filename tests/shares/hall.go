package shares

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// Hall is a card that guests share.
type Hall struct {
	*stand.Shared
	players []*Player
}

// NewHall makes one. Without a scheduler work is given to the card as it comes.
func NewHall(cfg *sched.Config) (*Hall, error) {
	s, err := stand.NewSharedWith(stand.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: aggregator.Options{Scheduler: cfg}})
	if err != nil {
		return nil, err
	}
	return &Hall{Shared: s}, nil
}

// Close ends it all.
func (h *Hall) Close() error {
	var errs []error
	for _, p := range h.players {
		errs = append(errs, p.G.Close())
	}
	return errors.Join(append(errs, h.Shared.Close())...)
}

// Player is a guest with a channel that copies.
type Player struct {
	G     *guest.Guest
	Guest *aggregator.Guest
	Ch    *guest.Channel

	space *guest.Space
	sent  atomic.Uint64 // entries
	ended atomic.Uint64 // of them, as the fence says
}

const (
	playerVRAM = 64 << 20
	srcVA      = 0x1000_0000
	dstVA      = 0x2000_0000
	workVA     = 0x3000_0000
	ramVA      = 0x4000_0000
	piece      = 2 << 20 // bytes that one launch copies
	// maxPieces of one request: seconds of work.
	maxPieces = 8192
)

// Join adds a guest with its part of the card's time.
func (h *Hall) Join(name string, share sched.NodeConfig) (*Player, error) {
	seat, err := h.Add(serve.GPUConfig{Share: aggregator.GuestConfig{Name: name, VRAM: playerVRAM, Map: homes.MapAll, Share: share}})
	if err != nil {
		return nil, err
	}
	g, err := guest.Attach(context.Background(), seat.Socket, guest.Config{RAM: 1 << 20, Map: true, Timeout: 60 * time.Second})
	if err != nil {
		return nil, err
	}
	p := &Player{G: g, Guest: seat.Guest}
	h.players = append(h.players, p)
	return p, p.prepare()
}

func (p *Player) prepare() (err error) {
	if p.space, err = p.G.NewSpace(); err != nil {
		return err
	}
	for _, b := range []struct{ va, size uint64 }{{srcVA, piece}, {dstVA, piece}, {workVA, 1 << 20}} {
		buf, err := p.G.AllocVRAM(b.size)
		if err != nil {
			return err
		}
		if err := p.space.Map(b.va, buf, guest.Big); err != nil {
			return err
		}
		if b.va == workVA {
			var raw []byte
			for _, w := range copies(maxPieces).Words {
				raw = binary.LittleEndian.AppendUint32(raw, w)
			}
			if err := buf.Write(0, raw); err != nil {
				return err
			}
		}
	}
	p.Ch, err = p.Channel(1)
	return err
}

// Channel makes one more channel, which can copy.
func (p *Player) Channel(id int) (*guest.Channel, error) {
	ch, err := p.G.NewChannel(id, p.space)
	if err != nil {
		return nil, err
	}
	if err := ch.Submit(new(guest.Push).Bind(guest.M2MF).Words...); err != nil {
		return nil, err
	}
	return ch, ch.Finish()
}

func copies(n int) *guest.Push {
	p := new(guest.Push)
	for range n {
		p.Copy(guest.M2MF, dstVA, srcVA, piece-4096)
	}
	return p
}

// wordsOfPiece is how many words a launch takes.
var wordsOfPiece = len(copies(1).Words)

// Request submits a request of n pieces.
func (p *Player) Request(ch *guest.Channel, n int) error {
	p.sent.Add(1)
	return ch.SubmitAt(workVA, n*wordsOfPiece)
}

// Play keeps two batches of requests of n pieces on the way until stop says so, then
// waits for all.
func (p *Player) Play(n, batch int, stop func() bool) error {
	var before guest.Fence
	for round := 0; ; round++ {
		for range batch {
			if err := p.Request(p.Ch, n); err != nil {
				return err
			}
		}
		f, err := p.Ch.Fence()
		if err != nil {
			return err
		}
		if round > 0 {
			if err := p.G.Wait(before); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			p.ended.Add(uint64(batch))
		}
		before = f
		if stop() {
			if err := p.G.Wait(f); err != nil {
				return err
			}
			p.ended.Add(uint64(batch))
			return nil
		}
	}
}

// Used is the time that engines worked for each of the players so far, and whether
// all have work waiting for its turn.
func (h *Hall) Used(players []*Player) (used []time.Duration, backlogged bool) {
	used, backlogged = make([]time.Duration, len(players)), true
	for _, e := range h.Agg.Ledger() {
		for i, p := range players {
			if e.Depth != 1 || e.Name != p.Guest.Name() {
				continue
			}
			waiting := 0
			for lane, a := range e.Accounts {
				used[i] += a.Busy
				waiting += e.Waiting[lane]
			}
			backlogged = backlogged && waiting > 0
		}
	}
	return used, backlogged
}

// runaway submits one request that works for minutes: its words are the largest that
// an entry can have, all launches of one copy that is set up before.
func (p *Player) runaway(ch *guest.Channel) error {
	return ch.SubmitAt(workVA, maxPieces*wordsOfPiece)
}
