package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// fakePrefix begins the name of a library that makes the process one of those that do what they must not.
const fakePrefix = "fake-"

// fakes are what such a process does instead of a step.
var fakes = map[string]func(c *jit.Conn, s *jit.Shared, image *state.Image) *jit.Message{
	"verdict": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: jit.Ended, A: 99} },
	"slot": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
		return &jit.Message{Kind: jit.Ended, A: uint64(jit.Stuck), B: 1 << 40}
	},
	"compile": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
		return &jit.Message{Kind: jit.Ended, A: uint64(jit.Compiling), B: uint64(time.Hour), C: 1}
	},
	"kind":  func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: 77} },
	"setup": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: jit.Hello} },
	"exit":  func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { os.Exit(3); return nil },
	"hang":  func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { select {} },
	"spin": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
		for i := 0; i >= 0; i++ {
		}
		return nil
	},
	"previous": ended(func(s *jit.Shared, _ *state.Image) { s.Work.Next = 0 }),
	"depth":    ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Depth = 1 << 31 }),
	"kinds":    ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Depth, m.All[0].Stack[0].Kind = 1, 1000 }),
	"barrier":  ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Wait = 1 << 20 }),
	"taken":    ended(func(_ *jit.Shared, m *state.Image) { m.Next, m.End = 0, 1<<40 }),
	"turn":     ended(func(_ *jit.Shared, m *state.Image) { m.Turn = 1 << 30 }),
	"locks":    ended(func(_ *jit.Shared, m *state.Image) { m.Locks = 1 << 30 }),
	"block":    ended(func(_ *jit.Shared, m *state.Image) { m.ID[0] = 1 << 30 }),
	"flood": func(c *jit.Conn, _ *jit.Shared, _ *state.Image) *jit.Message {
		for {
			if c.Send(&jit.Message{Kind: jit.Ask, A: ^uint64(0)}, nil) != nil {
				return &jit.Message{Kind: jit.Ended}
			}
		}
	},
}

// escape is the process that is confined, and tries what that forbids.
const escape = "escape"

// tryAll lists what the process was allowed that it should not be.
func tryAll() (allowed string) {
	try := func(what string, err error) {
		if !errors.Is(err, unix.EPERM) {
			allowed += fmt.Sprintf("%s: %v; ", what, err)
		}
	}
	var b [16]byte
	const page = 4096
	_, err := unix.Mmap(jit.CardFD, page, page, unix.PROT_READ, unix.MAP_SHARED)
	try("map the card's memory", err)
	_, err = unix.Read(jit.CardFD, b[:])
	try("read it", err)
	_, err = unix.Write(jit.CardFD, b[:])
	try("write it", err)
	_, err = unix.Pread(jit.CardFD, b[:], 0)
	try("read it elsewhere", err)
	try("change its size", unix.Ftruncate(jit.CardFD, 0))
	_, err = unix.Dup(jit.CardFD)
	try("copy its descriptor", err)
	_, err = unix.FcntlInt(jit.CardFD, unix.F_DUPFD, 0)
	try("copy its descriptor otherwise", err)
	own, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err.Error()
	}
	_, err = unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	try("have memory that no limit counts", err)
	_, err = unix.Mremap(own, 2*page, unix.MREMAP_MAYMOVE)
	try("make a mapping larger", err)
	try("make memory writable and executable", unix.Mprotect(own, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC))
	_, err = os.ReadFile("/etc/passwd")
	try("open a file", err)
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	try("open a socket", err)
	try("end the server", unix.Kill(os.Getppid(), 0))
	try("start a program", unix.Exec("/bin/true", nil, nil))
	return allowed
}

// TestEscape: the process cannot reach other guests' memory, or anything of the machine.
func TestEscape(t *testing.T) {
	r := newRig(t, jit.Config{LLVM: fakePrefix + escape, Always: true, Wait: true}, count)
	require.Equal(t, engine.NotNative, r.native.Run(r.job).Outcome)
	require.Equal(t, map[string]uint64{"nothing": 1}, r.compiler.Stats.Why(), r.lines())
}

// ended makes a block, and then changes what the server reads.
func ended(change func(*jit.Shared, *state.Image)) func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
	return func(_ *jit.Conn, s *jit.Shared, m *state.Image) *jit.Message {
		m.Begun = 1
		for i := range m.All {
			m.All[i] = state.Warp{Active: ^uint32(0), Wait: -1}
		}
		change(s, m)
		return &jit.Message{Kind: jit.Ended}
	}
}

// fake is a process that does what it must not.
func fake(mode string, args []string) int {
	c := jit.NewConn(jit.ConnFD)
	var listener *os.File
	var err error
	if mode == escape && len(args) == 2 {
		err = confine("", "")
	} else if mode == escape {
		_, listener, err = forbid()
	}
	if err != nil || c.Send(&jit.Message{Kind: jit.Hello, A: jit.Version}, listener) != nil {
		return 1
	}
	var s *jit.Shared
	for {
		var m jit.Message
		f, err := c.Receive(&m)
		if err != nil {
			return 0
		}
		if m.Kind == jit.Setup {
			if s, err = jit.OpenShared(f); err != nil {
				return 1
			}
			continue
		}
		image, err := state.New(s.Slot(0), 2, 256)
		if err != nil {
			return 1
		}
		s.Began.Store(1)
		if mode == escape {
			m = jit.Message{Kind: jit.Ended, A: uint64(jit.Refused), Body: []byte(cmp.Or(tryAll(), "nothing"))}
			if c.Send(&m, nil) != nil {
				return 1
			}
			continue
		}
		if c.Send(fakes[mode](c, s, image), nil) != nil {
			return 0
		}
	}
}

// A process that answers nonsense costs its guest the launch, and the server one line and one process.
func TestNonsense(t *testing.T) {
	for mode := range fakes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, jit.Config{LLVM: fakePrefix + mode, Always: true, Wait: true}, count)
			r.job.Grid.Next = 1
			start := time.Now()
			out := r.native.Run(r.job)
			require.Less(t, time.Since(start), 20*time.Second)
			require.Equal(t, engine.NativeFault, out.Outcome)
			require.ErrorContains(t, out.Fault, "lost with its process")
			require.Len(t, r.lines(), 1)
			require.Contains(t, r.lines()[0], "interpreted")
			require.Equal(t, engine.NotNative, r.native.Run(r.job).Outcome)
			require.EqualValues(t, 1, r.compiler.Stats.Lost.Load())
		})
	}
}
