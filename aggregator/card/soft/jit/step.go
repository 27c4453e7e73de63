package jit

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// step is one Run.
type step struct {
	guest   *Guest
	process *process
	program *program
	job     *engine.Job
	images  [Slots]*state.Image

	compiling bool // the program is not ready yet
	took      bool // the blocks' states, or some of them
}

// mostInstructions is more than a process executes in a step.
const mostInstructions = 1 << 40

var notNative = engine.NativeResult{Outcome: engine.NotNative}

func (s *step) run() engine.NativeResult {
	grid := s.job.Grid
	before := grid.Next
	s.compiling, s.took = false, false
	if !s.put() {
		return notNative
	}
	m, err := s.call()
	if err == nil {
		var r engine.NativeResult
		if r, err = s.take(m, before); err == nil {
			return r
		}
	}
	s.compiling = false
	began := s.took || s.process.shared.Began.Load() != 0
	err = s.guest.lose(s.process, err)
	if !began {
		return notNative
	}
	return engine.NativeResult{Outcome: engine.NativeFault, Fault: s.lost(err)}
}

// lost is the fault of a launch that was lost. Its memory may have any part of the step's stores.
func (s *step) lost(err error) *interp.Fault {
	f := &interp.Fault{Cause: interp.Lost, PC: s.job.Blocks.Entry, Lane: -1, What: err.Error()}
	grid := s.job.Grid
	for i := range grid.Running {
		if b := &grid.Running[i]; !b.Done() {
			f.Block = b.ID
			break
		}
	}
	return f
}

// put writes the blocks to the shared memory. It reports false if they do not fit.
func (s *step) put() bool {
	grid, l, shared := s.job.Grid, &s.job.Blocks, s.process.shared
	if len(grid.Running) > Slots || state.Size(l.Warps(), l.Shared) > slotBytes {
		return false
	}
	for i := range grid.Running {
		m, err := state.New(shared.Slot(i), l.Warps(), l.Shared)
		if err != nil {
			return false
		}
		s.images[i] = m
		m.Next, m.End = grid.Taken[i].Next, grid.Taken[i].End
		if b := &grid.Running[i]; b.Done() {
			m.Begun = 0
		} else if m.Put(b) != nil {
			return false
		}
	}
	shared.Work = state.Work{Next: grid.Next, Count: grid.Blocks}
	shared.Began.Store(0)
	return true
}

// call asks the process for a step, answers what it asks, and returns how the step ended.
func (s *step) call() (*Message, error) {
	j, p := s.job, s.process
	p.revalidate(j.Places)
	left := j.Left()
	m := &Message{Kind: Run, A: j.Number, B: uint64(len(j.Grid.Running)), C: left, D: p.table}
	if p.launch != j.Number {
		d := Description{Region: j.Launch.Region, Launch: j.Blocks, Bound: Bound{j.Launch.Textures, j.Launch.Surfaces}}
		d.Launch.Local = j.Launch.Local.Address
		p.body = d.encode(p.body[:0])
		m.Body = p.body
		p.launch = j.Number
	}
	if err := p.Send(m, nil); err != nil {
		return nil, err
	}
	over := time.Now().Add(time.Duration(left))
	var late overdue
	for {
		f, err := p.Receive(m)
		if f != nil {
			f.Close()
		}
		ended := err == nil && m.Kind == Ended
		if !ended && time.Now().After(over) {
			atomic.StoreUint32(&p.shared.Work.Stop, 1)
			if hung := late.look(p); hung != nil {
				return nil, hung
			}
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
		case err != nil:
			return nil, err
		case ended:
			return m, nil
		case m.Kind != Ask:
			return nil, fmt.Errorf("it sent message %d during a step: want %d or %d", m.Kind, Ask, Ended)
		default:
			if err := s.give(m.A, m.B != 0); err != nil {
				return nil, err
			}
		}
	}
}

// give answers a request for memory.
func (s *step) give(va uint64, write bool) error {
	p := s.process
	m := &Message{Kind: Give, A: va}
	at, ok := s.job.Places.Place(va, write)
	var file *os.File
	if ok {
		n, known := p.files[at.File]
		if !known && len(p.files) < maxFiles {
			n, known, file = uint64(len(p.files)), true, at.File
			p.files[file] = n
		}
		if known {
			p.learned(at)
			if n == CardFile {
				p.given.Store(&at)
			}
			m.A, m.B, m.C, m.D = at.VA, n, at.Size, at.Off
			if at.Write {
				m.E |= GiveWrite
			}
			if at.Step {
				m.E |= GiveStep
			}
		}
	}
	return p.Send(m, file)
}

// take takes the states that the process left.
func (s *step) take(m *Message, before uint64) (engine.NativeResult, error) {
	st, grid := &s.guest.compiler.Stats, s.job.Grid
	s.guest.compiled(m.E, m.F)
	switch verdict := Verdict(m.A); {
	case verdict >= verdicts || verdict == Stuck && m.B >= uint64(len(grid.Running)):
		return notNative, fmt.Errorf("it ended a step by %d, %d: want less than %d, %d", m.A, m.B, verdicts, len(grid.Running))
	case m.C|m.D > mostInstructions:
		return notNative, fmt.Errorf("it executed %d and %d instructions in a step: want at most %d", m.C, m.D, mostInstructions)
	case verdict == Refused:
		s.program.refuse()
		st.Refused.Add(1)
		st.refuse(string(m.Body))
		return notNative, nil
	case verdict == Compiling:
		if s.program.compiling(time.Duration(min(m.B, math.MaxInt64)), m.C != 0) {
			return notNative, fmt.Errorf("it compiled a program for more than %v", compileLimit)
		}
		s.compiling = true
		return notNative, nil
	}
	s.program.ask = time.Time{}
	st.Runs.Add(1)
	st.Native.Add(m.C)
	st.Interpreted.Add(m.D)
	st.count(string(m.Body))
	next := min(atomic.LoadUint64(&s.process.shared.Work.Next), grid.Blocks)
	if next < before {
		return notNative, fmt.Errorf("it began blocks up to %d of which %d had begun", next, before)
	}
	s.took = true
	for i := range grid.Running {
		if err := s.takeBlock(i, next); err != nil {
			return notNative, fmt.Errorf("the block of slot %d: %w", i, err)
		}
	}
	grid.Next = next
	if Verdict(m.A) == Stuck {
		st.Left.Add(1)
		if s.program.comesBack() {
			st.Refused.Add(1)
			st.refuse("it needs the server too often")
		}
		grid.Running[m.B].Left = 1 // the warp whose turn it was, with the instruction at which it stopped
		return engine.NativeResult{Outcome: engine.NeedsProcessor, Slot: int(m.B)}, nil
	}
	s.program.steps++
	if grid.Steps == 1 {
		s.program.executed(s.job, instruction*(m.C+m.D))
	}
	return engine.NativeResult{Outcome: engine.RanNative}, nil
}

// takeBlock takes the block of a slot, and what it has taken of the first so many of the grid.
func (s *step) takeBlock(i int, next uint64) error {
	b, l := &s.job.Grid.Running[i], &s.job.Blocks
	t := engine.Range{Next: s.images[i].Next, End: s.images[i].End}
	if t.Next > t.End || t.End > next {
		return fmt.Errorf("blocks %d to %d, of which %d were taken", t.Next, t.End, next)
	}
	s.job.Grid.Taken[i] = t
	if s.images[i].Begun == 0 {
		b.Warps = b.Warps[:0] // a block that is done
		return nil
	}
	b.Warps, b.Shared = sized(b.Warps, l.Warps()), sized(b.Shared, l.Shared)
	if err := s.images[i].Get(b); err != nil {
		return err
	}
	for d, n := range b.ID {
		if n >= l.Grid[d] {
			return fmt.Errorf("number %v in a grid of %v", b.ID, l.Grid)
		}
	}
	return nil
}

// sized returns n elements: of the slice, if it has so many.
func sized[T any](s []T, n uint32) []T {
	if uint32(cap(s)) < n {
		return make([]T, n)
	}
	return s[:n]
}
