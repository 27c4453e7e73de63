package soft

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/pci"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// VRAM limits in bytes. The upper one is for guests of several chips together: a GF100's driver that has
// the whole card sees at most gf100.MaxVRAM.
const (
	MinVRAM = 64 << 20
	MaxVRAM = 64 << 30
)

// Config describes a card. The zero value of every field but VRAM is useful.
type Config struct {
	// VRAM in bytes: MinVRAM to MaxVRAM, a multiple of 64 MiB.
	VRAM uint64
	// ROM is the VBIOS image; nil builds the default one.
	ROM []byte
	// PCI describes the configuration space.
	PCI pci.Options
	// TPCs gives the number of TPCs of each GPC; nil is a Quadro 6000's.
	TPCs []int
	// Temperature is what the sensor reads, in degrees Celsius; nil reads 45.
	Temperature func() int
	// DisableEngines makes every engine accept methods and do nothing: the
	// control that data tests must fail on.
	DisableEngines bool
	// FlushAll makes each invalidate drop the translations of every address space,
	// not only those of the directory that it names.
	FlushAll bool
	// Slice is how long a channel may work before the next one gets its PBDMA and its engines;
	// default 2 ms.
	Slice time.Duration
	// Processors is how many execute programs, at most engine.MaxProcessors. 0 is all but one of those
	// that the process may use: with none left for guests and their accesses, programs in a guest
	// took 1.7 times as long on two processors.
	Processors int
	// Executor makes what executes programs on a processor. nil is package simd's.
	Executor func() sm.Executor
	// Compile runs programs as machine code in processes, one for each owner of channels. With nil, or where it cannot,
	// Executor runs them.
	Compile *jit.Config
	// Clock counts the card's time in nanoseconds; nil counts from New.
	Clock func() uint64
	// Watch, if not nil, is called before every access that a channel makes to VRAM or
	// to system memory: page tables, USERD, rings, and what its
	// engines read and write; of what programs reach, once for each page in a step. It is called
	// in steps, one at a time for a channel, holds them up, and must not call back into the card.
	Watch func(channel uint32, t shadowpt.Target, addr uint64, n int, write bool)
	// ProgramFault, if not nil, is called like Launched for each program that does what it must
	// not.
	ProgramFault func(error)
	// Launched, if not nil, is called on a PBDMA's goroutine for each launch of a program. It
	// must not call back into the card.
	Launched func(*sm.Launch)
	// Ran, if not nil, is called like Launched when a launch ends well, for each processor that took
	// part, with the warp instructions that it executed, by form.
	Ran func(map[*isa.Form]uint64)
}

// Card is a software GF100. All methods may be called from any goroutine.
type Card struct {
	cfg   Config
	vram  *vram
	clock func() uint64 // PTIMER's source, in nanoseconds
	stats Stats

	mu   sync.Mutex
	sp   *mmio.Space
	face *gf100.Face
	pci  *pci.ConfigSpace
	bars [2]barWindow // BAR1, BAR3
	fifo fifo
	regs registers
	pin  pci.Pin

	// stepping is locked for a channel's steps (read side), and while pages move that it
	// may use.
	stepping [gf100.Channels]sync.RWMutex

	contexts Contexts

	alarm gf100.Alarm

	halting int       // Reset waits for the engines
	resting bool      // no BAR was accessed since a host was attached
	host    card.Host // nil while none is attached; only a host can wake the card
	closing bool
	workers sync.WaitGroup

	timeOffset atomic.Uint64 // of PTIMER against clock

	tlbGen      atomic.Uint64                   // number of the driver's last invalidate
	flushes     [gf100.Owners + 1]atomic.Uint64 // invalidates of channels, by owner
	invalidates invalidates
	polled      bool   // the driver has asked for the end of its invalidates since the last one
	useChanged  func() // see OnUse, or nil
	engines     [gf100.Engines]engineSlot
	processors  *engine.Processors // of EngineGR
	compiler    *jit.Compiler      // nil without Config.Compile
	moved       atomic.Uint64      // counts calls of Relocate
	places      atomic.Uint64      // the last number of vm.places

	words sync.Pool // of *[4]byte, for Read32 and Write32

	attachMu sync.Mutex
	// owners is locked (read side) for a step of each owner's channels, and the last one for
	// an access of the card itself. Together they guard what follows.
	owners   [gf100.Owners + 1]sync.RWMutex
	attached bool // a host is
	mappings card.Mappings
	mapped   [gf100.Owners + 1]atomic.Int64 // how many mappings each owner has
}

// New powers a card on. Close must be called to end its goroutines and to give
// its memory back.
func New(cfg Config) (*Card, error) {
	if cfg.VRAM < MinVRAM || cfg.VRAM > MaxVRAM || cfg.VRAM%(64<<20) != 0 {
		return nil, fmt.Errorf("VRAM of %d MiB: a card has %d to %d MiB, in steps of 64", cfg.VRAM>>20, MinVRAM>>20, MaxVRAM>>20)
	}
	if cfg.Temperature == nil {
		cfg.Temperature = func() int { return 45 }
	}
	pci, err := gf100.NewConfigSpace(cfg.PCI)
	if err != nil {
		return nil, fmt.Errorf("software card: %w", err)
	}
	if cfg.ROM == nil {
		if cfg.ROM, err = firmware.Build(firmware.Options{}); err != nil {
			return nil, fmt.Errorf("software card: build its VBIOS: %w", err)
		}
	}
	cfg.Slice = cmp.Or(cfg.Slice, 2*time.Millisecond)
	cfg.Processors = cmp.Or(cfg.Processors, max(1, runtime.NumCPU()-1))
	if cfg.Executor == nil {
		cfg.Executor = func() sm.Executor { return new(simd.Executor) }
	}
	if cfg.Clock == nil {
		start := time.Now()
		cfg.Clock = func() uint64 { return uint64(time.Since(start)) }
	}
	c := &Card{cfg: cfg, pci: pci, clock: cfg.Clock, resting: true}
	c.processors = engine.NewProcessors(min(cfg.Processors, engine.MaxProcessors), cfg.Executor)
	c.words.New = func() any { return new([4]byte) }
	if err := c.buildSpace(); err != nil {
		return nil, fmt.Errorf("software card: %w", err)
	}
	if c.vram, err = newVRAM(cfg.VRAM); err != nil {
		return nil, fmt.Errorf("software card: %w", err)
	}
	if cfg.Compile != nil {
		c.compiler = jit.New(*cfg.Compile, c.vram.file)
	}
	for i := range c.bars {
		c.bars[i].init(c, i)
	}
	c.fifo.init(c)
	c.alarm.Init(time.AfterFunc(time.Hour, c.alarmFired))
	for i := range gf100.PBDMAs {
		c.workers.Add(1)
		go c.runPBDMA(i)
	}
	return c, nil
}

func (c *Card) buildSpace() error {
	face, err := gf100.NewFace(gf100.FaceConfig{
		VRAM: min(c.cfg.VRAM, gf100.MaxVRAM), TPCs: c.cfg.TPCs, ROM: c.cfg.ROM, Config: c.pci,
		Clock: c.clock, Temperature: c.cfg.Temperature,
	})
	if err != nil {
		return err
	}
	c.face = face
	var b mmio.Bindings
	face.Bind(&b)
	c.bindMMU(&b)
	c.bindFIFO(&b)
	if c.sp, err = mmio.New(gf100.SpaceSize, gf100.Blocks(), gf100.Apertures(), &b); err != nil {
		return err
	}
	face.Attach(c.sp)
	face.OnMethod(c.contexts.goldenMethod)
	face.OnGraphResume(func() { c.resumeEngine(gf100.EngineGR) })
	face.OnCopyResume(func(e int) { c.resumeEngine(gf100.EngineCE0 + uint8(e)) })
	face.OnUnitReset(c.unitsReset)
	c.regs.resolve(c.sp)
	return nil
}

// Close stops the card. The host must be detached or past caring.
func (c *Card) Close() error {
	defer c.reportEnded()
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return errors.New("software card: closed twice")
	}
	c.closing = true
	c.alarm.Close()
	c.fifo.retry.Stop()
	c.fifo.stopAll()
	c.fifo.work.Broadcast()
	c.fifo.freed.Broadcast()
	c.mu.Unlock()
	c.workers.Wait()
	if c.compiler != nil {
		c.compiler.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.bars { // accesses that are late must find no memory
		c.bars[i].block(0)
	}
	return c.vram.close()
}

// AttachHost attaches the card to a host: its channels can then run, and it reports the
// state of its interrupt. Channels of an earlier host stay stopped until the
// first BAR access, so that a new host can reset the card before they touch its memory. Saved
// states of an earlier host's channels are forgotten.
func (c *Card) AttachHost(h card.Host) {
	c.attachMu.Lock()
	defer c.attachMu.Unlock()
	c.rest()
	for i := range c.owners { // waits for the steps under way
		c.owners[i].Lock()
	}
	c.attached = h != nil
	for i := range c.owners {
		c.owners[i].Unlock()
	}
	if h == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = h
	c.pin.Forget()
	c.settle()
}

// rest takes all channels off their PBDMAs and keeps their state for the next host.
func (c *Card) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contexts.forget()
	c.resting, c.host = true, nil
	c.fifo.scheduleAll()
}

// wake ends a rest. Every BAR access calls it.
func (c *Card) wake() {
	if c.resting && c.host != nil && !c.closing {
		c.resting = false
		c.fifo.scheduleAll()
	}
}

// powered reports whether channels may run at all.
func (c *Card) powered() bool { return !c.resting && !c.closing && c.halting == 0 }

// DetachHost unplugs the card. It returns when its channels rest, and they use no memory. The
// card's own state stays, and so do its mappings.
func (c *Card) DetachHost() { c.AttachHost(nil) }

// Reset is a function-level reset: channels stop, registers take their reset
// values, VRAM is scrubbed. Saved states of unbound channels stay, see [Contexts]. It waits for the
// engines' current steps.
func (c *Card) Reset() error {
	defer c.reportEnded()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halt()
	c.contexts.Renew = true
	c.pci.Reset()
	return c.powerOn()
}

// halt stops the channels and waits for the engines' current steps.
func (c *Card) halt() {
	c.halting++
	c.fifo.stopAll()
	for c.fifo.running() {
		c.fifo.idle.Wait()
	}
	c.halting--
	c.fifo.stopAll() // what was bound while we waited
	for i := range c.engines {
		c.engines[i].trapped.Store(false)
	}
}

// powerOn gives registers and memory the state that a driver finds at first.
func (c *Card) powerOn() error {
	c.sp.Reset()
	c.face.Reset()
	for i := range c.bars {
		c.bars[i].block(0)
	}
	c.invalidate(everyDirectory)
	err := c.vram.scrub()
	c.settle()
	return err
}

// unitsReset acts on units that NV_PMC_ENABLE switched off. Engines discard the method at
// which they were stopped; PFIFO loses the channels that it was given by registers.
func (c *Card) unitsReset(bits uint32) {
	for e, bit := range gf100.EngineEnable {
		if bits&bit != 0 {
			c.resumeEngine(uint8(e))
		}
	}
	if bits&gf100.EnablePFIFO != 0 {
		c.fifo.stopBound()
		c.regs.FIFOReport.Reset()
	}
}

// settle recomputes the interrupt tree and the alarm, once per access or step.
// The caller holds c.mu.
func (c *Card) settle() {
	level, edge := c.face.Settle(c.regs.Level())
	line, changed := c.pin.Settle(c.pci, level, edge)
	if line.Edge {
		c.stats.Interrupts.Add(1)
	}
	if changed {
		if c.host != nil {
			c.host.Interrupt(line)
		}
	}
	c.timeOffset.Store(c.face.TimeOffset())
	c.alarm.Follow(c.face)
}

// now is PTIMER's time, for engines: they do not hold c.mu.
func (c *Card) now() uint64 { return c.clock() + c.timeOffset.Load() }

func (c *Card) alarmFired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm.Fired() {
		c.settle()
	}
}

// Stats returns the card's counters.
func (c *Card) Stats() *Stats { return &c.stats }

// Compiled returns the counters of programs that run as machine code, nil without Config.Compile.
func (c *Card) Compiled() *jit.Stats {
	if c.compiler == nil {
		return nil
	}
	return &c.compiler.Stats
}

// Registers returns the register space, for its counters.
func (c *Card) Registers() *mmio.Space {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sp
}

// ROM returns the VBIOS image.
func (c *Card) ROM() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.ROM
}

// VRAMSize returns the size of the card's memory in bytes.
func (c *Card) VRAMSize() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.VRAM
}

var _ engine.Memory = (*vm)(nil)
