package worker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// ErrEnded is the error of all calls after the end of the process.
var ErrEnded = errors.New("the process of the card's channels has ended")

// Worker is one guest's process as the server sees it. Objects, spaces and channels have numbers that the caller
// chooses, each kind from 0 on; a number is free again after the free. Calls may come from any goroutine, and are carried
// out in the order in which they come. A call that the process does not answer in time ends the process; it and all later
// ones return [ErrEnded].
type Worker struct {
	conn    *conn
	events  Events
	timeout time.Duration
	log     func(string, ...any)
	kill    func() // ends the process; it does not wait
	pid     int
	reaped  <-chan struct{}
	status  func() string // of the ended process, after reaped

	turn sync.Mutex // held for a call
	buf  []byte     // under turn

	answers   chan reply
	ended     chan struct{}
	delivered chan struct{} // closed when Events has its last report

	mu     sync.Mutex // below turn
	opened bool       // Events gets an end
	err    error      // why it ended
	todo   reports
	wake   chan struct{}
}

// reply is an answer with what came with it.
type reply struct {
	answer
	text []byte
	file *os.File
}

// reports are those that Events has not received yet.
type reports struct {
	engines uint32
	stops   []stop
}

type stop struct {
	channel, xid uint32
	fault        nvrm.Fault
}

// maxStops bounds what a process that has gone mad can make the server remember.
const maxStops = 4096

func newWorker(c *conn, cfg Config, events Events, kill func(), reaped <-chan struct{}, status func() string) *Worker {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	s := &Worker{
		conn: c, events: events, timeout: cfg.Timeout, log: cfg.Log, kill: kill, reaped: reaped, status: status,
		answers: make(chan reply), ended: make(chan struct{}), delivered: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	go s.read()
	go s.deliver()
	return s
}

// end ends the process, and makes all calls return err.
func (s *Worker) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.ended)
		s.conn.Close() // read ends the process
	}
}

// why returns why the process ended, nil if it has not.
func (s *Worker) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// call makes a call, and waits for its answer.
func (s *Worker) call(r request, steps []Step, f *os.File, timeout time.Duration) (reply, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.why(); err != nil {
		return reply{}, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	s.buf = append(message(s.buf, &r), bytesOf(steps)...)
	s.conn.SetWriteDeadline(time.Now().Add(timeout))
	// An error means that the process has ended, or takes nothing: the wait below tells which.
	_ = s.conn.send(s.buf, f)
	select {
	case a := <-s.answers:
		if a.Kind != failed {
			return a, nil
		}
		if a.Status != 0 {
			return a, &nvrm.Error{Call: string(a.text), Status: a.Status}
		}
		return a, errors.New(string(a.text))
	case <-s.ended:
	case <-timer.C:
		s.end(fmt.Errorf("%w: it did not answer \"%s\" within %v", ErrEnded, calls[r.Call].name, timeout))
	}
	return reply{}, s.why()
}

// ask makes a call of which only the error matters.
func (s *Worker) ask(c call, number uint32, arg uint64) error {
	_, err := s.call(request{Call: c, Number: number, A: arg}, nil, nil, s.timeout)
	return err
}

// file makes a call that returns a file.
func (s *Worker) file(r request) (*os.File, error) {
	a, err := s.call(r, nil, nil, s.timeout)
	if err == nil && a.file == nil {
		err = fmt.Errorf("%s: the answer has no file", calls[r.Call].name)
	}
	return a.file, err
}

// read receives answers and events, on a goroutine of its own.
func (s *Worker) read() {
	for {
		a, err := s.next()
		if err != nil {
			s.kill()
			select { // for the reason
			case <-s.reaped:
				if !errors.Is(err, errNonsense) {
					err = errors.New(s.status())
				}
			case <-time.After(time.Second):
			case <-s.ended:
			}
			s.end(fmt.Errorf("%w: %w", ErrEnded, err))
			return
		}
		if a.Kind == answered || a.Kind == failed {
			select {
			case s.answers <- a:
				continue
			case <-s.ended:
			}
		} else {
			s.report(a)
		}
		if a.file != nil {
			a.file.Close()
		}
	}
}

func (s *Worker) next() (a reply, err error) {
	body, f, err := s.conn.receive(nil, answerBytes+maxText)
	if err != nil {
		return a, err
	}
	a.file = f
	if a.text, err = decode(body, &a.answer, answerBytes); err == nil && a.Kind > logged {
		err = fmt.Errorf("%w: kind %d", errNonsense, a.Kind)
	}
	if err != nil && f != nil {
		f.Close()
	}
	return a, err
}

// report keeps a report for the other goroutine, so that a slow receiver does not delay answers.
func (s *Worker) report(a reply) {
	if a.Kind == logged {
		s.log("%s", a.text)
		return
	}
	s.mu.Lock()
	flood := false
	if a.Kind == completed {
		s.todo.engines |= a.Number
	} else if flood = len(s.todo.stops) == maxStops; !flood {
		s.todo.stops = append(s.todo.stops, stop{a.Number, a.Xid, nvrm.Fault{VA: a.FaultVA, Type: a.FaultType, Text: string(a.text)}})
	}
	s.mu.Unlock()
	if flood {
		s.end(fmt.Errorf("%w: it reported more than %d stopped channels", ErrEnded, maxStops))
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// deliver calls Events, on a goroutine of its own.
func (s *Worker) deliver() {
	defer close(s.delivered)
	for last := false; !last; {
		select {
		case <-s.wake:
		case <-s.ended:
			last = true
		}
		s.mu.Lock()
		todo := s.todo
		s.todo = reports{}
		s.mu.Unlock()
		for engine := int32(nvrm.Graphics); todo.engines != 0; engine++ {
			if todo.engines&1 != 0 {
				s.events.Completed(engine)
			}
			todo.engines >>= 1
		}
		for _, st := range todo.stops {
			s.events.Stopped(st.channel, st.xid, st.fault)
		}
	}
	s.mu.Lock()
	opened, err := s.opened, s.err
	s.mu.Unlock()
	if opened {
		s.events.Ended(err)
	}
}

// open waits until the process has its client.
func (s *Worker) open() error {
	_, err := s.call(request{Call: callOpen}, nil, nil, startTimeout)
	s.mu.Lock()
	err = cmp.Or(err, s.err)
	s.opened = err == nil
	s.mu.Unlock()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close ends the process.
func (s *Worker) Close() error {
	s.end(ErrEnded)
	select {
	case <-s.reaped:
		return nil
	case <-time.After(s.timeout):
		return fmt.Errorf("the killed process of the card's channels has not ended within %v: a call of the NVIDIA driver does not return", s.timeout)
	}
}
