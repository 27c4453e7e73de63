package aperture

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Config says what is mapped, and how much it may cost.
type Config struct {
	Map    Map
	Format *shadowpt.Format // of the tables of BAR1 and BAR3
	BAR0   uint64           // sizes in bytes
	BAR1   uint64
	BAR3   uint64
	VRAM   uint64
	Poll   uint64 // bytes at the beginning of BAR1 that have the doorbells, which stay trapped
	ROM    []byte // what the window on the board's ROM shows
	Limits
}

// Limits bound what a client's windows may cost. Zero values take the defaults.
type Limits struct {
	Aliases int // slots that show a page whose bytes are in another slot: 1024
	Runs    int // pieces in which pages lie in windows: 2048
	Moves   int // pages that one register access may move: 1024
}

func (l *Limits) complete() {
	for _, f := range []struct {
		limit *int
		usual int
	}{{&l.Aliases, 1024}, {&l.Runs, 2048}, {&l.Moves, 1024}} {
		if *f.limit == 0 {
			*f.limit = f.usual
		}
	}
}

// FitMappings lowers the limit on runs so that n mappings of the process suffice: each run takes
// two.
func (l *Limits) FitMappings(n int) {
	l.complete()
	l.Runs = min(l.Runs, n/2)
}

// staleAfter is the age of the last flush after which any register access flushes aliases:
// a driver may poll memory in a loop whose time-out reads a timer.
const staleAfter = time.Millisecond

// Owner has the memory that the windows show.
type Owner interface {
	shadowpt.Tables
	// Quiesce runs do while only the guest's own processors write the memory: no step of an
	// engine and no trapped access is under way.
	Quiesce(do func())
	// Relocate moves pages as card.Relocator does. It is called inside Quiesce.
	Relocate(r card.Relocation) (done uint64, err error)
	// Direct reports whether the guest may write the page of VRAM at addr without a trap.
	Direct(addr uint64, on bool)
}

// Mapper maps the windows of a GPU for its client. It has some while there is a client, see
// [Mapper.Open].
type Mapper struct {
	owner Owner
	stats *Stats
	began time.Time

	mapped  atomic.Uint32 // Map of the client; MapNone if there is none
	pending atomic.Bool   // queue is not empty
	flushed atomic.Int64  // when aliases were last flushed, since began

	mu sync.Mutex // guards what follows
	client

	step func() // called between the steps of promote; tests store there
}

// client is what a Mapper has for one client.
type client struct {
	cfg Config
	MapperState
	open    bool
	files   [4]*memory      // by BAR
	base    [Kinds + 1]slot // the first of each window
	bars    [Kinds]*scanner // BAR3 and BAR1; nil if not mapped
	queue   []*PageState    // those that are Queued
	aliased map[*PageState]struct{}
	vacated []slot // that no longer show a page; cleared before a method returns
}

// New returns the Mapper of a GPU that has no client.
func New(owner Owner, stats *Stats) *Mapper {
	return &Mapper{owner: owner, stats: stats, began: time.Now(), step: func() {}}
}

// Free returns an error if the windows of the last client are not closed.
func (s *Mapper) Free() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return errors.New("windows are not closed: pages of VRAM are still where the last client had them mapped")
	}
	return nil
}

// Open makes the windows of a client; the last client's are closed. They are empty until Block,
// Window and the like define their content.
func (s *Mapper) Open(cfg Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg.Limits.complete()
	s.stats.MostRuns.Store(int64(cfg.Runs))
	s.client = client{cfg: cfg, open: true, aliased: make(map[*PageState]struct{})}
	vram := uint32(cfg.VRAM >> pageShift)
	for k, bytes := range [Kinds]uint64{BAR3: cfg.BAR3, BAR1: cfg.BAR1, PRAMIN: praminSize} {
		n := uint32(bytes >> pageShift)
		if cfg.Map&kindMaps[k] == 0 {
			n = 0
		} else if Kind(k) != PRAMIN {
			s.bars[k] = newScanner(cfg.Format, &s.BARs[k], Kind(k), n, vram)
		}
		s.base[k+1] = s.base[k] + slot(n)
	}
	s.Slots, s.Pages = make([]SlotState, s.base[Kinds]), make(map[uint32]*PageState)
	for i := range s.Slots {
		s.Slots[i].Next, s.Slots[i].Prev = inCard, inCard
	}
	if err := s.makeFiles(); err != nil {
		err = errors.Join(err, s.closeFiles())
		s.client = client{}
		return err
	}
	s.mapped.Store(uint32(cfg.Map))
	return nil
}

// Close gives all pages back to the card and ends the windows, and reports whether there were any.
// A client that still has their files sees zeros. If the card does not take some pages back, that
// client can still reach them: Close then returns an error, and the next call tries again. Until it
// succeeds no other client may have the GPU.
func (s *Mapper) Close() (closed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mapped.Store(uint32(MapNone))
	if !s.open {
		return false, nil
	}
	s.bars = [Kinds]*scanner{} // nothing else moves there
	if n := s.empty(); n > 0 {
		return false, fmt.Errorf("%d pages of VRAM are still where the last client had them mapped: %s", n, s.Refused)
	}
	err = s.closeFiles()
	s.client = client{}
	return true, err
}

func (c *Config) pollPages() uint32 { return uint32(c.Poll >> pageShift) }

// Map says what the client may map.
func (s *Mapper) Map() Map { return Map(s.mapped.Load()) }

// Reset makes all windows show nothing.
func (s *Mapper) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// Block acts on a change of a BAR's block register: the BAR shows an address space or, if not on,
// nothing.
func (s *Mapper) Block(k Kind, on bool, space shadowpt.Space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bars[k]
	if b == nil {
		return
	}
	if !on {
		s.stats.Physical.Add(k, 1)
	}
	s.flushAliases()
	*b.Binding = Binding{on, space}
	s.scan(b)
	s.update(s.cfg.Moves)
}

// Invalidate acts on an invalidate of the directory at dir, or of all.
func (s *Mapper) Invalidate(t shadowpt.Target, dir uint64, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushAliases()
	for _, b := range s.bars {
		if b != nil && b.On && (all || b.Space.Target == t && b.Space.Dir == dir) {
			s.scan(b)
		}
	}
	s.update(s.cfg.Moves)
}

func (s *Mapper) scan(b *scanner) {
	b.scan(s.owner, s.stats, func(page uint32, e entry) {
		if at, mapped := s.slotOf(b.kind, page); mapped {
			s.show(at, e)
		}
	})
}

// Window acts on a write of NV_PBUS_BAR0_WINDOW: PRAMIN shows the memory at addr. A guest does not
// wait for that, so all of it is done immediately: at most twice as many pages as PRAMIN has.
func (s *Mapper) Window(t shadowpt.Target, addr uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Map()&MapPRAMIN == 0 {
		return
	}
	const n = praminSize / pageSize
	if t != shadowpt.VRAM {
		s.stats.System.Add(PRAMIN, n)
	}
	for i := range uint64(n) {
		e := nothing
		if page := addr>>pageShift + i; t == shadowpt.VRAM && page < s.cfg.VRAM>>pageShift {
			e = shows(uint32(page))
		}
		s.show(s.base[PRAMIN]+slot(i), e)
	}
	if len(s.queue) > s.cfg.Moves {
		slices.SortStableFunc(s.queue, s.praminFirst)
	}
	s.update(max(s.cfg.Moves, 2*n))
}

func (s *Mapper) update(n int) {
	s.moveQueued(n)
	s.stats.Deferred.Add(uint64(len(s.queue)))
}

// MemoryBarrier is called before accesses of registers whose rows are barriers, before
// interrupts, and before a doorbell reaches the card. It makes all slots that show a page equal.
func (s *Mapper) MemoryBarrier() {
	if s.stats.Aliases.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Barriers.Add(1)
	s.flushAliases()
}

// Pending reports whether pages are still to be moved: the last changes needed more moves than
// one register access may do.
func (s *Mapper) Pending() bool { return s.pending.Load() }

// Access is called before any access of a register. It moves pages that are pending, and flushes
// aliases that were not flushed for a while.
func (s *Mapper) Access() {
	stale := s.stats.Aliases.Load() != 0 && time.Since(s.began)-time.Duration(s.flushed.Load()) > staleAfter
	if !stale && !s.pending.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveQueued(s.cfg.Moves)
	if stale {
		s.flushAliases()
	}
}

// PollArea acts on a change of where the doorbells are in BAR1: n bytes from off on. Those in a
// mapped window do not reach the card, and are counted.
func (s *Mapper) PollArea(off, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off != 0 && s.Map()&MapBAR1 != 0 && off < s.cfg.BAR1 && off+n > s.cfg.Poll {
		s.stats.PollArea.Add(BAR1, 1)
	}
}
