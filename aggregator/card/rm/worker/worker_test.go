package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/fakerm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// childArgument makes this program the process, with a fake driver that the next argument describes.
const childArgument = "fake-card-worker"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childArgument {
		d := new(fakerm.Driver)
		if err := json.Unmarshal([]byte(os.Args[2]), d); err != nil {
			panic(err)
		}
		if err := Main(System{System: &escapee{d}, Calls: fakerm.Calls}, os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// escapee tries what the sandbox forbids, when its release is "escape".
type escapee struct{ *fakerm.Driver }

func (e *escapee) Release() (string, error) {
	if e.Version != "escape" {
		return e.Driver.Release()
	}
	report := ""
	note := func(what string, err error) { report += fmt.Sprintf("%s %v\n", what, err) }
	_, err := os.Open("/etc/passwd")
	note("open", err)
	_, err = os.Open("/proc/self/maps")
	note("proc", err)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	note("socket", err)
	note("execve", unix.Exec("/proc/self/exe", []string{"x"}, nil))
	note("kill", unix.Kill(unix.Getppid(), 0))
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	note("exec", err)
	_, err = unix.IoctlGetInt(0, unix.TIOCGWINSZ)
	note("ioctl", err)
	return "", errors.New(report)
}

// recorder is the Events of tests.
type recorder struct {
	mu      sync.Mutex
	engines []int32
	stops   []stop
	ends    []error
	stall   chan struct{} // Stopped waits for its end, unless nil
}

func (r *recorder) Completed(engine int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engines = append(r.engines, engine)
}

func (r *recorder) Stopped(channel, xid uint32, f nvrm.Fault) {
	if r.stall != nil {
		<-r.stall
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, stop{channel, xid, f})
}

func (r *recorder) Ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, err)
}

func (r *recorder) eventually(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return what() }, time.Minute, time.Millisecond)
}

func configOf(t *testing.T, d *fakerm.Driver) Config {
	text, err := json.Marshal(d)
	require.NoError(t, err)
	return Config{Command: []string{"/proc/self/exe", childArgument, string(text)}, User: "nobody", Timeout: time.Minute, Log: t.Logf}
}

// memfd makes a file of memory.
func memfd(t *testing.T, size int64) *os.File {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(size))
	return f
}

// openFiles counts the files that this process has, besides those that Go opens at the first use of a socket.
func openFiles(t *testing.T) int {
	l, err := net.Listen("unix", "")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

// testDriver serves a driver in this process.
func testDriver(t *testing.T, d nvrm.System, r *recorder) *Worker {
	s, err := InProcess(d, Config{Log: t.Logf}, r)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

const (
	page = 4096
	mib  = 1 << 20
	low  = 0x100000
)

// use makes one call of each kind. It returns the first error.
func use(t *testing.T, w *Worker, r *recorder) (err error) {
	ram := memfd(t, 4*mib)
	var token uint32
	var bell, vram *os.File
	defer func() { bell.Close(); vram.Close() }()
	slot := func(f **os.File, make func() (*os.File, error)) func() error {
		return func() (err error) { *f, err = make(); return err }
	}
	event := func(what func() bool) func() error {
		return func() error {
			r.eventually(t, func() bool { return len(r.ends) > 0 || what() })
			return errors.Join(r.ends...)
		}
	}
	for i, do := range []func() error{
		func() error {
			i, err := w.Info()
			if err == nil {
				require.Equal(t, nvrm.Info{Name: "Fake H200", Total: 1 << 30, Free: 1 << 30, Copies: []int{0, 2, 4}, Culling: nvrm.Culling{Words: [10]uint32{0: 16, 7: 16}, Context: 5 << 12}}, i)
			}
			return err
		},
		slot(&bell, w.Doorbell),
		slot(&vram, func() (*os.File, error) { return w.NewVRAM(0, 4*mib) }),
		func() error { return w.Register(1, ram, mib, 2*mib) },
		func() error { return w.NewSpace(5) },
		func() error {
			n, err := w.Apply(5, []Step{
				{Op: Map, Object: 0, VA: 32 * mib, Size: 4 * mib, Page: 2 * mib},
				{Op: Map, Object: 1, VA: low, Size: 2 * mib, Page: page, ReadOnly: true, Kind: 6},
				{Op: Unmap, Object: 1, VA: low + page, Size: page},
				{Op: Map, Object: 1, VA: low + page, Offset: page, Size: page, Page: page},
			})
			require.Equal(t, err == nil, n == 4)
			return err
		},
		func() error { return w.Invalidate(5) },
		func() (err error) {
			token, err = w.NewChannel(7, Channel{Space: 5, Engine: 2, Ring: low, Entries: 1024, Own: 1, USERD: page, Slice: 1000, Classes: Classes{0xc8b5}})
			require.Equal(t, err == nil, token != 0)
			return err
		},
		func() error { return w.SetSlice(7, 500) },
		func() error { return w.Enable(7, false) },
		func() error { return w.Enable(7, true) },
		event(func() bool { return slices.Equal(r.engines, []int32{2}) }),
		func() error { return w.Reset(7) },
		event(func() bool { return len(r.stops) == 1 }),
		func() error { return w.FreeChannel(7) },
		func() error {
			n, err := w.Apply(5, []Step{{Op: Unmap, Object: 1, VA: low, Size: 2 * mib}, {Op: Unmap, VA: 32 * mib, Size: 4 * mib}})
			require.Equal(t, err == nil, n == 2)
			return err
		},
		func() error { return w.Invalidate(5) },
		func() error { return w.FreeSpace(5) },
		func() error { return w.Free(1) },
		func() error { return w.Free(0) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	for f, n := range map[*os.File]int{bell: nvrm.DoorbellBytes, vram: 4 * mib} {
		view, err := mapFile(f, 0, uint64(n))
		require.NoError(t, err)
		view[n-1] = 1
		require.NoError(t, unix.Munmap(view))
	}
	require.Equal(t, []stop{{7, 31, nvrm.Fault{VA: 0x7770000000, Type: 1, Text: "FAULT_PDE"}}}, r.stops)
	return nil
}

func TestUse(t *testing.T) {
	files := openFiles(t)
	r := new(recorder)
	w, err := Start(configOf(t, &fakerm.Driver{Xid: 31}), r)
	require.NoError(t, err)
	require.NoError(t, use(t, w, r))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.NewSpace(1), ErrEnded)
	r.eventually(t, func() bool { return len(r.ends) == 1 })
	require.ErrorIs(t, r.ends[0], ErrEnded)
	r.eventually(t, func() bool { return openFiles(t) == files+1 }) // the test's memory is still open
}

// TestDeath kills the process in each call of the driver that it makes.
func TestDeath(t *testing.T) {
	files, die := openFiles(t), 1
	for used := false; !used; die++ {
		t.Run(fmt.Sprint("in call ", die), func(t *testing.T) {
			r := new(recorder)
			w, err := Start(configOf(t, &fakerm.Driver{Xid: 31, Die: die}), r)
			if err != nil {
				require.ErrorIs(t, err, ErrEnded)
				require.ErrorContains(t, err, "signal: killed")
				return
			}
			err = use(t, w, r)
			if used = err == nil; !used {
				require.ErrorIs(t, err, ErrEnded)
				require.ErrorIs(t, w.Invalidate(5), ErrEnded)
			}
			require.NoError(t, w.Close())
			r.eventually(t, func() bool { return len(r.ends) == 1 })
		})
		new(recorder).eventually(t, func() bool { return openFiles(t) == files })
	}
	require.Greater(t, die, 40, "few calls of the driver were tried")
}

// TestHang: a call of the driver that does not return costs the guest its process, and the server no more than the
// time limit. So does a process that does not take what it is sent.
func TestHang(t *testing.T) {
	cfg := configOf(t, &fakerm.Driver{Hang: 14})
	cfg.Timeout = 300 * time.Millisecond
	for name, call := range map[string]func(s *Worker) error{
		"a call": func(s *Worker) error { return s.NewSpace(1) },
		"apply": func(s *Worker) error {
			require.NoError(t, unix.Kill(s.pid, unix.SIGSTOP))
			_, err := s.Apply(1, make([]Step, 16*maxSteps))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := new(recorder)
			s, err := Start(cfg, r)
			require.NoError(t, err)
			begin := time.Now()
			require.ErrorIs(t, call(s), ErrEnded)
			require.Less(t, time.Since(begin), 30*time.Second)
			r.eventually(t, func() bool { return len(r.ends) == 1 })
			require.ErrorContains(t, r.ends[0], "did not answer")
			require.NoError(t, s.Close())
		})
	}
}

func TestSandbox(t *testing.T) {
	_, err := Start(configOf(t, &fakerm.Driver{Version: "escape"}), new(recorder))
	require.Error(t, err)
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	require.Len(t, lines, 7)
	for _, line := range lines {
		require.Regexp(t, "permission denied$|operation not permitted$", line)
	}
}

// TestRefusals: the server learns why there are no channels.
func TestRefusals(t *testing.T) {
	for want, d := range map[string]*fakerm.Driver{
		"release 570.1 of the NVIDIA driver":                            {Version: "570.1"},
		"580.1 of the NVIDIA driver was never tried":                    {Version: "580.1"},
		"there is no /dev/nvidiactl":                                    {Missing: map[string]string{"nvidiactl": "missing"}},
		"may not read and write /dev/nvidia0":                           {Missing: map[string]string{"nvidia0": "forbidden"}},
		"architecture 0x170":                                            {Arch: 0x170},
		"make a client: the NVIDIA driver answers insufficient permiss": {Fail: map[int]uint32{1: nvrm.StatusForbidden}},
	} {
		_, err := Start(configOf(t, d), new(recorder))
		require.ErrorContains(t, err, want)
	}
	cfg := configOf(t, new(fakerm.Driver))
	cfg.Minor = 3
	_, err := Start(cfg, new(recorder))
	require.ErrorContains(t, err, "no card nvidia3; its cards: nvidia0")
	if os.Getuid() == 0 {
		for name, want := range map[string]string{"": "card.user is missing", "root": "which is root", "nobody-at-all": "unknown user"} {
			cfg.User = name
			_, err = Start(cfg, new(recorder))
			require.ErrorContains(t, err, want)
		}
	}
}

// TestErrors: an error of the driver arrives as it is, and names how many steps were carried out.
func TestErrors(t *testing.T) {
	s := testDriver(t, new(fakerm.Driver), new(recorder))
	require.NoError(t, s.Register(1, memfd(t, mib), 0, mib))
	require.NoError(t, s.NewSpace(1))
	m := Step{Op: Map, Object: 1, VA: low, Size: page, Page: page}
	n, err := s.Apply(1, []Step{m, m, m})
	require.Equal(t, 1, n)
	require.True(t, nvrm.Is(err, 0x1f), err)
	for _, err := range []error{
		s.NewSpace(1), s.FreeSpace(2), s.Free(2), s.Register(1, memfd(t, mib), 0, mib), s.Register(2, memfd(t, mib), 1, mib),
		s.Enable(0, true), s.ask(999, 0, 0), s.ask(callRegister, 9, 0), s.Free(1),
	} {
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrEnded)
	}
	many := make([]Step, 2*maxSteps+5)
	for i := range many {
		many[i] = Step{Op: Map, Object: 1, VA: 1 << 33, Size: page, Page: page}
		if i&1 == 1 {
			many[i].Op = Unmap
		}
	}
	n, err = s.Apply(1, many)
	require.NoError(t, err)
	require.Equal(t, len(many), n)
}

// TestPause holds which channels run against two bits.
func TestPause(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := new(fakerm.Driver)
		s := testDriver(t, d, new(recorder))
		defer s.Close()
		require.NoError(r, s.Register(1, memfd(t, mib), 0, mib))
		paused, enabled := false, map[uint32]bool{}
		require.NoError(r, s.NewSpace(1))
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			c := rapid.Uint32Range(0, 3).Draw(r, "channel")
			switch on, has := enabled[c]; {
			case rapid.IntRange(0, 2).Draw(r, "what") == 0:
				paused = !paused
				_, err := s.Apply(1, []Step{{Op: map[bool]Op{true: Pause, false: Resume}[paused]}})
				require.NoError(r, err)
			case has:
				require.NoError(r, s.Enable(c, !on))
				enabled[c] = !on
			default:
				_, err := s.NewChannel(c, Channel{Space: 1, Engine: nvrm.Graphics, Entries: 16, Own: 1, USERD: page})
				require.NoError(r, err)
				enabled[c] = true
			}
			running := 0
			for _, on := range enabled {
				if on && !paused {
					running++
				}
			}
			require.Equal(r, running, d.Stats().Running)
		}
	})
}

// TestTogether makes calls and receives events from many goroutines.
func TestTogether(t *testing.T) {
	r := new(recorder)
	s := testDriver(t, new(fakerm.Driver), r)
	require.NoError(t, s.Register(0, memfd(t, mib), 0, mib))
	var all sync.WaitGroup
	for i := range uint32(4) {
		all.Go(func() {
			for range 50 {
				err := errors.Join(s.NewSpace(i), s.Invalidate(i))
				_, e := s.NewChannel(i, Channel{Space: i, Engine: int32(i&2) - 1, Entries: 16, USERD: page * uint64(i+1)})
				err = errors.Join(err, e, s.Enable(i, true), s.FreeChannel(i), s.FreeSpace(i))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	r.eventually(t, func() bool { return slices.Contains(r.engines, -1) })
	require.NoError(t, s.Close())
}

// TestEvents: a channel's end is reported once, and the end of work to those that have channels on the engine.
func TestEvents(t *testing.T) {
	d, a, b := new(fakerm.Driver), new(recorder), new(recorder)
	mine, other := testDriver(t, d, a), testDriver(t, d, b)
	for _, s := range []*Worker{mine, other} {
		require.NoError(t, s.Register(0, memfd(t, mib), 0, mib))
		require.NoError(t, s.Register(1, memfd(t, mib), 0, mib))
		require.NoError(t, s.NewSpace(0))
		for c := range uint32(2) {
			_, err := s.NewChannel(c, Channel{Engine: 2, Entries: 16, Own: c, USERD: page})
			require.NoError(t, err)
		}
	}
	for c := range uint32(2) {
		require.NoError(t, mine.Reset(c))
		a.eventually(t, func() bool { return len(a.stops) > 0 && a.stops[len(a.stops)-1].channel == c })
		require.Error(t, mine.Free(c), "its channel uses it")
		require.NoError(t, other.FreeChannel(c))
	}
	require.NoError(t, mine.Enable(0, true))
	a.eventually(t, func() bool { return len(a.engines) == 1 })
	for _, s := range []*Worker{mine, other} {
		require.NoError(t, s.Close())
		<-s.delivered
	}
	require.Equal(t, []stop{{0, 43, nvrm.Fault{}}, {1, 43, nvrm.Fault{}}}, a.stops)
	require.Empty(t, b.engines)
	require.Empty(t, b.stops)
}

// TestHostile: a process that sends nonsense costs its guest the channels, and the server nothing.
func TestHostile(t *testing.T) {
	files := openFiles(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	for want, send := range map[string]func(c *conn) error{
		"at most":               func(c *conn) error { _, err := c.Write([]byte{0, 0, 0, 1}); return err },
		"are needed":            func(c *conn) error { return c.send([]byte{0, 0, 0, 0, 1}, null) },
		"over":                  func(c *conn) error { return c.send(message(nil, &answer{Kind: completed}), null) },
		"kind 77":               func(c *conn) error { return c.send(message(nil, &answer{Kind: 77}), null) },
		"4096 stopped channels": func(c *conn) error { return c.send(message(nil, &answer{Kind: stopped}), null) },
	} {
		t.Run(want, func(t *testing.T) {
			c, file, err := connect()
			require.NoError(t, err)
			its, err := newConn(file)
			require.NoError(t, err)
			reaped := make(chan struct{})
			close(reaped)
			r := &recorder{stall: make(chan struct{})}
			s := newWorker(c, Config{Timeout: time.Minute, Log: t.Logf}, r, func() {}, reaped, func() string { return "over" })
			for range 2*maxStops + 10 {
				if send(its) != nil {
					break
				}
			}
			close(r.stall)
			its.Close()
			<-s.delivered
			require.LessOrEqual(t, len(r.stops), 2*maxStops)
			require.ErrorIs(t, s.why(), ErrEnded)
			require.ErrorContains(t, s.NewSpace(1), want)
		})
	}
	require.NoError(t, null.Close())
	require.LessOrEqual(t, openFiles(t), files)
}
