package shim

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// Config describes a Machine. Zero values are the defaults.
type Config struct {
	Limit time.Duration // for one submission, default one minute
	// Idle makes a card whose engines do nothing: the control that every test must fail on.
	Idle bool
	// Launched, if not nil, sees each launch of a program.
	Launched func(*sm.Launch)
	// Ran, if not nil, sees what each launch that ended well executed: warp instructions by form.
	Ran func(map[*isa.Form]uint64)
	// Compile, if not nil, makes the card run programs as machine code, see [Compiler].
	Compile *jit.Config
	// Compiled, if not nil, receives the counters of that when the card ends.
	Compiled func(*jit.Stats)
	// Executor makes what executes programs. nil is the card's own choice.
	Executor func() sm.Executor
	// AllowNotExecuted lets a program go on whose launches, draws or blits the card stores
	// and does not carry out.
	AllowNotExecuted bool
}

const (
	cardMemory   = 1 << 30 // preload/shim.c knows both
	systemMemory = 1 << 30 // that the card reaches
	tableMemory  = 32 << 20
	busAddress   = 0x1_0000_0000 // of system memory
)

// Machine is a software card and memory. One file of shared memory has all buffers: those in
// VRAM at their address, those in system memory behind the size of VRAM.
type Machine struct {
	cfg   Config
	file  *os.File
	mem   []byte // of file
	card  *soft.Card
	gpu   *driver.Driver
	share card.Share
	space card.Space

	mu       sync.Mutex            // guards buffers: the card may read them while the program frees others
	buffers  map[uint64]*Buffer    // by address
	faulted  atomic.Pointer[error] // what a program did wrong
	system   vram.Allocator        // by offset in file
	vram     vram.Allocator        // of the share
	channels []*Channel
}

// NewMachine starts a card.
func NewMachine(cfg Config) (m *Machine, err error) {
	cfg.Limit = cmp.Or(cfg.Limit, time.Minute)
	if cfg.Compile == nil {
		cfg.Compile = testserver.Compiler()
	}
	m = &Machine{cfg: cfg, buffers: make(map[uint64]*Buffer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	fd, err := unix.MemfdCreate("umbra-shim", unix.MFD_CLOEXEC)
	if err != nil {
		return m, err
	}
	m.file = os.NewFile(uintptr(fd), "memory")
	const size = cardMemory + systemMemory
	if err = m.file.Truncate(size); err != nil {
		return m, err
	}
	if m.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err != nil {
		return m, err
	}
	if m.card, err = soft.New(soft.Config{
		VRAM: cardMemory, DisableEngines: cfg.Idle, ProgramFault: m.programFault, Ran: cfg.Ran, Launched: cfg.Launched, Compile: cfg.Compile, Executor: cfg.Executor,
		Processors: runtime.NumCPU(), // there is no guest beside
	}); err != nil {
		return m, err
	}
	if err = m.card.MapDMA(busAddress, card.Mapping{Mem: m.mem[cardMemory:], Write: true, File: m.file, Off: cardMemory}); err != nil {
		return m, err
	}
	if m.gpu, err = driver.New(m.card, driver.Options{Timeout: cfg.Limit}); err != nil {
		return m, err
	}
	if m.share, err = m.gpu.NewShare(card.ShareConfig{Channels: 16, Guaranteed: 16, Tables: tableMemory}); err != nil {
		return m, err
	}
	runs, err := m.share.AllocVRAM(m.gpu.FreeBytes(), vram.PageSize)
	if err != nil {
		return m, err
	}
	m.vram.Release(runs...)
	if m.space, err = m.share.NewSpace(); err != nil {
		return m, err
	}
	m.system.Release(card.Run{Addr: cardMemory, Size: systemMemory})
	return m, nil
}

func (m *Machine) programFault(err error) { m.faulted.CompareAndSwap(nil, &err) }

// Close ends the machine.
func (m *Machine) Close() error {
	var errs []error
	for _, ch := range m.channels {
		ch.ch.Disable()
	}
	if m.gpu != nil {
		m.gpu.Close()
	}
	if m.card != nil {
		m.card.UnmapDMA(busAddress, systemMemory)
		errs = append(errs, m.card.Close())
		if m.cfg.Compiled != nil {
			m.cfg.Compiled(m.card.Compiled())
		}
	}
	if m.mem != nil {
		errs = append(errs, unix.Munmap(m.mem))
	}
	if m.file != nil {
		errs = append(errs, m.file.Close())
	}
	return errors.Join(errs...)
}
