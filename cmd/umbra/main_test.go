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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"umbra": main, "umbra-parent": parent})
}

// TestScript runs the command lines in testdata/script. -update is not offered:
// what they print is for people, so changing it is a decision.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waitfor": waitFor,
			"attach":  attach,
			"exits":   exits,
			"gone":    gone,
			"listen":  listen,
			"patch":   patch,
			"signal":  sendSignal,
		},
	})
}

// exits runs a program and wants that exit code.
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

// patience is how long is waited for what comes at all.
const patience = time.Minute

// waitFor waits until a file exists and, if given, contains a text.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: waitfor file [text]")
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if len(args) == 1 {
			_, err = os.Stat(ts.MkAbs(args[0]))
		}
		if err == nil && (len(args) == 1 || strings.Contains(string(data), args[1])) {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("%s did not come: %v", strings.Join(args, " with "), err)
		}
	}
}

// attach does what QEMU does first: it connects, and reads a register. Its
// arguments are the socket and the register's offset and expected value.
func attach(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: attach socket offset value")
	}
	off, err := strconv.ParseUint(args[1], 16, 24)
	ts.Check(err)
	want, err := strconv.ParseUint(args[2], 16, 32)
	ts.Check(err)
	c, err := client.Dial(ts.MkAbs(args[0]), nil)
	// The socket's file is there a moment before it listens. And a process that
	// another script forks at this moment holds the connection before open until
	// it has executed its program; the server refuses us then, before or after we
	// have said something.
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

// gone waits until the server at a control socket has noticed that no client is
// attached any more.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone control")
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

// listen occupies a socket until the script ends; with "stale", it leaves the
// socket's file behind instead.
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

// sendSignal signals the umbra whose JSON output is in a file. (The built-in kill
// knows SIGINT and SIGKILL only.)
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: signal TERM|USR1 file")
	}
	var serving struct {
		PID int `json:"pid"`
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	ts.Check(json.Unmarshal([]byte(line), &serving))
	if serving.PID <= 1 {
		ts.Fatalf("no process id in %s", args[1])
	}
	ts.Check(syscall.Kill(serving.PID, map[string]syscall.Signal{"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1}[args[0]]))
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

// TestTwoServersInOneProcess: nothing is global, so two cards live side by side,
// and ending one leaves the other.
func TestTwoServersInOneProcess(t *testing.T) {
	dir := t.TempDir()
	type running struct {
		end  context.CancelFunc
		code chan int
		out  *bytes.Buffer
	}
	run := func(name, vram string) running {
		ctx, cancel := context.WithCancel(t.Context())
		r := running{cancel, make(chan int, 1), new(bytes.Buffer)}
		go func() {
			r.code <- doMain(ctx, []string{"serve", "--socket", filepath.Join(dir, name), "--vram", vram}, r.out, new(bytes.Buffer))
		}()
		// The socket is there a moment before anybody listens. Who looks is no client.
		require.Eventually(t, func() bool {
			c, err := net.Dial("unix", filepath.Join(dir, name))
			if err == nil {
				c.Close()
			}
			return err == nil
		}, patience, time.Millisecond)
		return r
	}
	vram := func(name string) uint32 {
		c, err := client.Dial(filepath.Join(dir, name), nil)
		require.NoError(t, err)
		defer c.Close()
		mib, err := c.Read32(vfiouser.RegionBAR0, 0x11020c) // VRAM of one partition
		require.NoError(t, err)
		return mib
	}
	defer goleak.VerifyNone(t)
	a, b := run("a", "384MiB"), run("b", "768MiB")
	require.Equal(t, 2*vram("a"), vram("b"))
	attached, err := client.Dial(filepath.Join(dir, "a"), nil)
	require.NoError(t, err)
	defer attached.Close()
	a.end()
	require.Equal(t, exitOK, <-a.code, "a client that stays does not keep the server")
	require.Contains(t, a.out.String(), "2 clients.\n")
	require.NotZero(t, vram("b"))
	b.end()
	require.Equal(t, exitOK, <-b.code)
	require.Contains(t, b.out.String(), "2 clients.")
}

// TestThreeGuests: three virtual GPUs from a file, a guest on each. What one does
// is its own: its registers, its counts, the rules it breaks. GPUs come and go
// beside them.
func TestThreeGuests(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "umbra.yaml")
	text := fmt.Sprintf("control: %s\ncard: {vram: 1GiB}\ngpus:\n", filepath.Join(dir, "control"))
	for _, name := range []string{"a", "b", "c"} {
		text += fmt.Sprintf("- {name: %s, socket: %s, vram: 128MiB}\n", name, filepath.Join(dir, name))
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	ctx, end := context.WithCancel(t.Context())
	code, out, log := make(chan int, 1), new(bytes.Buffer), new(bytes.Buffer)
	go func() { code <- doMain(ctx, []string{"serve", "--json", "--config", file}, out, log) }()

	k := api.NewClient(filepath.Join(dir, "control"))
	require.Eventually(t, func() bool {
		s, err := k.Status(ctx)
		return err == nil && len(s.GPUs) == 3
	}, patience, time.Millisecond)
	guests := make(map[string]*client.Client)
	attach := func(name string) {
		c, err := client.Dial(filepath.Join(dir, name), nil)
		require.NoError(t, err)
		guests[name] = c
		t.Cleanup(func() { c.Close() })
	}
	for _, name := range []string{"a", "b", "c"} {
		attach(name)
	}
	const scratch = 0x001154 // NV_PBUS_INTR_USER0_SCRATCH
	for name, c := range guests {
		require.NoError(t, c.Write32(vfiouser.RegionBAR0, scratch, uint32(name[0])))
	}
	for name, c := range guests {
		v, err := c.Read32(vfiouser.RegionBAR0, scratch)
		require.NoError(t, err)
		require.Equal(t, uint32(name[0]), v, "somebody else's write")
	}
	// The PRAMIN window beyond its memory: a rule, when it is put there, for it is mapped,
	// and each time; and ones to read.
	require.NoError(t, guests["b"].Write32(vfiouser.RegionBAR0, 0x001700, 128<<20>>16))
	for range 5 {
		v, err := guests["b"].Read32(vfiouser.RegionBAR0, 0x700000)
		require.NoError(t, err)
		require.Equal(t, ^uint32(0), v)
	}
	s, err := k.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, api.SetupVirtual, s.Setup)
	for _, g := range s.GPUs {
		require.True(t, g.Attached)
		require.Equal(t, map[string]uint64{"a": 0, "b": 6, "c": 0}[g.Name], g.Broken())
		require.Equal(t, map[string]uint64{"a": 2, "b": 8, "c": 2}[g.Name], g.Traps)
	}

	// One leaves by force, one comes in its place, the others notice nothing.
	_, err = k.Remove(ctx, "b", false)
	require.ErrorContains(t, err, "GPU b: a client is attached; end it, or cut it off with --force")
	r, err := k.Remove(ctx, "b", true)
	require.NoError(t, err)
	require.Equal(t, uint64(1), r.Clients.Served)
	_, err = guests["b"].Read32(vfiouser.RegionBAR0, scratch)
	require.Error(t, err, "its server is gone")
	_, err = k.Add(ctx, api.AddRequest{GPU: "name=d,vram=256MiB,socket=" + filepath.Join(dir, "d")})
	require.NoError(t, err)
	attach("d")
	for _, name := range []string{"a", "c", "d"} {
		v, err := guests[name].Read32(vfiouser.RegionBAR0, scratch)
		require.NoError(t, err)
		require.Equal(t, map[string]uint32{"a": 'a', "c": 'c', "d": 0}[name], v)
	}
	table, err := k.Registers(ctx, "")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "c", "d"}, table.GPUs)

	end()
	require.Equal(t, exitOK, <-code, log.String())
	require.Regexp(t, `msg="guest broke a rule" gpu=b rule=bad_window times=\d swallowed=\d in_all=6`, log.String())
	var report serve.Report
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &report))
	var names []string
	for _, g := range report.GPUs {
		names = append(names, g.Name)
		require.NotEmpty(t, g.Registers.Blocks)
		require.NotEmpty(t, g.Counts)
	}
	require.Equal(t, []string{"a", "c", "d"}, names)
}

// TestReadmeListsEveryOption: the page people read says what there is, and its
// default.
func TestReadmeListsEveryOption(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	defaults := config.Defaults()
	flags := defaults.Config.FlagNames()
	for path, value := range defaults.Config.Values() {
		flag := flags[path]
		row := regexp.MustCompile("(?m)^\\| `--(\\[no-\\])?" + flag + "[ `].*$").FindString(string(page))
		require.NotEmpty(t, row, "no row for --%s", flag)
		require.Contains(t, row, "`"+path+"`")
		if text := fmt.Sprint(value); text != "" {
			require.Contains(t, row, "| `"+text+"` |")
		}
	}
	for key := range new(config.GPU).Values() {
		key, _, _ = strings.Cut(key, ".") // a section's keys stand in its row
		require.Contains(t, string(page), "\n| `"+key+"` |", "no row for a virtual GPU's %s", key)
	}
}

// TestFlagsAndFileAgree: every option of the file has a flag.
func TestFlagsAndFileAgree(t *testing.T) {
	parser, err := kong.New(new(commands), kong.Exit(func(int) {}))
	require.NoError(t, err)
	ctx, err := parser.Parse([]string{"serve"})
	require.NoError(t, err)
	flags := make(map[string]bool)
	for _, f := range ctx.Flags() {
		flags[f.Name] = true
	}
	defaults := config.Defaults()
	for path, flag := range defaults.Config.FlagNames() {
		require.True(t, flags[flag], "no flag for %s", path)
	}
}

// TestHelpTellsBounds: what a flag may be is where people look for the flag, and what is told
// there is what is taken.
func TestHelpTellsBounds(t *testing.T) {
	out := new(bytes.Buffer)
	require.Equal(t, exitOK, doMain(t.Context(), []string{"serve", "--help"}, out, out))
	help := strings.Join(strings.Fields(out.String()), " ") // lines are broken anywhere
	for flag, bounds := range map[string]string{
		"table-rate": "512MiB; 1MiB to 1TiB", "map-runs": "2048; 8 to 16384", "map-aliases": "1024; 1 to 65536",
		"map-moves": "1024; 64 to 65536", "vram": "512MiB; 64MiB to 6GiB",
	} {
		require.Regexp(t, "--"+flag+"=[A-Z]+ [^=]*\\(default: "+bounds+"\\)", help)
		_, within, _ := strings.Cut(bounds, "; ")
		log := new(bytes.Buffer)
		require.Equal(t, exitUsage, doMain(t.Context(), []string{"serve", "--socket", "x", "--" + flag, "nonsense"}, log, log))
		require.Contains(t, log.String(), "umbra: --"+flag+`: "nonsense" is not a `)
		require.Contains(t, log.String(), "; it must be "+within+"\n")
	}
}
