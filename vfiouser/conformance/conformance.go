// Package conformance tests a vfio-user server from outside: it sends messages over its socket
// and checks the answers.
//
// A case is a row: its family, its action and the expected answers. Each has its own
// connection. Cases are written from the protocol's specification (version 0.9.2). Where that
// is silent, or where the known servers differ and clients accept both, the case is marked a
// choice: it lists all known behaviours, reports the one that it found, and fails only on
// another.
//
// Cases write nothing to the device but PCI's interrupt line register, which they write back.
// They do map memory, attach eventfds, fire interrupts, reset the device and take it through
// migration states where it offers them: do not point them at a device in use.
//
// Run calls everything on the caller's goroutine. The package has no state and no locks.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// Mark is the source of a case's expectation.
type Mark string

// The marks.
const (
	Specification Mark = "specification"
	// Choice is the server's choice: the specification does not settle it.
	Choice Mark = "server's choice"
)

// Outcome is what came of a case.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "pass"
	Failed Outcome = "FAIL"
	// NotApplicable: the device has not what the case needs.
	NotApplicable Outcome = "n/a"
)

// Case is one case, as the list shows it.
type Case struct {
	Family string `json:"family"`
	Name   string `json:"name"`
	Mark   Mark   `json:"mark"`
	Does   string `json:"does"` // what is sent

	run func(s *session) finding
}

// Result is a case with what it found.
type Result struct {
	Case
	Outcome Outcome `json:"outcome"`
	Found   string  `json:"found"` // one line
}

type finding struct {
	outcome Outcome
	text    string
}

func pass(format string, args ...any) finding { return finding{Passed, fmt.Sprintf(format, args...)} }
func fail(format string, args ...any) finding { return finding{Failed, fmt.Sprintf(format, args...)} }
func absent(format string, args ...any) finding {
	return finding{NotApplicable, fmt.Sprintf(format, args...)}
}

// Options configure the suite and its server.
type Options struct {
	// Dial connects to the server: a stream socket, which becomes the suite's.
	// A server that ends with each client may be started again here.
	Dial func() (fd int, err error)
	// Timeout is how long an answer may take; 0 means 5 s.
	Timeout time.Duration
	// Families to run; empty means all.
	Families []string
}

// patience bounds the wait for an action of the server without an answer: the time-out of an
// answer, and a second at least.
func (o *Options) patience() time.Duration { return max(o.Timeout, time.Second) }

// DialPath dials the server at path. A server between two clients may refuse for a moment;
// DialPath retries for five seconds.
func DialPath(path string) func() (int, error) {
	return func() (int, error) {
		deadline := time.Now().Add(5 * time.Second)
		for {
			fd, err := client.DialFD(path)
			if err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
				return fd, err
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Cases returns all cases, by family.
func Cases() []Case {
	var out []Case
	for _, family := range families {
		for _, c := range family.cases {
			c.Family = family.name
			if c.Mark == "" {
				c.Mark = Specification
			}
			out = append(out, c)
		}
	}
	return out
}

// Families returns the names of the families.
func Families() []string {
	var out []string
	for _, f := range families {
		out = append(out, f.name)
	}
	return out
}

var families = []struct {
	name  string
	cases []Case
}{
	{"negotiation", negotiation},
	{"requests", requests},
	{"device info", deviceInfo},
	{"region info", regionInfo},
	{"irq info", irqInfo},
	{"set irqs", setIRQs},
	{"dma map", dmaMap},
	{"dma unmap", dmaUnmap},
	{"io fds", ioFDs},
	{"region access", regionAccess},
	{"write multi", writeMulti},
	{"reset", reset},
	{"dirty pages", dirtyPages},
	{"migration", migration},
	{"disconnect", disconnect},
	{"pipelining", pipelining},
	{"descriptors", descriptors},
}

// Run runs the cases and reports each. It fails if the server cannot be described at all, or
// when ctx ends.
func Run(ctx context.Context, o Options, report func(Result)) error {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	dev, err := discover(&o)
	if err != nil {
		return fmt.Errorf("conformance: the server cannot be described: %w", err)
	}
	for _, c := range Cases() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(o.Families) > 0 && !slices.Contains(o.Families, c.Family) {
			continue
		}
		f := one(&c, &o, dev)
		report(Result{Case: c, Outcome: f.outcome, Found: f.text})
	}
	return nil
}

// one runs a case on a connection that it opens and closes.
func one(c *Case, o *Options, dev *device) (f finding) {
	s := &session{o: o, dev: dev}
	defer s.close()
	if err := stopped(func() { f = c.run(s) }); err != nil {
		return fail("%v", err)
	}
	return f
}

// stop ends a case whose server failed before the tested step.
type stop struct{ err error }

// stopped runs a case's code and returns the error of its stop.
func stopped(run func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stop:
			err = p.err
		default:
			panic(p)
		}
	}()
	run()
	return nil
}

func must(err error, step string) {
	if err != nil {
		panic(stop{fmt.Errorf("%s: %w", step, err)})
	}
}

// session has the connections of one case, and its resources to release.
type session struct {
	o     *Options
	dev   *device
	undo  []func()
	conns []*client.Client
}

func (s *session) close() {
	for _, c := range s.conns {
		c.Close()
	}
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
}

// dial opens a connection and sends nothing.
func (s *session) dial() *client.Client {
	fd, err := s.o.Dial()
	must(err, "connect")
	c, err := client.NewFD(fd, &client.Options{NoVersion: true, Timeout: s.o.Timeout})
	must(err, "connect")
	s.conns = append(s.conns, c)
	return c
}

// attach opens a connection and negotiates as QEMU does.
func (s *session) attach() *client.Client {
	c := s.dial()
	reply(c, versionMessage(0, 0, client.QEMUCapabilities), -1, "VERSION")
	return c
}

func disconnected(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
