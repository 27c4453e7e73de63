package aggregator

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// doorbellCard checks each GP_PUT that the card gets, by a doorbell or when a channel is bound:
// whose channel it is for, and what that channel's guest stored before it. A channel's ring, each
// GP_PUT and each store carry the channel's mark: the ring in its address, the others in their
// highest byte.
type doorbellCard struct {
	*fakeCard
	stored func(mark int) uint32 // what the card finds of the stores

	checking sync.Mutex          // guards what follows; taken before the card's own
	owner    [gf100.Channels]int // marks, by the card's number; 0: nobody's
	last     [gf100.Channels]uint32
	wrong    []string
}

func (b *doorbellCard) Write32(bar int, off uint64, v uint32) {
	b.checking.Lock()
	defer b.checking.Unlock()
	if bar == card.BAR1 {
		b.put("a doorbell", int(off/gf100.USERDSize), v)
		return
	}
	if id, inst, ok := fakecard.Bound(bar, off, v); ok {
		block := make([]byte, gf100.InstanceSize)
		b.ReadVRAM(inst, block)
		b.owner[id] = int(gf100.InstGPBaseLo.Get(block))
		userd, _ := gf100.InstanceUSERD(block)
		var put [4]byte
		b.ReadVRAM(userd+gf100.USERDGPPut, put[:])
		b.put("a bind", int(id), binary.LittleEndian.Uint32(put[:]))
	}
	b.fakeCard.Write32(bar, off, v)
}

func (b *doorbellCard) put(how string, ch int, v uint32) {
	mark := b.owner[ch]
	if v == 0 && b.last[mark] == 0 {
		return // nothing was submitted to it before
	}
	if mark != int(v>>24) {
		b.wrong = append(b.wrong, fmt.Sprintf("%s: channel %d, which is %d's, gets %#x", how, ch, mark, v))
		return
	}
	if got := b.stored(mark); got&0xffffff < v&0xffffff {
		b.wrong = append(b.wrong, fmt.Sprintf("%s: channel %d gets %#x, and the card finds %#x", how, ch, v, got))
	}
	b.last[mark] = v
}

// aliasPages are the pages of USERD, which an aliasing guest shows in many places.
const aliasPages = 16

// aliasing is a guest of which n pages of BAR1 are aliases. Its pages are shown in turn, from
// the first place behind the poll area on; they live at the first places that show them.
func aliasing(t tester, a *Aggregator, n int) *Guest {
	t.Helper()
	const barInst, barDir, barTable = 0x50000, 0x280000, 0x300000
	g := addGuestWith(t, a, GuestConfig{Map: aperture.MapBAR1})
	openWindows(t, g)
	block := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(block, barDir>>12)
	gf100.InstLimitLo.Put(block, 128<<20-1)
	require.True(t, g.mem.Write(shadowpt.VRAM, barInst, block))
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: barTable}}
	writeEntry(t, g, barDir, pde.Encode())
	var entries []byte
	for i := range n + aliasPages {
		pte := shadowpt.PTE{Valid: true, Addr: userdAt + uint64(i%aliasPages)<<12}
		entries = binary.LittleEndian.AppendUint64(entries, pte.Encode())
	}
	require.True(t, g.mem.Write(shadowpt.VRAM, barTable+gf100.PollSize/vram.PageSize*8, entries))
	gpu(g).Set(devgf100.BAR1Block, gf100.BlockVirtual|barInst>>12)
	require.EqualValues(t, n, g.stats.Windows.Mapped.Aliases.Load())
	return g
}

func openWindows(t tester, g *Guest) {
	t.Helper()
	require.NoError(t, g.OpenWindows(aperture.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20, Poll: gf100.PollSize}))
	t.Cleanup(func() { require.NoError(t, g.CloseWindows()) })
}

// store is a processor's store of GP_PUT to the page of channel id.
func store(g *Guest, id uint8, put uint32) {
	at, ok := g.mem.Translate(shadowpt.VRAM, userdAt+uint64(id)*gf100.USERDSize, gf100.USERDSize, true)
	if !ok {
		panic("no USERD")
	}
	g.agg.gpu.WriteVRAM(at+gf100.USERDGPPut, binary.LittleEndian.AppendUint32(nil, put))
}

// flips is the total number of changes by the guests of TestDoorbellsNeitherLostNorEarly.
const flips = 100_000

// TestDoorbellsNeitherLostNorEarly: a guest's processor stores to a page at the last of the many
// places that show it, then writes GP_PUT and rings. Another processor switches channels on and
// off, binds others at their numbers, commits runlists, preempts and invalidates. Each GP_PUT that
// the card gets, also at a bind, is of that channel, and what was stored before it is where the
// card finds it. In the end the card has every last GP_PUT.
func TestDoorbellsNeitherLostNorEarly(t *testing.T) {
	const few = 24
	flips := flips / 10 // of each
	if scale.Race {
		flips /= 5 // each takes as much longer
	}
	for _, aliases := range []int{0, aliasPages, few, 4 * few} {
		t.Run(fmt.Sprint(aliases), func(t *testing.T) { ringAndFlip(t, aliases, flips) })
	}
}

func ringAndFlip(t *testing.T, aliases, flips int) {
	const (
		numbers, kinds = 4, 2  // of channels: number id has instance block id, or id+numbers
		storedAt       = 0x800 // in the page of a channel's USERD
	)
	b := &doorbellCard{fakeCard: fakecard.New(fakeVRAM)}
	b.Silent = true
	a := newAggOn(t, b, patience, Options{TableRate: 1 << 40})
	g := aliasing(t, a, aliases)
	file := g.Regions()[0].File
	b.stored = func(mark int) uint32 {
		at, _ := g.mem.Translate(shadowpt.VRAM, userdAt+uint64(mark-1)*gf100.USERDSize, gf100.USERDSize, true)
		var p [4]byte
		b.ReadVRAM(at+storedAt, p[:])
		return binary.LittleEndian.Uint32(p[:])
	}
	for n := range uint64(numbers * kinds) {
		writeInstance(t, g, n, dirAt, (n+1)<<3)
	}
	list(t, g, 0, 1, 2, 3)

	var device sync.Mutex // a virtual GPU's: one trap at a time
	trap := func(do func()) {
		device.Lock()
		defer device.Unlock()
		do()
	}
	bind := func(id, kind uint32) {
		inst := instAt + uint64(id+kind*numbers)*gf100.InstanceSize
		trap(func() { g.MemoryBarrier(); bindAt(g, uint8(id), inst) })
	}
	unbind := func(id uint32) { trap(func() { g.MemoryBarrier(); gpu(g).Channel(uint8(id), devgf100.Bind, 0) }) }
	var last [numbers * kinds]uint32
	submit := func(i int) {
		last[i] = uint32(i+1)<<24 | (last[i]+1)&0xffffff
		var p [4]byte
		binary.LittleEndian.PutUint32(p[:], last[i])
		at := (aliases+aliasPages-1-i)/aliasPages*aliasPages + i // the last place that shows the page
		_, err := file.WriteAt(p[:], int64(gf100.PollSize+at*vram.PageSize+storedAt))
		assert.NoError(t, err)
		trap(func() {
			store(g, uint8(i), last[i])
			gpu(g).Channel(uint8(i%numbers), devgf100.Doorbell, 0)
		})
	}

	var stop atomic.Bool
	var processor sync.WaitGroup
	end := func() {
		stop.Store(true)
		processor.Wait()
	}
	defer end()
	processor.Go(func() {
		for n := 1; !stop.Load(); n++ {
			submit(rand.IntN(len(last)))
			if n%64 == 0 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	for n := range flips {
		id := rand.Uint32N(numbers)
		switch rand.IntN(64) {
		case 0:
			bind(id, rand.Uint32N(kinds))
		case 1:
			unbind(id)
		case 2:
			trap(func() { g.MemoryBarrier(); gpu(g).Runlist(listAt>>12, 0x01f00000|rand.Uint32N(numbers+1)) })
		case 3:
			trap(func() { g.MemoryBarrier(); gpu(g).Channel(uint8(id), devgf100.Preempt, 0) })
		case 4:
			trap(func() { g.MemoryBarrier(); gpu(g).Set(devgf100.MayRun, rand.Uint32N(2)) })
		case 5:
			trap(func() { g.MemoryBarrier(); invalidate(g) })
		default:
			trap(func() { gpu(g).Channel(uint8(id), devgf100.Enable, min(rand.Uint32N(8), 1)) })
		}
		if n%16 == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
	end()

	for n := range uint32(4 * kinds) {
		kind := n % kinds
		for id := range uint32(numbers) {
			unbind(id)
			bind(id, kind)
			trap(func() { gpu(g).Channel(uint8(id), devgf100.Enable, 1) })
		}
		if n >= 2*kinds {
			settle(g) // else the doorbell comes while it is being bound
		}
		for id := range uint32(numbers) {
			submit(int(id + kind*numbers))
		}
		lost := func() (list []string) {
			b.checking.Lock()
			defer b.checking.Unlock()
			for id := range uint32(numbers) {
				if i := id + kind*numbers; b.last[i+1] != last[i] {
					list = append(list, fmt.Sprintf("%#x is wanted, %#x came last", last[i], b.last[i+1]))
				}
			}
			return list
		}
		if !assert.Eventually(t, func() bool { return len(lost()) == 0 }, patience, tick, "a doorbell was lost") {
			require.Empty(t, lost())
		}
	}
	b.checking.Lock()
	wrong := b.wrong
	b.checking.Unlock()
	require.Empty(t, wrong[:min(len(wrong), 5)], "%d in all", len(wrong))
}
