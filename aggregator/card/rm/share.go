package rm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// classes are the objects that a channel of an engine may have. The first is that of channels themselves.
const channelClass = 0xc86f

var (
	graphicsClasses = worker.Classes{0xcb97, 0xcbc0, 0x902d, 0xa140, 0xc8b5}
	copyClasses     = worker.Classes{0xc8b5}
)

// share is one guest's part of the card, and its process.
type share struct {
	gpu     *GPU
	cfg     card.ShareConfig
	used    int // channels; guarded by GPU.mu
	worker  *worker.Worker
	shut    func() // ends the process
	bell    []byte // the card's doorbell
	fence   atomic.Uint32
	dead    atomic.Bool   // the process has ended, or is being ended
	slice   atomic.Uint64 // microseconds
	armed   atomic.Bool   // the goroutine looks again by itself
	faulted atomic.Bool   // a channel has a fault that nobody was told of

	changing   sync.Mutex // guards what follows
	vram       vram
	spaces     numbers
	objects    numbers
	bySpace    map[*space]struct{}
	ramObjects map[*card.Mapping]uint32
	pieces     int // in all records
	mostPieces int
	hostPieces atomic.Int64 // that channels reach, of the part of VRAM in the host

	ram     card.Mappings // by bus address
	reading sync.RWMutex  // read-locked by copies of RAM
	lowest  atomic.Uint64 // bus address that was ever mapped, inverted
	highest atomic.Uint64

	delivering sync.Mutex

	mu       sync.Mutex // guards what follows
	settled  *sync.Cond // the driver's state of a channel has changed
	channels []*channel
	events   []event
	spare    []event

	wake    chan struct{}
	closing chan struct{}
	running sync.WaitGroup
}

// numbers hands out the lowest number that is free.
type numbers struct {
	free []uint32
	next uint32
}

func (n *numbers) take() uint32 {
	if k := len(n.free); k > 0 {
		last := n.free[k-1]
		n.free = n.free[:k-1]
		return last
	}
	n.next++
	return n.next - 1
}

func (n *numbers) give(id uint32) { n.free = append(n.free, id) }

// NewShare implements card.GPU.
func (g *GPU) NewShare(c card.ShareConfig) (card.Share, error) {
	if c.Class != channelClass {
		return nil, fmt.Errorf("channels of class %04x: the host's driver makes %04x, of a guest with chip gh100", c.Class, channelClass)
	}
	const pieceBytes = 64
	s := &share{
		gpu: g, cfg: c, bySpace: make(map[*space]struct{}), ramObjects: make(map[*card.Mapping]uint32), objects: numbers{next: hostObject + 1},
		mostPieces: int(c.Tables / pieceBytes), wake: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	s.settled = sync.NewCond(&s.mu)
	s.setWeight(1)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("process for the host's driver: %w", err)
	}
	g.mu.Lock()
	g.shares[c.Number] = s
	g.mu.Unlock()
	s.running.Go(s.run)
	return s, nil
}

func (s *share) open() (err error) {
	if s.worker, err = s.gpu.start(s.cfg.Number, events{s}); err != nil {
		return err
	}
	s.shut = sync.OnceFunc(func() {
		if err := s.worker.Close(); err != nil {
			s.gpu.cfg.Log("guest %d: %v", s.cfg.Number, err)
		}
	})
	f, err := s.worker.Doorbell()
	if err == nil {
		s.bell, err = mapFile(f, nvrm.DoorbellBytes)
		f.Close()
	}
	if err != nil {
		s.shut()
	}
	return err
}

// Close implements card.Share. The driver frees all that the process had.
func (s *share) Close(lost bool) {
	s.end()
	for _, ch := range s.list() { // that are lost
		s.gpu.engines[ch.engine].leave(ch)
		s.gpu.leave(ch)
	}
	s.gpu.take(-s.vram.taken)
	s.vram.release(lost)
	if !lost {
		unix.Munmap(s.bell)
	}
	s.gpu.mu.Lock()
	defer s.gpu.mu.Unlock()
	s.gpu.shares[s.cfg.Number] = nil
}

// end ends the process and the goroutine.
func (s *share) end() {
	s.dead.Store(true)
	s.shut()
	close(s.closing)
	s.running.Wait()
}

// Memory and Tables implement card.Share: the driver has the tables.
func (s *share) Memory() []card.Run { return nil }
func (s *share) Tables() []card.Run { return nil }

// fail ends the process of a guest for which the driver cannot do what isolation rests on.
func (s *share) fail(err error) {
	if !s.dead.Swap(true) {
		s.shut()
		s.broken(err)
	}
}

// broken reports to all channels that the process has ended.
func (s *share) broken(err error) {
	s.gpu.cfg.Log("guest %d: its process for the host's driver has ended: %v", s.cfg.Number, err)
	for _, ch := range s.list() {
		ch.fail(card.Fault{Kind: card.Broken, Engine: card.NoEngine, Text: fmt.Sprintf("the process for the host's driver has ended: %v", err)})
	}
	s.look()
}

// refusal reports whether err is the driver's answer to one call. Else the process or the card is lost.
func refusal(err error) bool {
	var e *nvrm.Error
	return errors.As(err, &e) && e.Status != nvrm.StatusLost
}

// must ends the process if a call failed that never may.
func (s *share) must(err error) {
	if err != nil {
		s.fail(err)
	}
}

// apply has the worker carry out steps. Only maps may be refused.
func (s *share) apply(space uint32, steps []worker.Step) (int, error) {
	if s.dead.Load() {
		return 0, errEnded
	}
	done, err := s.worker.Apply(space, steps)
	if err == nil {
		return len(steps), nil
	}
	done = min(done, len(steps)-1)
	if !refusal(err) || steps[done].Op != worker.Map {
		s.fail(err)
	}
	return done, err
}

// Invalidate implements card.Share. Each call of the driver is bounded; if one is too late, the process ends, and with it the
// accesses.
func (s *share) Invalidate(list ...card.Space) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, c := range list {
		s.invalidate(c.(*space))
	}
	return true
}

func (s *share) invalidate(sp *space) {
	if sp.dirty && !s.dead.Load() {
		s.must(s.worker.Invalidate(sp.number))
	}
	sp.dirty = false
}

// Commit implements card.Share.
func (s *share) Commit() bool {
	for _, ch := range s.list() {
		ch.change(func() { ch.committed = true })
	}
	return true
}

func (s *share) list() []*channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.channels)
}

func (s *share) setWeight(w float64) {
	const least, most = 100, 100_000
	s.slice.Store(uint64(min(max(w*baseSlice, least), most)))
}

// Slices implements card.GPU.
func (g *GPU) Slices() card.Slices { return g }

// SetWeight implements card.Slices: weights are time slices.
func (g *GPU) SetWeight(c card.Share, weight float64) error {
	if !(weight > 0) {
		return fmt.Errorf("weight %v: must be above 0", weight)
	}
	s := c.(*share)
	s.setWeight(weight)
	s.look()
	return nil
}
