package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/trace"
)

// showLimit is how long a submission may take while a recording is shown.
const showLimit = 10 * time.Second

// Show explains a recording: its submissions, the programs that they launch, disassembled, and where the last one
// failed. It carries the recording out on a card. With methods it also names all methods, else those of a submission
// that fails.
func Show(w io.Writer, r *Recording, methods bool) (err error) {
	s := explainer{w: w, methods: make(map[int]*trace.Methods), listed: make(map[uint64]bool)}
	s.machine, err = NewMachine(Config{Limit: showLimit, AllowNotExecuted: true, Launched: s.launched})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.machine.Close()) }()
	s.printf("%s, Mesa %s\n", r.Program, r.Mesa)
	p := player{machine: s.machine, image: newImage(s.machine)}
	for i := range r.Steps {
		step := &r.Steps[i]
		failed := step.Failed
		step.Failed = "" // the error itself is wanted
		err := p.step(step)
		step.Failed = failed
		if step.Submit != nil {
			s.submission(i+1, step, methods || err != nil, err)
		} else if err != nil {
			return fmt.Errorf("step %d of %d: %w", i+1, len(r.Steps), err)
		}
		if failed != "" && (err == nil || !alike(err.Error(), failed)) {
			s.printf("failed when it was recorded: %s\n", failed)
		}
		if err != nil {
			s.printf("fails here: %v\n", err)
			break
		}
	}
	return s.err
}

type explainer struct {
	w       io.Writer
	err     error // of w
	machine *Machine
	methods map[int]*trace.Methods // by channel
	listed  map[uint64]bool        // programs, by address

	mu       sync.Mutex
	launches []launch // of the submission that is carried out
}

// launch is what is shown of one.
type launch struct {
	program, region   uint64
	grid, block       [3]uint32
	registers, shared uint32
}

// launched is called by the card's goroutine.
func (s *explainer) launched(l *sm.Launch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launches = append(s.launches, launch{l.Program, l.Region, l.Grid, l.Block, l.Registers, l.Shared})
}

func (s *explainer) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *explainer) submission(n int, step *Step, methods bool, failed error) {
	s.mu.Lock()
	launches := s.launches
	s.launches = nil
	s.mu.Unlock()
	s.printf("\nstep %d: a submission on channel %d, parts: %d; the program wrote %d places before, and the card %d\n", n, step.Channel, len(step.Submit), len(step.Wrote), len(step.Expected))
	if s.methods[step.Channel] == nil {
		s.methods[step.Channel] = new(trace.Methods)
	}
	for _, p := range step.Submit {
		lines := s.methods[step.Channel].Lines(s.machine.At(p.VA, p.Size)) // also unseen: they have the classes
		if methods && len(lines) > 0 {
			s.printf("  %s\n", strings.Join(lines, "\n  "))
		}
	}
	for i, l := range launches {
		s.printf("  launch of %v blocks of %v threads with %d registers, %d bytes shared by a block: the program at %#x\n", l.grid, l.block, l.registers, l.shared, l.program)
		var fault *interp.Fault
		if i == len(launches)-1 {
			errors.As(failed, &fault)
		}
		if fault != nil || !s.listed[l.program] {
			s.listed[l.program] = true
			s.program(&l, fault)
		}
	}
}

// program lists a program by addresses in its region, as errors name them.
func (s *explainer) program(l *launch, fault *interp.Fault) {
	code := trace.Program(l.program, func(va uint64, p []byte) bool { return copy(p, s.machine.At(va, uint64(len(p)))) > 0 })
	for i := 0; i+8 <= len(code); i += 8 {
		word, pc := binary.LittleEndian.Uint64(code[i:]), uint32(l.program-l.region)+uint32(i)
		text := "is no instruction"
		if in, err := isa.Decode(word, pc); err == nil {
			text = in.String()
		}
		s.printf("    %#07x  %016x  %s\n", pc, word, text)
		if fault != nil && fault.PC == pc {
			s.printf("    ^^^^^^^^^  %v\n", fault)
		}
	}
}
