package jit

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
)

// SystemLibrary is how the system's loader knows libLLVM.
const SystemLibrary = "libLLVM.so.19.1"

// SystemFolders have the libraries of a system, which a process may read.
var SystemFolders = []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"}

// Config says how processes are started.
type Config struct {
	Program string // umbra-jit
	// LLVM is libLLVM 19, and Dependencies the folder of its own dependencies, "" where the system has them. An LLVM of "" is
	// the system's, or without one that in the folder Dependencies.
	LLVM, Dependencies string
	// Always runs each program in the process, however short it is, and Wait holds a launch up until its program is
	// compiled: for tests and measurements.
	Always, Wait bool
	Log          func(format string, args ...any) // may be nil
}

// Stats count the work of all processes. They may be read at any time.
type Stats struct {
	Native      atomic.Uint64 // warp instructions that ran as machine code
	Interpreted atomic.Uint64 // warp instructions that processes executed otherwise
	Left        atomic.Uint64 // times that a block came back, for an instruction that only the server executes
	Runs        atomic.Uint64 // steps in processes
	Compiled    atomic.Uint64 // programs
	CompileTime atomic.Uint64 // ns
	Refused     atomic.Uint64 // launches of programs that are not compiled
	Lost        atomic.Uint64 // processes that ended, hung, or answered nonsense

	mu      sync.Mutex
	forms   map[string]uint64
	why     map[string]uint64 // of refusals
	noStart string
}

// maxForms bounds the forms that a process can make the server remember.
const maxForms = 512

// Forms counts the warp instructions that had no machine code, or were wrong, by form.
func (s *Stats) Forms() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.forms)
}

// Why counts refusals of programs, by reason.
func (s *Stats) Why() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.why)
}

// NoStart says why the process that was started last cannot serve. It is empty if that one can, and if there was none.
func (s *Stats) NoStart() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noStart
}

func (s *Stats) started(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noStart = ""
	if err != nil {
		s.noStart = err.Error()
	}
}

func (s *Stats) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		s.why = make(map[string]uint64)
	}
	if _, known := s.why[why]; known || len(s.why) < maxForms {
		s.why[why]++
	}
}

// count takes a list of forms, as a process sends it.
func (s *Stats) count(list string) {
	if list == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forms == nil {
		s.forms = make(map[string]uint64)
	}
	for entry := range strings.SplitSeq(list, ";") {
		at := strings.LastIndexByte(entry, ' ')
		if at < 0 {
			continue
		}
		n, err := strconv.ParseUint(entry[at+1:], 10, 32)
		if _, known := s.forms[entry[:at]]; err == nil && (known || len(s.forms) < maxForms) {
			s.forms[entry[:at]] += n
		}
	}
}

// Compiler has the processes of a card.
type Compiler struct {
	cfg   Config
	card  *os.File // its memory
	Stats Stats

	mu     sync.Mutex
	guests map[uint8]*Guest // by owner
	closed bool
	ending sync.WaitGroup // of guests
	told   string         // what the log has of starts
}

// New makes a compiler for a card whose memory is in a file, nil for none. It starts nothing.
func New(cfg Config, card *os.File) *Compiler {
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return &Compiler{cfg: cfg, card: card, guests: make(map[uint8]*Guest)}
}

// Of returns the guest of an owner.
func (c *Compiler) Of(owner uint8) engine.Native {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.guests[owner]
	if g == nil {
		g = &Guest{compiler: c, programs: make(map[key]*program), closed: c.closed}
		c.guests[owner] = g
	}
	return g
}

// Forget kills the process of an owner that is gone, and does not wait for its end. No Run of it is under way.
func (c *Compiler) Forget(owner uint8) {
	c.mu.Lock()
	g := c.guests[owner]
	delete(c.guests, owner)
	c.mu.Unlock()
	if g != nil {
		g.kill()
		c.ending.Go(g.close)
	}
}

// Close ends all processes. No Run is under way.
func (c *Compiler) Close() {
	c.mu.Lock()
	guests := c.guests
	c.guests, c.closed = nil, true
	c.mu.Unlock()
	for _, g := range guests {
		c.ending.Go(g.close)
	}
	c.ending.Wait()
}

// tell writes a line to the log, but not twice in succession.
func (c *Compiler) tell(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	c.mu.Lock()
	known := c.told == line
	c.told = line
	c.mu.Unlock()
	if !known { // without the lock, which steps take
		c.cfg.Log("%s", line)
	}
}

// How long the server waits.
const (
	startTimeout = 30 * time.Second // for a process that loads libLLVM
	stopTimeout  = time.Second      // for a step's end, after its time: of the processor, which others may have for long
	sleepTimeout = 5 * time.Second  // the same for a process that does not use one, while others wait for the card
	compileLimit = 30 * time.Second
	maxPause     = time.Minute // after a loss, until the next process is started
)
