package shares

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// A throttle keeps the card at work with requests of one length, as the programs do
// that fairness is measured with. Its requests are lists of launches that lie ready in
// the guest's memory, small ones, so that lengths of a fifth of a millisecond can be
// made of them and that they stay in a processor's caches.

const (
	classM2MF  = 0x9039 // the engine of all copies here
	grainVA    = 0x5000_0000
	grain      = 256 << 10 // bytes that one launch of a throttle copies
	grainSize  = 2 << 20   // of the list
	ringOfMany = 12        // log2 of the entries of a throttle's ring
)

var (
	wordsOfGrain = len(grains(1))
	maxGrains    = grainSize / 4 / wordsOfGrain
)

func grains(n int) []uint32 {
	p := new(guest.Push)
	for range n {
		p.Copy(guest.M2MF, dstVA, srcVA, grain)
	}
	return p.Words
}

// Throttle is a player's channel that does nothing else.
type Throttle struct {
	Player *Player

	ch     *guest.Channel
	fences []guest.Fence // of what is unfinished, oldest first
	Sent   uint64        // requests
	Ended  uint64        // of them, as fences say
	owner  int           // as the card counts
}

// Throttle makes the player's throttle.
func (p *Player) Throttle() (*Throttle, error) {
	list, err := p.G.AllocVRAM(grainSize)
	if err != nil {
		return nil, err
	}
	if err := p.space.Map(grainVA, list, guest.Big); err != nil {
		return nil, err
	}
	var raw []byte
	for _, w := range grains(maxGrains) {
		raw = binary.LittleEndian.AppendUint32(raw, w)
	}
	if err := list.Write(0, raw); err != nil {
		return nil, err
	}
	ch, err := p.G.NewChannelWith(2, p.space, guest.ChannelConfig{RingLog2: ringOfMany})
	if err != nil {
		return nil, err
	}
	if err := ch.Submit(new(guest.Push).Bind(guest.M2MF).Words...); err != nil {
		return nil, err
	}
	return &Throttle{Player: p, ch: ch}, ch.Finish()
}

// Load is what a throttle does.
type Load struct {
	Launches int // of a request
	Ahead    int // requests that are unfinished
	Fence    int // requests between two fences
}

// segmentWords is how many words an entry of the ring may have.
const segmentWords = 1<<21 - 1

// request submits one request.
func (t *Throttle) request(l Load) error {
	if l.Launches > maxGrains || l.Launches*wordsOfGrain > segmentWords {
		return fmt.Errorf("a request of %d launches: %d are the most", l.Launches, maxGrains)
	}
	t.Sent++
	return t.ch.SubmitAt(grainVA, l.Launches*wordsOfGrain)
}

// Run keeps requests on the way until stop says so, and waits for all of them. stop
// is asked with how many requests were submitted.
func (t *Throttle) Run(l Load, stop func(sent int) bool) error {
	groups, sent := max(l.Ahead/l.Fence, 1), 0
	for !stop(sent) {
		for len(t.fences) < groups && !stop(sent) {
			sent += l.Fence
			for range l.Fence {
				if err := t.request(l); err != nil {
					return err
				}
			}
			f, err := t.ch.Fence()
			if err != nil {
				return err
			}
			t.fences = append(t.fences, f)
		}
		if err := t.reap(l); err != nil {
			return err
		}
	}
	for len(t.fences) > 0 {
		if err := t.reap(l); err != nil {
			return err
		}
	}
	return nil
}

// reap waits for the oldest fence.
func (t *Throttle) reap(l Load) error {
	if err := t.Player.G.Wait(t.fences[0]); err != nil {
		return err
	}
	t.fences = slices.Delete(t.fences, 0, 1)
	t.Ended += uint64(l.Fence)
	return nil
}

// Calibrate measures how long a launch takes while nobody else uses the card.
func (t *Throttle) Calibrate(h *Hall) (each time.Duration, err error) {
	const launches, rounds = 1000, 9
	var took []time.Duration
	before := h.launched()
	for range rounds {
		busy := h.Busy()
		if err := t.Run(Load{Launches: launches, Ahead: 1, Fence: 1}, Times(1)); err != nil {
			return 0, err
		}
		took = append(took, (h.Busy()-busy)/launches)
	}
	for i, n := range h.launched() {
		if n != before[i] {
			t.owner = i
		}
	}
	slices.Sort(took)
	if took[rounds/2] <= 0 {
		return 0, errors.New("the card says that it did nothing")
	}
	return took[rounds/2], nil
}

// Launched is how many launches of the throttle's the card has done.
func (t *Throttle) Launched(h *Hall) uint64 { return h.launched()[t.owner] }

// launched is how many launches the card has done for each owner of channels.
func (h *Hall) launched() (n [gf100.Owners]uint64) {
	for i := range n {
		n[i], _ = h.Card.Stats().Owners[i].Class(classM2MF)
	}
	return n
}

// Times ends a run when so many requests were submitted.
func Times(n int) func(int) bool { return func(sent int) bool { return sent >= n } }

// Busy is how long the card's graphics engine has worked for the channels that there
// are, whether there is a scheduler or not.
func (h *Hall) Busy() (d time.Duration) {
	for id := range gf100.Channels {
		u := h.Card.Use(uint8(id))
		d += u.Busy[gf100.EngineGR]
	}
	return d
}
