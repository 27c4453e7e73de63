package process

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/engine"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
)

// key is what the code of a program depends on, beside the program's words and the size of the grid.
type key struct {
	entry, registers, localPos, localNeg uint32
	block                                [3]uint32
}

func keyOf(l *interp.Launch) key { return key{l.Entry, l.Registers, l.LocalPos, l.LocalNeg, l.Block} }

// gridFor is the largest grid that a program is compiled for, when a launch has one.
func gridFor(grid [3]uint32) [3]uint32 {
	for i, n := range grid {
		grid[i] = uint32(min(uint64(1)<<bits.Len32(max(n, 1)-1), math.MaxUint32))
	}
	return grid
}

// serves reports whether code for a grid serves another.
func serves(grid, other [3]uint32) bool {
	return grid[0] >= other[0] && grid[1] >= other[1] && grid[2] >= other[2]
}

// program is one that was asked for.
type program struct {
	words words
	grid  [3]uint32    // the largest that the code is for
	any   bool         // the code is for any constants
	code  *engine.Code // nil until it is compiled
	err   error        // why it is not
}

// Programs are those that were asked for.
type Programs struct {
	support  *engine.Support
	compiler *llvm.Compiler
	work     chan func()

	mu      sync.Mutex
	known   map[key][]*program
	size    int // bytes of code
	count   uint64
	time    time.Duration
	pending int
	current *program      // that is being compiled
	began   time.Duration // when that began, by the processor time of its thread
	thread  int           // that compiles
}

// age returns for how long a program has been compiled now, and whether it is a given one. Time without a processor does not
// count: on a busy machine that is most of it.
func (p *Programs) age(of *program) (ns uint64, same bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0, false
	}
	return uint64(threadTime(p.thread) - p.began), p.current == of
}

// threadTime is how long a thread of this process has had a processor.
func threadTime(thread int) time.Duration {
	const clockOfThread = 6 // see pthread_getcpuclockid(3)
	var t unix.Timespec
	_ = unix.ClockGettime(int32(^thread<<3|clockOfThread), &t) // it is ours, so it cannot fail
	return time.Duration(t.Nano())
}

// fewWords is a program whose compilation may take long for each instruction.
const fewWords = 200

// Bounds of what is kept. Beyond them all is dropped, between two steps.
const (
	maxKnown   = 1024
	maxCode    = 64 << 20
	maxPending = 16
	// maxVersions bounds those of a program for constants up to a size. The next one is for any.
	maxVersions = 3
)

// NewPrograms compiles what all programs share.
func NewPrograms(c *llvm.Compiler) (*Programs, error) {
	support, err := engine.NewSupport(c)
	if err != nil {
		return nil, err
	}
	p := &Programs{support: support, compiler: c, known: make(map[key][]*program), work: make(chan func(), maxPending)}
	go p.compileAll()
	return p, nil
}

// find returns the program of a launch, which may not be compiled yet. It looks at each word: code may have changed.
func (p *Programs) find(l *interp.Launch) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := keyOf(l)
	versions := 0
	for _, c := range p.known[k] {
		if !serves(c.grid, l.Grid) || !c.same(l) {
			continue
		}
		if c.code == nil || fermi.Fits(c.code.Program, l) {
			return c
		}
		versions++
	}
	if p.pending == maxPending {
		return nil // a later step asks again
	}
	if p.pending == 0 && (len(p.known) >= maxKnown || p.size >= maxCode) {
		p.drop()
	}
	c := &program{words: reach(l), grid: gridFor(l.Grid), any: versions >= maxVersions}
	p.known[k] = append(p.known[k], c)
	frozen := *l
	memory := snapshot{c.words, l.Program.Base, banksOf(l)}
	frozen.Memory, frozen.Program = memory, &interp.Program{Memory: memory, Base: l.Program.Base}
	p.pending++
	p.work <- func() { p.compile(c, &frozen) }
	return c
}

// drop forgets what is compiled. Nothing of it runs, and nothing is being compiled.
func (p *Programs) drop() {
	for _, list := range p.known {
		for _, c := range list {
			if c.code != nil {
				c.code.Close()
			}
		}
	}
	clear(p.known)
	p.size = 0
}

// compileAll compiles, with less right to a processor than what runs. A guest that has used up a burst of a processor's time, with
// programs that are large or always new, gets a part of a processor only: nobody charges it for that time.
func (p *Programs) compileAll() {
	const (
		nice  = 2
		burst = 20 * time.Second
		part  = 4
	)
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice) // else it takes as long, and others wait
	debt, last := time.Duration(0), time.Now()
	for do := range p.work {
		debt = max(0, debt-time.Since(last)/part)
		if debt > burst {
			time.Sleep((debt - burst) * part)
			debt = burst
		}
		before := threadTime(unix.Gettid())
		do()
		last = time.Now()
		debt += threadTime(unix.Gettid()) - before
	}
}

// compile compiles a program, on the goroutine for that.
func (p *Programs) compile(c *program, l *interp.Launch) {
	start := time.Now()
	p.mu.Lock()
	p.current, p.thread = c, unix.Gettid()
	p.began = threadTime(p.thread)
	p.mu.Unlock()
	o := fermi.Options(l)
	o.Grid = c.grid
	if c.any {
		o.Constant = nil
	}
	passes := llvm.Full
	if len(c.words) > fewWords {
		passes = llvm.Quick
	}
	code, err := engine.New(p.compiler, p.support, l, o, passes)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.code, c.err, p.current = code, err, nil
	p.pending--
	p.count++
	p.time += time.Since(start)
	if code != nil {
		p.size += code.Size
	}
}

// same reports whether the memory of a launch still has the words of the program.
func (c *program) same(l *interp.Launch) bool {
	for _, w := range c.words {
		if now, err := l.Program.Word(w.pc); err != nil || now != w.bits {
			return false
		}
	}
	return true
}
