package aggregator

import (
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// toll stands between a guest's shadows and memory. What shadows take is counted there
// as it is done, and after each slice of it everybody else has a turn: a scan of large
// tables is long, and whoever is ready to run would wait for all of it. Doorbells of
// neighbours are a few microseconds each. It is the guest's goroutine's.
type tableWorkMeter struct {
	guest *Guest
	work  uint64        // so far, see below
	next  uint64        // work at which the slice is over
	away  time.Duration // that the turns of others took
}

// Work is in bytes of the rate that bounds it (Options.TableRate). One is about a
// nanosecond of a server's processor; BenchmarkTableWork in tests/neighbours shows what
// it is on another, by what is done. Times would differ from run to run, and would be
// more the more the neighbours do. An entry that is looked at is one.
const (
	movedAtOnce    = 8   // bytes of tables that are compared, read or written for one
	perLook        = 128 // at least, for a look at a page, however little of it is compared
	perChange      = 16  // for an entry that is not what it was
	perTranslation = 128 // and for one that names memory, on its way to the card

	slice = 64 << 10
)

func (t *tableWorkMeter) spend(n uint64) {
	if t.work += n; t.work >= t.next {
		t.next = t.work + slice
		t.yield()
	}
}

// yield lets others run, unless somebody waits for the end of the round.
func (t *tableWorkMeter) yield() {
	g := t.guest
	g.mu.Lock()
	urgent := g.current.urgent() || g.pending.urgent()
	g.mu.Unlock()
	if urgent {
		return
	}
	begin := time.Now()
	runtime.Gosched()
	t.away += time.Since(begin)
}

// ReadTable implements shadowpt.Guest.
func (t *tableWorkMeter) ReadTable(target shadowpt.Target, addr uint64, p []byte) bool {
	t.spend(uint64(len(p)) / movedAtOnce)
	return t.guest.ReadTable(target, addr, p)
}

// SameTable implements shadowpt.Guest.
func (t *tableWorkMeter) SameTable(target shadowpt.Target, addr uint64, p []byte) bool {
	t.spend(max(uint64(len(p))/movedAtOnce, perLook))
	return t.guest.SameTable(target, addr, p)
}

// Translate implements shadowpt.Guest.
func (t *tableWorkMeter) Translate(target shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	t.spend(perTranslation)
	return t.guest.Translate(target, addr, n, write)
}

// AllocTable implements shadowpt.Card.
func (t *tableWorkMeter) AllocTable(n uint64) (uint64, bool) { return t.guest.allocOwn(n) }

// FreeTable implements shadowpt.Card.
func (t *tableWorkMeter) FreeTable(addr, n uint64) { t.guest.own.release(run{addr, wholePages(n)}) }

// WriteTable implements shadowpt.Card.
func (t *tableWorkMeter) WriteTable(addr uint64, p []byte) {
	t.spend(uint64(len(p)) / movedAtOnce)
	t.guest.agg.ctl.card.WriteVRAM(addr, p)
}
