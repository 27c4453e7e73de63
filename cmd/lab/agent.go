package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// Agent talks to the program inside the guest. Its methods may be called from
// any goroutine, side by side. The machine's reader goroutine runs it; mu
// guards the calls under way, the writer token the order of what is written.
type Agent struct {
	conn   net.Conn
	events *journal[proto.Event]

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan answer
	broken  error // set when the line cannot be used any more

	writer chan struct{} // holds a token while a line is written
}

// ErrRebooted ends the calls that were under way when the guest started anew.
var ErrRebooted = errors.New("the guest rebooted")

func newAgent(conn net.Conn) *Agent {
	return &Agent{conn: conn, events: newJournal[proto.Event](), pending: make(map[uint64]chan answer), writer: make(chan struct{}, 1)}
}

// answer ends a call.
type answer struct {
	reply proto.Reply
	err   error // there is no reply
}

// run reads until the connection ends.
func (a *Agent) run() {
	r := bufio.NewReaderSize(a.conn, 64<<10)
	for {
		line, err := readLine(r)
		if err != nil {
			break
		}
		a.handle(line)
	}
	a.fail(errEnded, true)
	a.events.close(errEnded)
}

// readLine returns one line, and drops those longer than the protocol allows.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= proto.MaxLine {
			line = append(line, part...)
		}
		switch {
		case err == nil && len(line) > proto.MaxLine:
			line = line[:0]
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (a *Agent) handle(line []byte) {
	var m struct {
		proto.Reply
		proto.Event
		Cmd string `json:"cmd"` // a terminal that is not raw yet says requests back
	}
	// What is not an object of the protocol is noise on the line.
	if json.Unmarshal(line, &m) != nil || m.Cmd != "" {
		return
	}
	if m.Event.Event != "" {
		if m.Event.Event == proto.EventReady {
			a.fail(ErrRebooted, false)
		}
		a.events.add(m.Event)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ch := a.pending[m.ID]; ch != nil {
		delete(a.pending, m.ID)
		ch <- answer{reply: m.Reply}
	}
}

// fail ends the calls under way; forever means there will be no more.
func (a *Agent) fail(err error, forever bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if forever && a.broken == nil {
		a.broken = err
	}
	for id, ch := range a.pending {
		delete(a.pending, id)
		ch <- answer{err: err}
	}
}

// CallError is a command that the agent refused or could not do.
type CallError struct {
	Cmd     string
	Message string // the agent's
}

func (e *CallError) Error() string { return fmt.Sprintf("guest agent: %s: %s", e.Cmd, e.Message) }

// Call runs a command in the guest and decodes its result, unless result is
// nil. A command that failed (a CallError) may have a result too: what it found
// until then. args may be nil. The context bounds the wait, not the guest's work.
func (a *Agent) Call(ctx context.Context, cmd string, args, result any) error {
	req := proto.Request{Cmd: cmd}
	if args != nil {
		data, err := json.Marshal(args)
		if err != nil {
			return fmt.Errorf("guest agent: %s: arguments: %w", cmd, err)
		}
		req.Args = data
	}
	ch := make(chan answer, 1)
	a.mu.Lock()
	if a.broken != nil {
		a.mu.Unlock()
		return fmt.Errorf("guest agent: %s: %w", cmd, a.broken)
	}
	a.next++
	req.ID = a.next
	a.pending[req.ID] = ch
	a.mu.Unlock()

	forget := func() {
		a.mu.Lock()
		delete(a.pending, req.ID)
		a.mu.Unlock()
	}
	if err := a.send(ctx, req); err != nil {
		forget()
		return fmt.Errorf("guest agent: %s: %w", cmd, err)
	}
	select {
	case <-ctx.Done():
		forget()
		return fmt.Errorf("guest agent: %s: no reply: %w", cmd, context.Cause(ctx))
	case ans := <-ch:
		r := ans.reply
		if ans.err != nil {
			return fmt.Errorf("guest agent: %s: %w", cmd, ans.err)
		}
		var refused error
		if !r.OK {
			refused = &CallError{Cmd: cmd, Message: r.Error}
		}
		if result == nil || refused != nil && len(r.Result) == 0 {
			return refused
		}
		if err := json.Unmarshal(r.Result, result); err != nil {
			return errors.Join(refused, fmt.Errorf("guest agent: %s: result %.200q: %w", cmd, r.Result, err))
		}
		return refused
	}
}

// send writes one line. A guest that does not read stops it until ctx ends;
// a line cut short then leaves the line unusable.
func (a *Agent) send(ctx context.Context, req proto.Request) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(data) >= proto.MaxLine {
		return fmt.Errorf("request of %d bytes; at most %d fit in a line", len(data), proto.MaxLine-1)
	}
	select {
	case a.writer <- struct{}{}:
		defer func() { <-a.writer }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		a.conn.SetWriteDeadline(time.Unix(1, 0)) // Write returns
		close(expired)
	})
	n, err := a.conn.Write(append(data, '\n'))
	if !stop() {
		<-expired
		a.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && n > 0 {
		a.fail(fmt.Errorf("a request was cut short: %w", io.ErrShortWrite), true)
	}
	return err
}

// Ready waits until the guest has booted for the n-th time, counting from 1.
func (a *Agent) Ready(ctx context.Context, n int) (proto.Ready, error) {
	var ready proto.Ready
	var e proto.Event
	var err error
	for from := 0; n > 0; n-- {
		e, from, err = a.events.wait(ctx, from, func(e proto.Event) bool { return e.Event == proto.EventReady })
		if err != nil {
			return ready, err
		}
	}
	if len(e.Data) == 0 {
		return ready, nil
	}
	return ready, json.Unmarshal(e.Data, &ready)
}

// Boots counts how often the guest has come up.
func (a *Agent) Boots() int {
	n := 0
	for _, e := range a.events.all() {
		if e.Event == proto.EventReady {
			n++
		}
	}
	return n
}

// Events returns all that the agent has said unasked so far.
func (a *Agent) Events() []proto.Event { return a.events.all() }

// WaitEvent waits for an event of a name, at or after position from of Events,
// and returns it with the position behind it.
func (a *Agent) WaitEvent(ctx context.Context, name string, from int) (proto.Event, int, error) {
	return a.events.wait(ctx, from, func(e proto.Event) bool { return e.Event == name })
}

// startWait is how long a QEMU that was started just now may take to make its sockets.
const startWait = 5 * time.Second

// CallSocket runs a command in a guest that a person started with what Command prints.
// It waits until the guest program answers, for at most wait, and says so on progress. As
// with Agent.Call, a CallError may come with a result.
func CallSocket(ctx context.Context, socket, cmd string, args any, wait time.Duration, progress io.Writer) (json.RawMessage, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	for end := time.Now().Add(min(wait, startWait)); err != nil && time.Now().Before(end); { // QEMU may be starting
		time.Sleep(startWait / 50)
		conn, err = d.DialContext(ctx, "unix", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("no guest at %s, or a second QEMU took its socket: %w", socket, err)
	}
	a := newAgent(conn)
	// A reply that an earlier program did not read must not match our request.
	a.next = rand.Uint64N(1 << 52)
	var reader sync.WaitGroup
	reader.Go(a.run)
	defer reader.Wait()
	defer conn.Close()

	if err := a.awake(ctx, wait, progress); err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	var result json.RawMessage
	err = a.Call(ctx, cmd, args, &result)
	return result, err
}

// awake waits until the guest program answers. Requests to a booting guest are lost, so
// it asks again and again.
func (a *Agent) awake(ctx context.Context, wait time.Duration, progress io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait,
		fmt.Errorf("the guest did not answer in %v: it has not booted, another program uses this socket, or a second QEMU took it", wait))
	defer cancel()
	for step := time.Second; ; step *= 2 {
		ping, stop := context.WithTimeout(ctx, step)
		err := a.Call(ping, proto.CmdPing, nil, nil)
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, ErrRebooted) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		if step == time.Second {
			fmt.Fprintln(progress, "lab: waiting for the guest to boot")
		}
	}
}
