package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/guests/gpu"
)

// Server answers requests.
type Server struct {
	sys      *System
	env      *gpu.Env
	commands map[string]command

	out sync.Mutex // guards w
	w   io.Writer

	mu       sync.Mutex // guards the load and the doorbell
	load     *gpu.Load
	doorbell *gpu.Doorbell
	loadDone chan struct{} // closed to end its progress events

	requests sync.WaitGroup
}

// command runs with the arguments of a request. then, if there is one, runs after
// the reply is out.
type command func(args json.RawMessage) (result any, then func() error, err error)

// New makes a server that writes to w.
func New(sys *System, w io.Writer) *Server {
	s := &Server{sys: sys, env: &gpu.Env{System: sys}, w: w}
	s.commands = s.table()
	return s
}

// do adapts a function of typed arguments. Unknown fields are refused: a misspelt
// option must not pass for a default.
func do[A, R any](f func(A) (R, error)) command {
	return func(raw json.RawMessage) (any, func() error, error) {
		var args A
		if err := decode(raw, &args); err != nil {
			return nil, nil, err
		}
		r, err := f(args)
		return r, nil, err
	}
}

// get adapts a function without arguments.
func get[R any](f func() (R, error)) command {
	return do(func(none) (R, error) { return f() })
}

// act adapts a function without a result.
func act[A any](f func(A) error) command {
	return do(func(a A) (none, error) { return none{}, f(a) })
}

func decode(raw json.RawMessage, v any) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// Serve reads requests until the input ends.
func (s *Server) Serve(r io.Reader) error {
	defer s.end()
	lines := bufio.NewReader(r)
	for {
		line, err := readLine(lines)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var req proto.Request
		if json.Unmarshal(line, &req) != nil || req.ID == 0 {
			continue // noise on the line
		}
		s.requests.Go(func() { s.handle(req) })
	}
}

// readLine returns one line and drops those that are longer than any request.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) <= proto.MaxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// end stops the load before it waits for requests, because progress events count as one.
func (s *Server) end() {
	s.mu.Lock()
	if s.load != nil {
		s.stopLoad()
	}
	s.mu.Unlock()
	_ = s.closeDoorbell() // nobody is left to read the error
	s.requests.Wait()
}

func (s *Server) handle(req proto.Request) {
	result, then, err := s.run(req)
	reply := proto.Reply{ID: req.ID, OK: err == nil}
	if err != nil {
		reply.Error = err.Error()
	}
	if result != nil {
		data, jerr := json.Marshal(result)
		switch {
		case jerr != nil:
			reply.OK, reply.Error = false, jerr.Error()
		case len(data) > proto.MaxLine-4096:
			reply.OK, reply.Error = false, fmt.Sprintf("a result of %d bytes: at most %d", len(data), proto.MaxLine-4096)
		default:
			reply.Result = data
		}
	}
	s.send(reply)
	if then != nil && err == nil {
		if err := then(); err != nil {
			s.Event("error", map[string]string{"cmd": req.Cmd, "error": err.Error()})
		}
	}
}

// run looks the command up. A panic is a bug of a command; it must not end the guest's only
// line to the lab.
func (s *Server) run(req proto.Request) (result any, then func() error, err error) {
	c, ok := s.commands[req.Cmd]
	if !ok {
		return nil, nil, fmt.Errorf("no command %q", req.Cmd)
	}
	defer func() {
		if p := recover(); p != nil {
			result, then, err = nil, nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c(req.Args)
}

// Event says something unasked.
func (s *Server) Event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return
	}
	s.send(proto.Event{Event: name, Data: raw})
}

func (s *Server) send(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		return
	}
	s.out.Lock()
	defer s.out.Unlock()
	// Nobody is left to read the error.
	_, _ = s.w.Write(append(line, '\n'))
}
