package homes

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Config says what is mapped, and how much it may cost.
type Config struct {
	Map  Map
	BAR0 uint64 // sizes in bytes
	BAR1 uint64
	BAR3 uint64
	VRAM uint64
	Poll uint64 // bytes at the beginning of BAR1 that have the doorbells
	// Doorbells has them mapped too: the owner looks for those that rang. Else they stay
	// trapped, whatever Map says.
	Doorbells bool
	ROM       []byte // what the window on the board's ROM shows
	Limits
}

// Limits bound what a client's windows may cost. Zero values take the defaults.
type Limits struct {
	Aliases int // places of pages that live elsewhere: 1024
	Runs    int // pieces in which pages lie in windows: 2048
	Moves   int // pages that one trap may bring to windows, and as many home: 1024
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

// Pieces is how many pieces windows with these limits make of memory that lies together: a
// run, and what is behind it.
func (l Limits) Pieces() int {
	l.complete()
	return 2 * l.Runs
}

// FitPieces has at most so many be enough, which are two or more.
func (l *Limits) FitPieces(n int) {
	l.complete()
	l.Runs = min(l.Runs, n/2)
}

// Where the windows lie in BAR0, and how large the one on VRAM is.
const (
	romBase    = 0x300000
	praminBase = 0x700000
	praminSize = 0x100000
)

// Owner is whose memory the windows show.
type Owner interface {
	Tables
	// Still runs do while nobody but the guest's own processors writes the memory:
	// no step of an engine is under way, and no access past the windows.
	Still(do func())
	// Home gives a piece of the memory another home, as card.Card does. It is called
	// inside Still. It returns how many bytes have moved, from the first on.
	Home(m card.Move) (uint64, error)
	// Direct tells that the guest may write the page of VRAM at addr without a trap
	// from now on, or does so no more.
	Direct(addr uint64, on bool)
}

// Region is a part of a BAR that a machine may map.
type Region struct {
	BAR   int
	File  *os.File // as long as the BAR; the Set's own
	Areas []Area
}

// Area is a piece of a region, in bytes.
type Area struct{ Offset, Size uint64 }

// Set is the windows of one client of one GPU.
type Set struct {
	cfg   Config
	owner Owner
	stats *Stats

	mu      sync.Mutex
	files   [4]*memory // by BAR
	plan    *planner
	bars    [Kinds]*scanner // BAR3, and BAR1 with the poll area; nil if not mapped
	changes []change

	replicas map[place]*replica
	order    []*replica          // the same
	ofPage   map[uint32]*replica // the first of each page that has some; the others hang on it
	refused  error               // why the card did not move pages, the last time

	trap    work        // what the trap under way has moved, if begun
	begun   atomic.Bool // it has moved some; set under mu, and taken back by Glance
	pending atomic.Bool // pages are not yet where they belong
	slow    atomic.Bool // freshen looks seldom
	poke    chan struct{}
	closing chan struct{}
	end     sync.Once // closes closing
	ended   sync.WaitGroup
}

// New makes the windows of a client. Nothing is in them until Block, Window and
// the like have said what they show. Close ends it. The counters outlive it.
func New(cfg Config, owner Owner, stats *Stats) (*Set, error) {
	cfg.Limits.complete()
	s := &Set{
		cfg: cfg, owner: owner, stats: stats, replicas: make(map[place]*replica), ofPage: make(map[uint32]*replica),
		poke: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	stats.MostRuns.Store(int64(cfg.Runs))
	sizes := cfg.sizes()
	vram := uint32(cfg.VRAM >> pageShift)
	if sizes[BAR3] > 0 {
		s.bars[BAR3] = newScanner(BAR3, sizes[BAR3], vram)
	}
	if n := max(sizes[BAR1], sizes[PollArea]); n > 0 {
		s.bars[BAR1] = newScanner(BAR1, n, vram)
	}
	s.plan = newPlanner(sizes)
	if err := s.makeFiles(); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	s.ended.Go(s.freshen)
	return s, nil
}

func (s *Set) makeFiles() (err error) {
	for bar, f := range [4]struct {
		name string
		size uint64
		used bool
	}{
		0: {"bar0", s.cfg.BAR0, s.cfg.Map&(MapPRAMIN|MapROM) != 0},
		1: {"bar1", s.cfg.BAR1, s.cfg.Map&MapBAR1 != 0 || s.cfg.Doorbells},
		3: {"bar3", s.cfg.BAR3, s.cfg.Map&MapBAR3 != 0},
	} {
		if !f.used {
			continue
		}
		if s.files[bar], err = newMemory(f.name, f.size); err != nil {
			return err
		}
	}
	s.putROM()
	return nil
}

func (s *Set) putROM() {
	if s.cfg.Map&MapROM == 0 {
		return
	}
	mem := s.files[card.BAR0].mem[romBase:][:s.romSize()]
	for i := copy(mem, s.cfg.ROM); i < len(mem); i++ {
		mem[i] = 0xff // as on a bus that nobody answers
	}
}

func (s *Set) romSize() uint64 { return (uint64(len(s.cfg.ROM)) + pageSize - 1) &^ (pageSize - 1) }

func (s *Set) closeFiles() error {
	var errs []error
	for i, m := range s.files {
		if m != nil {
			errs = append(errs, m.close())
			s.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Regions lists what the client may map.
func (s *Set) Regions() (list []Region) {
	add := func(bar int, areas ...Area) {
		list = append(list, Region{BAR: bar, File: s.files[bar].file, Areas: areas})
	}
	var zero []Area
	if s.cfg.Map&MapROM != 0 && s.romSize() > 0 {
		zero = append(zero, Area{romBase, s.romSize()})
	}
	if s.cfg.Map&MapPRAMIN != 0 {
		zero = append(zero, Area{praminBase, praminSize})
	}
	if len(zero) > 0 {
		add(card.BAR0, zero...)
	}
	if from, to := s.cfg.ofBAR1(); from < to {
		add(card.BAR1, Area{from, to - from})
	}
	if s.cfg.Map&MapBAR3 != 0 {
		add(card.BAR3, Area{0, s.cfg.BAR3})
	}
	return list
}

// Close gives all pages back to the card and ends the windows. A client that still
// has their files sees zeros. Pages that the card does not take back stay where that
// client can reach them: Close says so, and is to be called again.
func (s *Set) Close() error {
	s.end.Do(func() { close(s.closing) })
	s.ended.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
	if n := s.living(); n > 0 {
		return fmt.Errorf("%d pages of VRAM are still where the last client had them mapped: %w", n, s.refused)
	}
	return s.closeFiles()
}

// Reset makes all windows show nothing.
func (s *Set) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// empty sends all pages home and clears the files, whatever is in them.
func (s *Set) empty() {
	for i, b := range s.bars {
		if b != nil {
			s.bars[i] = newScanner(b.kind, b.pages, b.vram)
		}
	}
	for at := range s.plan.shows {
		s.plan.show(place(at), nothing)
	}
	for s.follow(math.MaxInt); s.pending.Load(); {
		s.follow(math.MaxInt)
	}
	s.evict()
	s.trap = work{} // no limit is for this
	for _, m := range s.files {
		if m != nil {
			m.punch(0, uint64(len(m.mem)))
		}
	}
	s.putROM()
}

// evict sends pages home that live where nothing shows them: the card did not move
// them when they were to go, and no plan names them again.
func (s *Set) evict() {
	var list []piece
	for _, page := range s.plan.lodger {
		if page != 0 {
			list = append(list, piece{page - 1, 1, own})
		}
	}
	if len(list) == 0 {
		return
	}
	s.owner.Still(func() {
		for _, p := range s.join(list) {
			s.home(p, card.Move{})
		}
	})
}

// Block acts on a change of a BAR's block register: the BAR shows an address space,
// or, if not on, nothing.
func (s *Set) Block(k Kind, on bool, space shadowpt.Space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bars[k]
	if b == nil {
		return
	}
	if !on {
		s.stats.Physical.Add(k, 1)
	}
	s.reconcile(pageSize)
	b.bind(on, space)
	s.scan(b)
	s.apply()
}

// Invalidate acts on an invalidate of the directory at dir, or of all.
func (s *Set) Invalidate(t shadowpt.Target, dir uint64, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcile(pageSize)
	for _, b := range s.bars {
		if b != nil && b.on && (all || b.space.Target == t && b.space.Dir == dir) {
			s.scan(b)
		}
	}
	s.apply()
}

func (s *Set) scan(b *scanner) {
	b.scan(s.owner, s.stats, func(page uint32, e entry) {
		if at, mapped := s.place(b.kind, page); mapped {
			s.plan.show(at, e)
		}
	})
}

// Window acts on a write of NV_PBUS_BAR0_WINDOW: PRAMIN shows the memory at addr.
func (s *Set) Window(t shadowpt.Target, addr uint64) {
	if s.cfg.Map&MapPRAMIN == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	base := s.plan.base[PRAMIN]
	if t != shadowpt.VRAM {
		s.stats.System.Add(PRAMIN, praminSize/pageSize)
	}
	for i := range uint64(praminSize / pageSize) {
		e := nothing
		if page := addr>>pageShift + i; t == shadowpt.VRAM && page < s.cfg.VRAM>>pageShift {
			e = shows(uint32(page), false)
		}
		s.plan.show(base+place(i), e)
	}
	// Nobody waits for this: the next store may go there. It is no more than PRAMIN has,
	// twice.
	n := s.budget()
	if len(s.plan.touched) > n {
		n = max(n, s.plan.hurry(base, praminSize/pageSize))
	}
	s.applyAt(n)
}

// Order is called before what orders memory: accesses of registers that do so, and
// interrupts. What was written to mapped places before is then where it belongs.
// Doorbells have Gather.
func (s *Set) Order() {
	if !s.Aliased() {
		return
	}
	s.stats.Orders.Add(1)
	s.mu.Lock()
	s.reconcile(userd)
	s.mu.Unlock()
	s.soon()
}

// soon has replicas looked at again soon, for the guest does something.
func (s *Set) soon() {
	if s.slow.Load() {
		s.wake()
	}
}

// Aliased tells whether more than one place shows a page, so that there is something to gather.
func (s *Set) Aliased() bool { return s.stats.Replicas.Load() != 0 }

// Pending tells whether pages are still to be brought to where they belong: the last
// invalidate, or change of a block register, was of more than one trap may move.
func (s *Set) Pending() bool { return s.pending.Load() }

// Glance is called before any access of a register. It costs next to nothing: replicas
// are looked at soon, for the guest is at work. If pages are to be moved, some are: what
// is left of the limit is for what the access itself does.
func (s *Set) Glance() {
	if s.begun.Load() {
		s.begun.Store(false)
	}
	if s.pending.Load() {
		s.mu.Lock()
		s.spend(s.budget())
		s.mu.Unlock()
	}
	if s.Aliased() {
		s.soon()
	}
}
