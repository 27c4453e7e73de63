package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"umbra": main, "umbra-parent": parent})
}

// TestScript runs the command lines in testdata/script.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waitfor":  waitFor,
			"attach":   attach,
			"exits":    exits,
			"waitfree": waitFree,
			"listen":   listen,
			"patch":    patch,
			"signal":   sendSignal,
		},
	})
}

// exits runs a program, which must end with the exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	err, code := ts.Exec(args[1], args[2:]...), 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// patience bounds waits for events that must come.
const patience = time.Minute

// waitFor waits until a file exists and, if given, contains a text in a whole line.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: waitfor file [text]")
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if len(args) == 1 {
			_, err = os.Stat(ts.MkAbs(args[0]))
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		if err == nil && (len(args) == 1 || bytes.Contains(whole, []byte(args[1]))) {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("%s did not come: %v", strings.Join(args, " with "), err)
		}
	}
}

// attach connects as QEMU does, and reads a register. Its arguments are the socket,
// and the register's offset and expected value.
func attach(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: attach socket offset value")
	}
	off, err := strconv.ParseUint(args[1], 16, 24)
	ts.Check(err)
	want, err := strconv.ParseUint(args[2], 16, 32)
	ts.Check(err)
	c, err := client.Dial(ts.MkAbs(args[0]), nil)
	// The server may not listen yet. It also refuses clients while a process that
	// another script forked still holds the last client's connection.
	refusals := []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF}
	retry := func() bool { return slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }) }
	for began := time.Now(); retry() && time.Since(began) < patience; {
		time.Sleep(5 * time.Millisecond)
		c, err = client.Dial(ts.MkAbs(args[0]), nil)
	}
	ts.Check(err)
	defer c.Close()
	got, err := c.Read32(vfiouser.RegionBAR0, off)
	ts.Check(err)
	if uint64(got) != want {
		ts.Fatalf("register %06x reads %08x, want %08x", off, got, want)
	}
}

// waitFree waits until the server at a control socket has no attached client.
func waitFree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfree control")
	}
	attached := func(g api.GPU) bool { return g.Attached }
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		s, err := api.NewClient(ts.MkAbs(args[0])).Status(context.Background())
		ts.Check(err)
		if !slices.ContainsFunc(s.GPUs, attached) {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("a client stays attached: %+v", s.GPUs)
		}
	}
}

// listen listens on a socket until the script ends; with "stale", it stops at once
// and leaves the socket's file behind.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: ts.MkAbs(args[0]), Net: "unix"})
	ts.Check(err)
	if len(args) > 1 && args[1] == "stale" {
		l.SetUnlinkOnClose(false)
		ts.Check(l.Close())
		return
	}
	ts.Defer(func() { l.Close() })
}

// sendSignal sends a signal to the umbra whose JSON output is in a file. The built-in
// kill knows only SIGINT and SIGKILL.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: signal TERM|USR1|HUP file")
	}
	var serving struct {
		PID int `json:"pid"`
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	ts.Check(json.Unmarshal([]byte(line), &serving))
	if serving.PID <= 1 {
		ts.Fatalf("no process id in %s", args[1])
	}
	ts.Check(syscall.Kill(serving.PID, map[string]syscall.Signal{"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "HUP": syscall.SIGHUP}[args[0]]))
}

// patch changes one byte of a file.
func patch(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: patch file offset byte")
	}
	off, err := strconv.ParseUint(args[1], 16, 32)
	ts.Check(err)
	b, err := strconv.ParseUint(args[2], 16, 8)
	ts.Check(err)
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	data[off] = byte(b)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// here is umbra serve in this process.
type here struct {
	t        *testing.T
	cancel   context.CancelFunc
	code     chan int
	out, log bytes.Buffer
}

// serveHere starts umbra serve. Its caller ends it.
func serveHere(t *testing.T, args ...string) *here {
	ctx, cancel := context.WithCancel(t.Context())
	h := &here{t: t, cancel: cancel, code: make(chan int, 1)}
	go func() { h.code <- doMain(ctx, append([]string{"serve"}, args...), &h.out, &h.log) }()
	return h
}

// end ends the server, which must succeed, and returns the lines of its standard output.
func (h *here) end() []string {
	h.cancel()
	require.Equal(h.t, exitOK, <-h.code, h.log.String())
	return strings.Split(strings.TrimSpace(h.out.String()), "\n")
}

// controlled returns a client of the control socket at path, once the server has its GPUs.
func controlled(t *testing.T, path string, gpus int) *api.Client {
	k := api.NewClient(path)
	require.Eventually(t, func() bool {
		s, err := k.Status(t.Context())
		return err == nil && len(s.GPUs) == gpus
	}, patience, time.Millisecond)
	return k
}

// TestThreeGuests: registers, counts and broken rules are per GPU. A GPU is removed by force and another
// added while the others go on.
func TestThreeGuests(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Chdir(t.TempDir())
	server, ctx := serveHere(t, "--json", "--vram", "1GiB", "--control", "control",
		"--gpu", "name=a,socket=a,vram=128MiB", "--gpu", "name=b,socket=b,vram=128MiB", "--gpu", "name=c,socket=c,vram=128MiB"), t.Context()
	k := controlled(t, "control", 3)
	guests := make(map[string]*client.Client)
	attach := func(names ...string) {
		for _, name := range names {
			c, err := client.Dial(name, nil)
			require.NoError(t, err)
			guests[name] = c
			t.Cleanup(func() { c.Close() })
		}
	}
	const scratch = 0x001154 // NV_PBUS_INTR_USER0_SCRATCH
	read := func(name string, at uint64) uint32 {
		t.Helper()
		v, err := guests[name].Read32(vfiouser.RegionBAR0, at)
		require.NoError(t, err)
		return v
	}
	attach("a", "b", "c")
	for name, c := range guests {
		require.NoError(t, c.Write32(vfiouser.RegionBAR0, scratch, uint32(name[0])))
	}
	for name := range guests {
		require.EqualValues(t, name[0], read(name, scratch), "another guest wrote it")
	}
	// The PRAMIN window beyond its memory reads as ones. It breaks a rule when it is
	// moved, because it is mapped, and at each read.
	require.NoError(t, guests["b"].Write32(vfiouser.RegionBAR0, 0x001700, 128<<20>>16))
	for range 5 {
		require.Equal(t, ^uint32(0), read("b", 0x700000))
	}
	s, err := k.Status(ctx)
	require.NoError(t, err)
	for _, g := range s.GPUs {
		require.True(t, g.Attached)
		require.Equal(t, os.Getpid(), g.ClientPID)
		require.NotEmpty(t, g.ClientUser)
		require.Equal(t, map[string]uint64{"a": 0, "b": 6, "c": 0}[g.Name], g.RulesBroken["bad_window"])
		require.Equal(t, map[string]uint64{"a": 2, "b": 8, "c": 2}[g.Name], g.Traps)
	}

	_, err = k.Remove(ctx, "b", false)
	require.ErrorContains(t, err, "GPU b: a client is attached; end it, or disconnect it with --force")
	r, err := k.Remove(ctx, "b", true)
	require.NoError(t, err)
	require.Equal(t, uint64(1), r.Clients)
	_, err = guests["b"].Read32(vfiouser.RegionBAR0, scratch)
	require.Error(t, err, "its server is gone")
	_, err = k.Add(ctx, api.AddRequest{GPU: "name=d,vram=256MiB,socket=d"})
	require.NoError(t, err)
	attach("d")
	for name, want := range map[string]uint32{"a": 'a', "c": 'c', "d": 0} {
		require.Equal(t, want, read(name, scratch))
	}
	lines := server.end()
	require.Regexp(t, `msg="guest broke a rule" gpu=b rule=bad_window count=\d total=6`, server.log.String())
	var report api.Report
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &report))
	var names []string
	for _, g := range report.GPUs {
		names = append(names, g.Name)
	}
	require.Equal(t, []string{"a", "c", "d"}, names)
}

// TestReloadCutsNoGuest: a GPU that left the file stays while its client is attached, and goes with a later reload.
func TestReloadCutsNoGuest(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("f.yaml", []byte("gpus: [{name: a, socket: a, vram: 64MiB}]\n"), 0o600))
	server, ctx := serveHere(t, "--control", "control", "--config", "f.yaml"), t.Context()
	k := controlled(t, "control", 1)
	c, err := client.Dial("a", nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("f.yaml", nil, 0o600))
	for range 2 {
		r, err := k.Reload(ctx)
		require.NoError(t, err)
		require.Equal(t, []api.ReloadStep{{What: "gpu a", Refused: "GPU a: a client is attached; end it, or disconnect it with --force"}}, r.Steps)
	}
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		s, err := k.Status(ctx)
		return err == nil && !s.GPUs[0].Attached
	}, patience, time.Millisecond)
	r, err := k.Reload(ctx)
	require.NoError(t, err)
	require.Equal(t, []api.ReloadStep{{What: "gpu a", Done: "removed"}}, r.Steps)
	controlled(t, "control", 0)
	server.end()
}
