package process

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	softengine "github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/engine"
)

// server serves the guest's server.
type server struct {
	conn     *jit.Conn
	shared   *jit.Shared
	memory   *memory
	programs *Programs

	launch uint64 // number of the one that follows
	base   interp.Launch
	bound  jit.Bound
	code   *program
	slots  []slot
	crew   *crew
	own    int // the slot, modulo their number, that this goroutine runs

	stuck atomic.Int64 // a slot, or noSlot
}

const noSlot = -1

// slot is where one block at a time runs.
type slot struct {
	*engine.Runner
	code   *engine.Code
	launch interp.Launch
	image  *state.Image
	grain  uint64            // instructions between two looks at the clock
	left   map[uint32]uint64 // how often an instruction had no machine code, or was wrong, by program counter
}

// Serve serves until the server is gone. It has said Hello.
func Serve(conn *jit.Conn, p *Programs) error {
	s := &server{conn: conn, programs: p, crew: newCrew()}
	var m jit.Message
	f, err := conn.Receive(&m)
	if err != nil {
		return err
	}
	if m.Kind != jit.Setup || f == nil {
		return fmt.Errorf("the server's first message is %d: want %d with a file", m.Kind, jit.Setup)
	}
	s.shared, err = jit.OpenShared(f)
	f.Close()
	if err != nil {
		return err
	}
	if s.memory, err = newMemory(conn); err != nil {
		return err
	}
	for {
		if f, err = conn.Receive(&m); errors.Is(err, jit.ErrEnded) {
			return nil
		} else if err != nil {
			return err
		}
		if f != nil {
			f.Close()
		}
		if m.Kind != jit.Run {
			return fmt.Errorf("the server sent message %d: want %d", m.Kind, jit.Run)
		}
		if err := s.run(&m); err != nil {
			return err
		}
	}
}

// run carries out a request, and answers it.
func (s *server) run(m *jit.Message) error {
	if m.B > jit.Slots {
		return fmt.Errorf("a step of %d slots: want at most %d", m.B, jit.Slots)
	}
	s.memory.begin(m.D)
	if m.A != s.launch || len(m.Body) > 0 {
		if err := s.begin(m); err != nil {
			return err
		}
	}
	answer := jit.Message{Kind: jit.Ended}
	s.memory.answered(true)
	s.verdict(&answer, m)
	s.memory.answered(false)
	s.programs.mu.Lock()
	answer.E, answer.F = uint64(s.programs.time), s.programs.count
	s.programs.mu.Unlock()
	return s.conn.Send(&answer, nil)
}

// begin takes the description of a launch.
func (s *server) begin(m *jit.Message) error {
	var d jit.Description
	if err := d.Decode(m.Body); err != nil {
		return err
	}
	s.launch, s.base, s.bound, s.code, s.slots = m.A, d.Launch, d.Bound, nil, nil
	s.base.Memory = s.memory
	s.base.Program = &interp.Program{Memory: s.memory, Base: d.Region}
	return nil
}

// verdict runs the step, if the program is ready.
func (s *server) verdict(answer, m *jit.Message) {
	if s.code == nil {
		s.code = s.programs.find(&s.base)
	}
	if s.code == nil {
		answer.A = uint64(jit.Compiling)
		return
	}
	s.programs.mu.Lock()
	code, err := s.code.code, s.code.err
	s.programs.mu.Unlock()
	switch {
	case err != nil:
		answer.A, answer.Body = uint64(jit.Refused), []byte(err.Error())
	case code == nil:
		answer.A = uint64(jit.Compiling)
		age, same := s.programs.age(s.code)
		if answer.B = age; same {
			answer.C = 1
		}
	default:
		if err := s.prepare(code, int(m.B)); err != nil {
			answer.A, answer.Body = uint64(jit.Refused), []byte(err.Error())
			return
		}
		s.memory.reachBanks(&s.base)
		s.step(answer, time.Duration(m.C))
	}
}

// prepare makes the slots of a launch, and the first one ready. Others are when they are used: many launches are over before.
func (s *server) prepare(code *engine.Code, slots int) (err error) {
	if len(s.slots) == slots {
		return nil
	}
	s.slots = make([]slot, slots)
	for i := range s.slots {
		o := &s.slots[i]
		o.code, o.grain = code, firstGrain
		if o.image, err = state.New(s.shared.Slot(i), s.base.Warps(), s.base.Shared); err != nil {
			return err
		}
	}
	if slots > 0 {
		err = s.ready(0)
	}
	return err
}

// ready makes a slot run blocks.
func (s *server) ready(n int) (err error) {
	o := &s.slots[n]
	if o.Runner != nil {
		return nil
	}
	o.left = make(map[uint32]uint64)
	o.launch = s.base
	o.launch.Program = &interp.Program{Memory: s.memory, Base: s.base.Program.Base}
	o.launch.Units = softengine.NewUnits(s.memory, &s.bound.Textures, &s.bound.Surfaces)
	o.launch.Local += uint64(n) * o.launch.LocalSize()
	o.Runner, err = o.code.NewRunner(&o.launch, s.memory.pages, o.image)
	return err
}

// step runs blocks for a time. Another thread takes long to wake: the first slot begins a launch alone, for a grain.
func (s *server) step(answer *jit.Message, limit time.Duration) {
	work := &s.shared.Work
	s.stuck.Store(noSlot)
	s.crew.begin(0)
	s.shared.Began.Store(1)
	end := time.Now().Add(limit)
	compiled, interpreted := s.ran()
	if len(s.slots) > 0 && (s.begun() || s.slot(0, work, end, true)) && s.stuck.Load() == noSlot {
		s.together(work, end)
	}
	answer.C, answer.D = s.ran()
	answer.C, answer.D = answer.C-compiled, answer.D-interpreted
	answer.Body = s.forms()
	if n := s.stuck.Load(); n != noSlot {
		answer.A, answer.B = uint64(jit.Stuck), uint64(n)
	}
}

// begun reports whether other slots than the first have blocks.
func (s *server) begun() bool {
	return slices.ContainsFunc(s.slots[1:], func(o slot) bool { return o.image.Begun != 0 || o.image.Next < o.image.End })
}

// together runs blocks in all slots. One whose thread did not wake in time is the server's own in the next step, so that its block,
// for which others may wait, goes on.
func (s *server) together(work *state.Work, end time.Time) {
	for i := 1; i < len(s.slots); i++ {
		if n := (s.own + i) % len(s.slots); s.ready(n) == nil { // else its block waits for the server
			s.crew.start(i, func() { s.slot(n, work, end, false) })
		}
	}
	if n := s.own % len(s.slots); s.ready(n) == nil {
		s.slot(n, work, end, false)
	}
	s.own += s.crew.finish(time.Now().After(end))
}

// ran counts the warp instructions of the launch so far.
func (s *server) ran() (compiled, interpreted uint64) {
	for i := range s.slots {
		if r := s.slots[i].Runner; r != nil {
			compiled, interpreted = compiled+r.Compiled, interpreted+r.Interpreted
		}
	}
	return compiled, interpreted
}

// A slot looks at the clock after a grain of work: a timer's goroutine has no processor while all run code.
const (
	grain      = 100 * time.Microsecond
	firstGrain = 1 << 14 // instructions
	leastGrain = 1 << 10
	mostGrain  = 1 << 22
)

// slot runs blocks in a slot until the step ends, or for a grain. It reports whether time and work may be left.
func (s *server) slot(n int, work *state.Work, end time.Time, once bool) (more bool) {
	o := &s.slots[n]
	now := time.Now()
	for {
		_, why := o.Run(work, o.grain)
		switch why {
		case compile.Budget:
			before := now
			if now = time.Now(); now.After(end) {
				s.stop() // others need not come to the end of their grain
				return false
			}
			o.grain = o.next(now.Sub(before))
			if once {
				return true
			}
			continue
		case compile.Left:
			o.left[o.image.All[o.image.Turn].PC]++
			if o.Interpret() == nil {
				if now = time.Now(); now.After(end) { // it may have waited for memory
					return false
				}
				continue
			} // else the server's executor repeats the instruction, which may be one that only it has
		case compile.Deadlock:
		default:
			return false
		}
		s.stuck.CompareAndSwap(noSlot, int64(n))
		s.stop()
		return false
	}
}

// next returns how many instructions are a grain, of which the last one took a time.
func (o *slot) next(took time.Duration) uint64 {
	want := o.grain * uint64(grain) / uint64(max(took, time.Microsecond))
	return min(max(want, o.grain/2, leastGrain), 2*o.grain, mostGrain)
}

func (s *server) stop() { atomic.StoreUint32(&s.shared.Work.Stop, 1) }

// forms lists what had no machine code in the step, by form: a text of "name count;", as far as a message takes it.
func (s *server) forms() (text []byte) {
	counts := make(map[string]uint64)
	for i := range s.slots {
		o := &s.slots[i]
		for pc, n := range o.left {
			name := "?"
			if word, err := o.launch.Program.Word(pc); err == nil {
				if in, err := isa.Decode(word, pc); err == nil {
					name = in.Form.Name()
				}
			}
			counts[name] += n
		}
		clear(o.left)
	}
	for name, n := range counts {
		if entry := fmt.Sprintf("%s %d;", name, n); len(text)+len(entry) <= jit.MaxBody {
			text = append(text, entry...)
		}
	}
	return text
}
