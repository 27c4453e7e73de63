package gate

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = rig.Patience
	ringLog2 = 4
	ring     = 1 << ringLog2 // entries: short, so that it wraps often
	wordsVA  = 0x1000_0000
	marksVA  = 0x2000_0000 // what the card writes
	holdVA   = 0x3000_0000 // a semaphore by which a test keeps the card
)

// modes are what the guests map. All tests run in both.
var modes = []struct {
	name string
	maps aperture.Map
}{
	{"trapped", 0},
	{"mapped", aperture.MapAll},
}

func eachMode(t *testing.T, run func(t *testing.T, h *hall)) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			cfg := sched.Default()
			cfg.Policy, cfg.Ahead = sched.Credit, 0 // one entry at a time, and no more
			h := &hall{t: t, Rig: rig.NewScheduled(t, 0, cfg), maps: m.maps}
			run(t, h)
			for i, gpu := range h.GPUs {
				require.Zero(t, gpu.Guest.Stats().BadPut.Load(), "guest %d", i)
			}
			c := h.Agg.ScheduleCounts()
			require.Zero(t, c.BadEvents, "%+v", c)
		})
	}
}

// hall is a card with its guests.
type hall struct {
	*rig.Rig
	t    *testing.T
	maps aperture.Map
}

// player is a guest with a channel whose entries each write a mark.
type player struct {
	*guest.Channel
	t     *testing.T
	h     *hall
	g     *rig.Guest
	marks *guest.Buffer
	hold  *guest.Buffer
	put   uint32 // as the guest wrote it last
	first int64  // entries that its driver had submitted before
}

// join adds a guest. Its ring has entries already: that at place i has the card write i+1
// at place i of the marks.
func (h *hall) join(name string) *player {
	h.t.Helper()
	p := &player{t: h.t, h: h, g: h.Join(aggregator.GuestConfig{Name: name, Map: h.maps})}
	words := p.buffer(wordsVA)
	p.marks, p.hold = p.buffer(marksVA), p.buffer(holdVA)
	p.Channel = p.g.Channel(1, guest.ChannelConfig{RingLog2: ringLog2})
	for i := range uint64(ring) {
		p.enter(i, words, wordsVA, i*256, new(guest.Push).Semaphore(marksVA+i*16, uint32(i)+1, guest.SemRelease).Words)
	}
	p.first = p.account().Entries
	return p
}

func (p *player) buffer(va uint64) *guest.Buffer {
	p.t.Helper()
	b := p.g.Buffer(va, 4096, guest.Small|guest.Volatile)
	require.NoError(p.t, b.Write(0, make([]byte, 4096)))
	return b
}

// enter writes words into a buffer at va, and entry i of the ring that executes them.
func (p *player) enter(i uint64, b *guest.Buffer, va, off uint64, words []uint32) {
	var raw []byte
	for _, v := range words {
		raw = binary.LittleEndian.AppendUint32(raw, v)
	}
	require.NoError(p.t, b.Write(off, raw))
	require.NoError(p.t, p.Ring().Write(i*gf100.GPEntrySize, binary.LittleEndian.AppendUint64(nil, guest.GPEntry(va+off, len(words)))))
}

// account is what the guest had, all engines together.
func (p *player) account() sched.Account {
	a, _, _ := rig.Totals(p.h.Entry(p.g.GPU.Name()))
	return a
}

// left is how many of its entries wait, and how many the card has.
func (p *player) left() (waiting, onCard int) {
	_, waiting, onCard = rig.Totals(p.h.Entry(p.g.GPU.Name()))
	return waiting, onCard
}

// submit submits n entries more by one doorbell.
func (p *player) submit(n int) {
	p.put = (p.put + uint32(n)) % ring
	require.NoError(p.t, p.Doorbell(p.put))
	require.Equal(p.t, p.put, p.USERD(gf100.USERDGPPut), "the guest reads what it wrote")
}

// settle waits until all that was submitted is done.
func (p *player) settle(entries int64) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		a := p.account()
		return a.Done == p.first+entries && p.GPGet() == p.put
	}, patience, time.Millisecond, "%d entries; the books have %+v; GP_GET %d, GP_PUT %d", entries, p.account(), p.GPGet(), p.put)
	require.Equal(p.t, p.first+entries, p.account().Entries)
}

// mark reads what the card wrote at a place.
func (p *player) mark(i int) uint32 {
	var b [4]byte
	require.NoError(p.t, p.marks.Read(uint64(i)*16, b[:]))
	return binary.LittleEndian.Uint32(b[:])
}

func (p *player) clear() { require.NoError(p.t, p.marks.Write(0, make([]byte, ring*16))) }

// keep turns the guest's next entry into one that waits for the semaphore. restore brings
// the old entry back, after the card has completed it.
func (p *player) keep() (release, restore func()) {
	at := p.put
	old := make([]byte, gf100.GPEntrySize)
	require.NoError(p.t, p.Ring().Read(uint64(at)*gf100.GPEntrySize, old))
	require.NoError(p.t, p.hold.Write(0, make([]byte, 4)))
	p.enter(uint64(at), p.hold, holdVA, 64, new(guest.Push).Semaphore(holdVA, 1, guest.SemAcquire).Words)
	return func() { require.NoError(p.t, p.hold.Write(0, []byte{1, 0, 0, 0})) },
		func() { require.NoError(p.t, p.Ring().Write(uint64(at)*gf100.GPEntrySize, old)) }
}

// TestPartialRelease: the card never gets more of a guest's entries than its turn allows,
// in order, however many the guest submits later. Waiting entries are counted once, not
// again when they are forwarded. The guest always reads its own GP_PUT and the card's
// GP_GET.
func TestPartialRelease(t *testing.T) {
	eachMode(t, func(t *testing.T, h *hall) {
		p := h.join("a")
		total := int64(0)
		for round := range 3 * ring {
			p.clear()
			before := p.account()
			at, n := p.put, 2+round%(ring-3)
			release, restore := p.keep()
			p.submit(n)
			require.Eventually(t, func() bool { _, on := p.left(); return on == 1 }, patience, time.Millisecond)
			for range 3 {
				waiting, on := p.left()
				require.Equal(t, [2]int{n - 1, 1}, [2]int{waiting, on}, "round %d", round)
				require.LessOrEqual(t, (p.GPGet()-at)%ring, uint32(1), "the card fetched entries that were not forwarded")
				require.Equal(t, p.put, p.USERD(gf100.USERDGPPut))
				for i := range ring {
					require.Zero(t, p.mark(i), "round %d: an entry was done after a waiting one", round)
				}
			}
			p.submit(1)      // after waiting entries
			held := int64(n) // all but the first
			waiting, _ := p.left()
			require.Equal(t, n, waiting)
			release()
			total += int64(n) + 1
			p.settle(total)
			restore()
			after := p.account()
			require.Equal(t, int64(n)+1, after.Done-before.Done)
			require.GreaterOrEqual(t, after.Held-before.Held, held, "they were held")
			require.Zero(t, after.Dropped)
			for i := range ring {
				k, want := (uint32(i)-at)%ring, uint32(0)
				if k >= 1 && k <= uint32(n) {
					want = uint32(i) + 1
				}
				require.Equal(t, want, p.mark(i), "round %d: place %d", round, i)
			}
		}
	})
}

// TestWhileGatesFlip: two guests submit alternately while the policy changes, and others
// read: GP_PUT is the last written value, GP_GET never passes it, and every entry is
// counted and executed once.
func TestWhileGatesFlip(t *testing.T) {
	eachMode(t, func(t *testing.T, h *hall) {
		players := []*player{h.join("a"), h.join("b")}
		many := int64(scale.Of(4_000, 20_000) / len(players))
		var stop atomic.Bool
		var others sync.WaitGroup
		others.Go(func() {
			for round := 0; !stop.Load(); round++ {
				c := sched.Default()
				c.Ahead, c.Policy = 0, sched.None+sched.Policy(round)%(sched.DFQ-sched.None+1)
				if err := h.Agg.SetSchedule(c); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		others.Go(func() {
			for !stop.Load() {
				for _, p := range players {
					e := h.Entry(p.g.GPU.Name())
					for i, a := range e.Accounts {
						if sum := a.Done + a.Dropped + int64(e.Waiting[i]+e.Inflight[i]); sum != a.Entries {
							t.Errorf("%s: %d entries, and %d are somewhere", p.g.GPU.Name(), a.Entries, sum)
						}
					}
				}
				time.Sleep(100 * time.Microsecond)
			}
		})
		var all sync.WaitGroup
		totals := make([]int64, len(players))
		for i, p := range players {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for held, grew := int64(0), time.Now(); held < many; {
					get := p.GPGet()
					used := (p.put - get) % ring
					if n := r.Uint32N(ring - used); n > 0 {
						p.put = (p.put + n) % ring
						totals[i] += int64(n)
						if err := p.Doorbell(p.put); err != nil {
							t.Error(err)
							return
						}
					} else if now := p.account().Held; now > held {
						held, grew = now, time.Now()
					} else if time.Since(grew) > patience {
						t.Errorf("%s: %d entries were held, and none more in %v; GP_GET %d, GP_PUT %d", p.g.GPU.Name(), held, patience, get, p.put)
						return
					}
					was, wrote := p.GPGet(), p.USERD(gf100.USERDGPPut)
					if wrote != p.put {
						t.Errorf("%s reads GP_PUT %d, and wrote %d", p.g.GPU.Name(), wrote, p.put)
						return
					}
					if done := (was - get) % ring; done > (p.put-get)%ring {
						t.Errorf("%s: GP_GET went from %d to %d, with GP_PUT at %d", p.g.GPU.Name(), get, was, p.put)
						return
					}
				}
			})
		}
		all.Wait()
		stop.Store(true)
		others.Wait()
		for i, p := range players {
			p.settle(totals[i])
			a := p.account()
			t.Logf("%s: %d entries, %d held, waited %v", p.g.GPU.Name(), a.Done, a.Held, a.Wait)
			require.Zero(t, a.Dropped, p.g.GPU.Name())
		}
	})
}

// TestWorkBeforeABind: what a guest submits to a channel that is not bound is done when it is bound,
// without another doorbell.
func TestWorkBeforeABind(t *testing.T) {
	eachMode(t, func(t *testing.T, h *hall) {
		p := h.join("a")
		p.submit(1)
		p.settle(1)
		require.NoError(t, p.Stop())
		require.NoError(t, p.g.Raw().SetReg(0x3000+1*8, 0))
		p.submit(3)
		require.NoError(t, p.Start())
		require.Eventually(t, func() bool { return p.GPGet() == p.put }, patience, time.Millisecond)
		for i := range 4 {
			require.Equal(t, uint32(i)+1, p.mark(i))
		}
	})
}
