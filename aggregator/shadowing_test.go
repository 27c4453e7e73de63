package aggregator

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// driver is a guest program over its tables, its channels and its invalidates,
// under a policy that changes while it runs. Whenever the card hears of work, the
// shadow that the work is done through must be what the guest's tables said at
// its last invalidate or later.
type driver struct {
	t    *rapid.T
	g    *Guest
	f    *fakeCard
	bus  *rangeBus
	dirs []uint64 // by channel
	// clean says that nothing was written since the space was last invalidated.
	clean []bool
	bound []bool

	bells, compared int
}

// rangeBus is guest memory of which a range is mapped.
type rangeBus struct {
	cutFile
	from, to uint64
}

func (b *rangeBus) Slice(addr uint64, n int, write bool) []byte {
	if addr < b.from || addr+uint64(n) > b.to {
		return nil
	}
	return b.cutFile.Slice(addr, n, write)
}

// Where drivers have their directories and tables: in VRAM, two of them one.
var (
	driverDirs   = []uint64{0x100000, 0x110000, 0x100000, 0x120000}
	driverTables = []uint64{0x200000, 0x240000, 0x201000, 0x280000}
)

func newDriver(t *rapid.T, p shadowpt.Policy) *driver {
	f := newFake(32 << 20)
	a, err := NewWith(f, Options{CardTimeout: patience})
	require.NoError(t, err)
	g, err := a.AddGuest(GuestConfig{Name: "a", VRAM: 4 << 20, Tables: 16 << 20, Shadow: p}, &recorder{})
	require.NoError(t, err)
	d := &driver{t: t, g: g, f: f, bus: &rangeBus{cutFile{make([]byte, 1<<20)}, 0, 1 << 20}, dirs: driverDirs, clean: make([]bool, len(driverDirs)), bound: make([]bool, len(driverDirs))}
	g.AttachMemory(d.bus)
	for id := range d.dirs {
		bindChannelAt(t, g, uint8(id), d.dirs[id])
		d.bound[id] = true
	}
	return d
}

// end removes the guest. What the aggregator kept for it is zero again: the next table,
// or instance block, is taken from there as it is.
func (d *driver) end() {
	require.NoError(d.t, d.g.Remove())
	for _, r := range d.g.ownRuns {
		require.True(d.t, bytes.Equal(d.f.vram[r.addr:r.addr+r.size], make([]byte, r.size)), "%#x+%#x is given back as it was", r.addr, r.size)
	}
	require.NoError(d.t, d.g.agg.Close())
}

func (d *driver) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

func (d *driver) write(addr, q uint64) {
	for i := range d.clean {
		d.clean[i] = false
	}
	b := binary.LittleEndian.AppendUint64(nil, q)
	if d.pick("by bytes", 2) == 0 {
		require.True(d.t, d.g.eachRun(addr, b, true))
		return
	}
	for i := range b {
		d.g.WritePRAMIN(uint32(addr>>16), uint32(addr&0xffff)+uint32(i), b[i:i+1])
	}
}

func (d *driver) step() {
	id := d.pick("channel", len(d.dirs))
	switch d.pick("step", 15) {
	case 0, 1:
		pde := shadowpt.PDE{Size: uint8(d.pick("size", 4))}
		if d.pick("small", 4) > 0 {
			pde.Small = shadowpt.Table{Present: true, Addr: driverTables[d.pick("table", len(driverTables))]}
		}
		if d.pick("big", 3) == 0 {
			pde.Big = shadowpt.Table{Present: true, Addr: driverTables[d.pick("table", len(driverTables))]}
		}
		d.write(d.dirs[id]+uint64(d.pick("slot", 3))*8, pde.Encode())
	case 2, 3, 4:
		pte := shadowpt.PTE{
			Valid: d.pick("valid", 5) > 0, ReadOnly: d.pick("read-only", 2) == 0, Target: []shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent}[d.pick("target", 2)],
			Addr: uint64(d.pick("page", 1100)) << 12,
		}
		d.write(driverTables[d.pick("table", len(driverTables))]+uint64(d.pick("entry", 600))*8, pte.Encode())
	case 5, 6:
		d.invalidate(id)
	case 7, 8:
		if d.pick("after an invalidate", 2) == 0 {
			d.invalidate(id)
		}
		d.bell(id)
	case 9: // what a client maps: more, or less
		from, to := uint64(d.pick("from", 128))<<12, uint64(128+d.pick("to", 128))<<12
		old := *d.bus
		d.g.agg.bus.attach(d.g.index, &rangeBus{d.bus.cutFile, from, to})
		d.bus = &rangeBus{d.bus.cutFile, from, to}
		d.g.Mapped(min(from, old.from), max(to, old.to))
		d.g.Unmapped(0, 1<<20)
		d.same()
	case 10:
		policies := shadowpt.Policies()
		p := policies[d.pick("policy", len(policies))]
		require.NoError(d.t, d.g.SetShadow(p))
		require.Equal(d.t, p, d.g.Shadow())
	case 11: // the channel is busy, or no longer
		if ch := d.g.cardChannel(uint8(id)); ch != nil {
			d.f.set(regChannel+uint32(ch.id)*8, uint32(d.pick("busy", 2))*gf100.ChannelPending|1)
		}
	case 12, 13: // it ends, and what is asked next comes while that is under way
		if d.pick("preempted", 3) > 0 {
			d.g.Preempt(uint8(id))
		}
		if d.pick("slowly", 2) == 0 {
			d.f.hold(regPreempt, true)
			time.AfterFunc(time.Duration(d.pick("for", 300))*time.Microsecond, func() { d.f.hold(regPreempt, false) })
		}
		d.g.Bind(uint8(id), 0)
		d.bound[id] = false
	case 14:
		d.bind(id)
	}
}

// bind binds a channel, anew if it is bound: what was written before is what its work sees.
func (d *driver) bind(id int) {
	d.g.Bind(uint8(id), 0xc0000000|uint32((instAt+uint64(id)*gf100.InstanceSize)>>12))
	for i := range d.clean {
		d.clean[i] = d.clean[i] || i == id
	}
	d.bound[id] = true
	if d.pick("wait", 2) == 0 {
		settleRound(d.g)
	}
}

func (d *driver) invalidate(id int) {
	if d.pick("all", 4) == 0 {
		d.g.Invalidate(0, 1<<31|gf100.InvalidateAllDirs)
		for i := range d.clean {
			d.clean[i] = true
		}
	} else {
		d.g.Invalidate(uint32(d.dirs[id]>>12<<4), 1<<31)
		for i := range d.clean {
			d.clean[i] = d.clean[i] || d.dirs[i] == d.dirs[id]
		}
	}
	if d.pick("wait", 2) == 0 {
		require.Eventually(d.t, d.g.Invalidated, patience, tick/10)
	}
}

// bell submits, and looks at the shadow as the card's engines would when the bell
// rings: the fake card calls back with its lock held.
func (d *driver) bell(id int) {
	if !d.bound[id] {
		d.bind(id)
	}
	d.bells++
	n := len(d.f.rings())
	d.g.Doorbell(uint8(id))
	require.Eventually(d.t, func() bool { return len(d.f.rings()) > n }, patience, tick/10)
	if d.clean[id] {
		d.compared++
		d.compare(d.g.cardChannel(uint8(id)).space)
	}
}

// same wants shadows that have been brought up to date whatever was invalidated.
func (d *driver) same() {
	d.g.mu.Lock()
	var list []*space
	for i := range d.g.channels {
		if ch := d.g.channels[i].ch; ch != nil && !slices.Contains(list, ch.space) {
			list = append(list, ch.space)
		}
	}
	d.g.mu.Unlock()
	for _, sp := range list {
		d.compare(sp)
	}
}

// compare holds a space's shadow against a full rebuild of its own.
func (d *driver) compare(sp *space) {
	o := &oracle{Guest: d.g, mem: make([]byte, 4<<20)}
	s, ok := shadowpt.NewShadow(o, o, shadowpt.NewWork(1<<40), sp.shadow.Space())
	require.True(d.t, ok)
	s.Rebuild()
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	require.Equal(d.t, flatten(o.mem, s.Dir()), flatten(d.f.vram, sp.shadow.Dir()))
}

// oracle has tables of its own for the same guest.
type oracle struct {
	*Guest
	mem  []byte
	next uint64
}

func (o *oracle) AllocTable(n uint64) (uint64, bool) {
	o.next += n
	return o.next - n, true
}
func (o *oracle) FreeTable(uint64, uint64)         {}
func (o *oracle) WriteTable(addr uint64, p []byte) { copy(o.mem[addr:], p) }

// flatten lists the entries of a shadow that are not zero.
func flatten(mem []byte, dir uint64) (list []string) {
	for i := range uint64(shadowpt.DirEntries) {
		q := binary.LittleEndian.Uint64(mem[dir+i*8:])
		if q == 0 {
			continue
		}
		pde := shadowpt.DecodePDE(q)
		for _, t := range []struct {
			name string
			shadowpt.Table
			n uint64
		}{{"big", pde.Big, shadowpt.BigEntries}, {"small", pde.Small, shadowpt.SmallEntries}} {
			if !t.Present || bytes.Equal(mem[t.Addr:t.Addr+t.n*8], make([]byte, t.n*8)) {
				continue
			}
			for k := range t.n {
				if e := binary.LittleEndian.Uint64(mem[t.Addr+k*8:]); e != 0 {
					list = append(list, fmt.Sprintf("%d size %d %s %d: %x", i, pde.Size, t.name, k, e))
				}
			}
		}
	}
	return list
}

// TestPoliciesEqualFullRebuilds: under every policy, and while policies change,
// the work that the card gets sees the guest's tables as a full rebuild would make
// them.
func TestPoliciesEqualFullRebuilds(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); raceDetector && f.Value.String() == f.DefValue {
		// What runs side by side is seen in a few; that tables are right, in the others.
		require.NoError(t, f.Value.Set("15"))
		t.Cleanup(func() { require.NoError(t, f.Value.Set(f.DefValue)) })
	}
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			draws, bells, compared := 0, 0, 0
			rapid.Check(t, func(t *rapid.T) {
				d := newDriver(t, policy)
				defer d.end()
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					d.step()
				}
				d.invalidate(0) // whatever was drawn, something is looked at
				d.bell(0)
				draws++
				bells, compared = bells+d.bells, compared+d.compared
			})
			t.Log(bells, "submissions,", compared, "of them after an invalidate")
			require.GreaterOrEqual(t, compared, draws, "a submission right after an invalidate was not compared")
		})
	}
}

// TestLazyScans: many invalidates and few submissions cost scans by the
// submissions, and no guest waits for its invalidate.
func TestLazyScans(t *testing.T) {
	for _, scan := range []shadowpt.Scan{shadowpt.ScanFull, shadowpt.ScanIncremental} {
		a, f := newAgg(t, Options{})
		p := shadowpt.Policy{}
		p.Sync, p.Scan = shadowpt.SyncLazy, scan
		g := addGuestWith(t, a, GuestConfig{Shadow: p})
		bindChannel(t, g, 1)
		const invalidates, submissions = 1000, 10
		before := g.stats.Scans.Load()
		for i := range invalidates {
			require.True(t, g.eachRun(dirAt+uint64(i)*8, binary.LittleEndian.AppendUint64(nil, uint64(i)<<2&12), true))
			g.Invalidate(dirAt>>12<<4, 1<<31|1)
			require.True(t, g.Invalidated())
			if i%(invalidates/submissions) == 0 {
				n := len(f.rings())
				g.Doorbell(1)
				require.Eventually(t, func() bool { return len(f.rings()) > n }, patience, tick/10)
				settleRound(g)
			}
		}
		require.LessOrEqual(t, g.stats.Scans.Load()-before, uint64(submissions+1))
		require.GreaterOrEqual(t, g.stats.LazyInvalidates.Load(), uint64(invalidates))
	}
}

// settleRound waits until nothing is under way.
func settleRound(g *Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.idle() {
		g.wake.Wait()
	}
}

// TestPaceHoldsAnyAmount: what was spent is waited for, held against numbers that have no
// bound; of what no Duration holds, until it is to be asked again.
func TestPaceHoldsAnyAmount(t *testing.T) {
	now := time.Now()
	for _, rate := range []float64{1, 512 << 20, 1 << 40} {
		for n := 1.; n <= math.MaxFloat64/8; n *= 8 {
			var p leakyBucket
			p.spend(now, rate, n)
			d := p.due(now, rate, 0)
			exact := new(big.Float).Mul(big.NewFloat(n), big.NewFloat(1e9))
			want, _ := exact.Quo(exact, big.NewFloat(rate)).Float64()
			want = min(want, float64(longestWait))
			require.InDelta(t, want, float64(d), 1+want/1e9, "%g at %g", n, rate)
			require.Zero(t, p.due(now, rate, n), "all of it may be in the bucket")
		}
	}
}

// TestScansAreOfSpaces: what a guest's client does with its memory is no scan while the guest has
// no address space.
func TestScansAreOfSpaces(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	move := func() {
		g.mu.Lock()
		g.remapped = [2]uint64{0, 1 << 20}
		g.pending.invalidate.all, g.pending.invalidate.unmapped = true, true
		g.mu.Unlock()
		settle(g)
	}
	move()
	require.Zero(t, g.stats.Scans.Load())
	bindChannel(t, g, 1)
	scans := g.stats.Scans.Load()
	move()
	require.Greater(t, g.stats.Scans.Load(), scans)
}

// TestBusyChannelsAreNotPutOff: an invalidate of a space in which work is under way
// is done at once.
func TestBusyChannelsAreNotPutOff(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	ch := g.cardChannel(1)
	for _, busy := range []uint32{gf100.ChannelBusy, gf100.ChannelPending, 0} {
		g.Doorbell(1)
		settleRound(g)
		f.set(regChannel+uint32(ch.id)*8, busy|1)
		require.True(t, g.eachRun(dirAt, []byte{byte(busy >> 22)}, true))
		scans := g.stats.Scans.Load()
		g.Invalidate(dirAt>>12<<4, 1<<31|1)
		settleRound(g)
		require.Equal(t, busy != 0, g.stats.Scans.Load() > scans, "%#x", busy)
	}
	// What is owed is done before anything else lets a channel run, too.
	for name, start := range map[string]func(){
		"enable": func() { g.Enable(1, true) },
		"runlist": func() {
			require.True(t, g.eachRun(listAt, binary.LittleEndian.AppendUint64(nil, 1), true))
			g.Runlist(listAt>>12, 0x01f00001)
		},
	} {
		require.True(t, g.eachRun(dirAt, []byte{4}, true))
		g.Invalidate(dirAt>>12<<4, 1<<31|1)
		require.True(t, g.Invalidated())
		scans := g.stats.Scans.Load()
		start()
		settleRound(g)
		require.Greater(t, g.stats.Scans.Load(), scans, name)
		f.set(regChannel+uint32(ch.id)*8, 1)
	}
}

// TestTableStormIsBounded: a guest that has large tables looked at again and again gets
// its rate, a burst, and the round that went beyond it; memory that goes does not wait
// behind them.
func TestTableStormIsBounded(t *testing.T) {
	const rate = 1 << 10 // so little that what goes beyond the burst is waited for by minutes
	a, _ := newAgg(t, Options{TableRate: rate})
	p := shadowpt.Policy{}
	p.Sync, p.Scan = shadowpt.SyncFlush, shadowpt.ScanFull
	g := addGuestWith(t, a, GuestConfig{Shadow: p})
	bindChannel(t, g, 1)
	entries := make([]byte, shadowpt.SmallTableSize/2)
	for i := 0; i < len(entries); i += 8 {
		binary.LittleEndian.PutUint64(entries[i:], shadowpt.PTE{Valid: true}.Encode())
	}
	require.True(t, g.eachRun(0x200000, entries, true))
	require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: 0x200000}}.Encode()), true))
	burst := 4 * g.limits.Tables
	begin, round := time.Now(), uint64(0)
	for range 100 {
		work := g.stats.TableWork.Load()
		g.Invalidate(dirAt>>12<<4, 1<<31|1)
		g.mu.Lock()
		waits := g.tableBudget.level > float64(burst)
		g.mu.Unlock()
		if waits || g.stats.ThrottleTime.Load() > 0 {
			break
		}
		settleRound(g)
		round = max(round, g.stats.TableWork.Load()-work)
	}
	require.Greater(t, round, uint64(len(entries)/8*perTranslation))
	g.Invalidate(dirAt>>12<<4, 1<<31|1)
	require.False(t, g.Invalidated(), "it waits for its rate")
	require.Greater(t, g.stats.TableWork.Load(), burst)
	require.LessOrEqual(t, g.stats.TableWork.Load(), burst+2*round+uint64(rate*time.Since(begin).Seconds()))
	g.Unmapped(0, 1<<20)
	require.Empty(t, g.QuarantineReason(), "done in time")
}

// TestOthersHaveTurns: on one processor, who has long tables looked at lets others run
// after each slice; not when somebody waits for memory to go.
func TestOthersHaveTurns(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns, stop atomic.Int64
	var other sync.WaitGroup
	other.Go(func() {
		for stop.Load() == 0 {
			turns.Add(1)
			runtime.Gosched()
		}
	})
	mine := tableWorkMeter{guest: g}
	spend := func(n uint64) int64 {
		before := turns.Load()
		for range n / 512 {
			mine.spend(512)
		}
		return turns.Load() - before
	}
	require.Greater(t, spend(100*slice), int64(50)) // the race detector has others run, too
	require.NotZero(t, mine.away)
	for _, requests := range []*requests{&g.pending, &g.current} { // in the round to come, or in this one
		urgent := func(on bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			requests.invalidate.unmapped = on // which nobody wakes the goroutine for
		}
		urgent(true)
		away := mine.away
		spend(100 * slice) // the runtime may have others run meanwhile
		require.Equal(t, away, mine.away)
		urgent(false)
	}
	stop.Store(1)
	other.Wait()
}
