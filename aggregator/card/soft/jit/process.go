package jit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/sandbox"
)

// process is a process that serves.
type process struct {
	*Conn
	shared *Shared
	files  map[*os.File]uint64 // that it has, by number; the card's memory is CardFile
	launch uint64              // that it knows
	body   []byte              // of its description

	version uint64         // of the places that it knows
	places  []engine.Place // those, but for a step's; nil if they are too many to look at
	table   uint64         // counts how often it had to forget them

	cmd   *exec.Cmd
	said  said
	lacks string // of its confinement

	// The process may map of the card's memory, which all guests share, what it was given last.
	given   atomic.Pointer[engine.Place]
	greeted bool
	asks    *os.File      // where it asks for that, nil on a kernel without
	judged  chan struct{} // closed when it asks no more
	reaped  chan struct{}
}

// maxPlaces bounds what is looked at when translations were dropped. Beyond it the process forgets its places.
const maxPlaces = 64

// revalidate finds out whether the places that the process knows are true. If not, it has to forget them: most drivers
// drop translations far more often than they change them.
func (p *process) revalidate(now engine.Places) {
	if v := now.Version(); v != p.version {
		p.version = v
		for _, at := range p.places {
			if is, ok := now.Place(at.VA, at.Write); !ok || is != at {
				p.places = nil
				break
			}
		}
		if p.places == nil {
			p.table++
			p.places = make([]engine.Place, 0, maxPlaces)
		}
	}
}

// learned notes a place that the process was told of.
func (p *process) learned(at engine.Place) {
	if at.Step {
		return
	}
	if p.places == nil || len(p.places) == maxPlaces {
		p.places = nil
		return
	}
	p.places = append(p.places, at)
}

// maxFiles bounds what a process has open. Memory in further files is the server's.
const maxFiles = 256

// said keeps the first line that a process writes to its standard error.
type said struct {
	mu  sync.Mutex
	buf []byte
}

func (s *said) Write(p []byte) (int, error) {
	const most = 200
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(s.buf, p[:min(len(p), most-len(s.buf))]...)
	return len(p), nil
}

func (s *said) line() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, _, _ := strings.Cut(string(bytes.TrimSpace(s.buf)), "\n")
	return line
}

// start starts a process, and waits until it can serve.
func start(cfg *Config, card *os.File) (*process, error) {
	c, its, err := pair()
	if err != nil {
		return nil, err
	}
	p := &process{Conn: c, files: make(map[*os.File]uint64), reaped: make(chan struct{}), judged: make(chan struct{})}
	if card == nil {
		card = its // nothing is in it
	}
	p.files[card] = CardFile
	p.cmd = exec.Command(cfg.Program, cfg.LLVM, cfg.Dependencies)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr, p.cmd.ExtraFiles = []string{"GOTRACEBACK=none"}, "/", &p.said, []*os.File{its, card}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that made the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // end says how it ended
		}
		close(p.reaped)
	}()
	err = <-started
	its.Close()
	if err == nil {
		err = p.greet()
	}
	if err == nil {
		return p, nil
	}
	err = p.end(err)
	if _, says := err.(refusal); !says {
		err = fmt.Errorf("%s: %w; install the umbra-jit of this release beside umbra", cfg.Program, err)
	}
	return nil, err
}

// refusal is what a process says that cannot serve, with what would help.
type refusal string

func (r refusal) Error() string { return string(r) }

// greet receives the first message, and answers it.
func (p *process) greet() error {
	if err := p.patience(int64(startTimeout)); err != nil {
		return err
	}
	var m Message
	f, err := p.Receive(&m)
	p.asks = f
	p.greeted = true
	go p.judge()
	switch {
	case err != nil:
		return err
	case m.Kind != Hello || m.A != Version:
		return fmt.Errorf("its first message is %d of version %d: want %d of version %d", m.Kind, m.A, Hello, Version)
	case m.B != 0:
		return refusal(m.Body)
	case len(m.Body) > 0:
		p.lacks = string(m.Body)
	}
	var memory *os.File
	if p.shared, memory, err = newShared(); err != nil {
		return err
	}
	defer memory.Close()
	const look = 20 * time.Millisecond // a step is stopped after it
	if err := p.patience(int64(look)); err != nil {
		return err
	}
	return p.Send(&Message{Kind: Setup}, memory)
}

// judge answers what the process asks of the kernel: to map the card's memory.
func (p *process) judge() {
	defer close(p.judged)
	if p.asks == nil {
		return
	}
	defer p.asks.Close()
	_ = sandbox.Serve(p.asks, func(args [6]uint64) bool {
		const length, offset = 1, 5
		at := p.given.Load()
		return at != nil && args[length] == at.Size && args[offset] == at.Off
	})
}

// used is how long the process has had a processor, zero if it has ended.
func (p *process) used() time.Duration {
	const clockOfProcess = 2 // see clock_getcpuclockid(3)
	var t unix.Timespec
	if unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|clockOfProcess), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// overdue is how long a process goes on after the end of its step.
type overdue struct {
	last         time.Time     // that somebody looked
	before, used time.Duration // its processor time then and since
	waited       time.Duration
}

// look tells what is wrong with a process that does not end its step.
func (o *overdue) look(p *process) error {
	const most = 100 * time.Millisecond // what is more, this process has waited for a processor
	now, used := time.Now(), p.used()
	if o.last.IsZero() {
		o.last, o.before = now, used
	}
	o.waited += min(now.Sub(o.last), most)
	o.last, o.used = now, used-o.before
	if o.used > stopTimeout || o.waited > sleepTimeout {
		return fmt.Errorf("it did not end a step within %v of its end, %v of which it ran", o.waited.Round(time.Millisecond), o.used.Round(time.Millisecond))
	}
	return nil
}

// end ends the process, and says why it ended.
func (p *process) end(why error) error {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
	p.Close()
	late := time.After(stopTimeout)
	select {
	case <-p.reaped:
		if p.greeted {
			select {
			case <-p.judged:
			case <-late:
			}
		}
		if errors.Is(why, ErrEnded) || errors.Is(why, syscall.EPIPE) || errors.Is(why, syscall.ECONNRESET) {
			why = errors.New(cmp.Or(p.said.line(), p.cmd.ProcessState.String()))
		}
	case <-late: // a page fault that another process has to answer
	}
	if p.shared != nil {
		p.shared.close()
	}
	return why
}
