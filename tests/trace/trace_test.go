// Package trace tests recordings of guests: what is in them, and what becomes of them on a fresh card.
package trace

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	events "github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/cmd/trace"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// start starts a server of a GPU a, of which all is trapped.
func start(t testing.TB, more string) (s *serve.Server, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "a.sock")
	o := config.Default()
	require.NoError(t, o.Parse("test", []byte(fmt.Sprintf("card: {vram: 256MiB}\ngpus: [{name: a, vram: 64MiB, bar-map: none, socket: %s}]\n%s", socket, more))))
	require.NoError(t, o.Check())
	plan, err := serve.NewPlan(o, false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s, err = plan.Start(nil)
	require.NoError(t, err)
	s.Version = "test"
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, socket
}

// begin begins a recording, which ends with the function that it returns.
func begin(t testing.TB, s *serve.Server, r api.TraceRequest, w io.Writer) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, began := make(chan error, 1), &firstWrite{w: w, wrote: make(chan struct{})}
	go func() { done <- s.Trace(ctx, r, began) }()
	select {
	case <-began.wrote:
	case err := <-done:
		done <- err
	}
	return func() error {
		time.Sleep(20 * time.Millisecond) // some ticks of the recording
		cancel()
		return <-done
	}
}

type firstWrite struct {
	w     io.Writer
	wrote chan struct{}
	n     int
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.n++; f.n == 1 {
		close(f.wrote)
	}
	return f.w.Write(p)
}

// probe is what a driver does when it finds a GPU, and a copy.
func probe(t *testing.T, socket string) {
	t.Helper()
	g := rig.Attach(t, socket, guest.Config{RAM: 1 << 20, Interrupts: guest.None})
	g.Buffer(0x20_0000, 128<<10, guest.Big)
	ch := g.Channel(1, guest.ChannelConfig{})
	require.NoError(t, ch.Copy(guest.CopyEngines[0], 0x21_0000, 0x20_0000, 4096))
	f, err := ch.Fence()
	require.NoError(t, err)
	require.NoError(t, g.Wait(f))
}

// recordProbe records a probe from before it attaches.
func recordProbe(t *testing.T, r api.TraceRequest) []byte {
	t.Helper()
	s, socket := start(t, "")
	var file bytes.Buffer
	end := begin(t, s, r, &file)
	probe(t, socket)
	require.ErrorIs(t, end(), context.Canceled)
	return file.Bytes()
}

func open(t *testing.T, file []byte) *trace.File {
	t.Helper()
	f, err := trace.Open(bytes.NewReader(file), serve.RegistersOf)
	require.NoError(t, err)
	return f
}

func replay(t *testing.T, file []byte) trace.Replayed {
	t.Helper()
	f := open(t, file)
	d, end, err := serve.Fresh(&f.Header, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()
	r, err := f.Replay(0, d)
	require.NoError(t, err)
	return r
}

// TestReplay: what a driver did to a GPU does the same to a fresh one, and a planted difference is named, as diff names it.
func TestReplay(t *testing.T) {
	file := recordProbe(t, api.TraceRequest{GPU: "a"})
	r := replay(t, file)
	require.Empty(t, r.Difference)
	require.Greater(t, r.Accesses, 500)

	begins := bytes.IndexByte(file, '\n') + 1
	// altered is the recording with other values for reads of a register.
	altered := func(unit uint8, register uint64, value func(uint64) uint64) []byte {
		b := bytes.Clone(file)
		for at := begins; at < len(b); at += events.EventSize {
			var e events.Event
			if e.Parse(b[at:]); e.Kind == events.Read && e.Unit == unit && e.Addr == register {
				e.Value = value(e.Value)
				e.Append(b[:at])
			}
		}
		return b
	}
	const boot0, pmcIntr = 0, 0x100
	beforeInterrupts := altered(0, pmcIntr, func(uint64) uint64 { return 0 })
	require.False(t, bytes.Equal(file, beforeInterrupts))
	require.Equal(t, r, replay(t, beforeInterrupts))
	const gpGet = gf100.USERDSize + gf100.USERDGPGet // of channel 1, in the BAR1
	otherMemory := altered(1, gpGet, func(v uint64) uint64 { return v + 1 })
	require.False(t, bytes.Equal(file, otherMemory))
	require.Equal(t, r, replay(t, otherMemory))
	planted := altered(0, boot0, func(v uint64) uint64 { return v ^ 0x10 })
	qemu := events.Event{Kind: events.Write, Unit: 7, Addr: 4, Size: 2} // as it does to the configuration before it resets the GPU
	asQEMU := slices.Insert(bytes.Clone(planted), begins, qemu.Append(nil)...)
	require.Regexp(t, `^access \d+: R4 000000 NV_PMC_BOOT_0 = 0c0000b3 .*; this card reads 0c0000a3$`, replay(t, asQEMU).Difference)
	var text strings.Builder
	differ, err := trace.Diff(&text, open(t, file), open(t, planted), 0, 0)
	require.NoError(t, err)
	require.True(t, differ)
	require.Contains(t, text.String(), "The first difference, after ")
	require.Contains(t, text.String(), "A: R4 000000 NV_PMC_BOOT_0 = 0c0000a3")
	require.Contains(t, text.String(), "B: R4 000000 NV_PMC_BOOT_0 = 0c0000b3")
	require.Contains(t, text.String(), "Each register has the same count in both.")
}

// TestBadFiles: what is no recording, or one of another version or chip, is refused by an error that names it.
func TestBadFiles(t *testing.T) {
	file := recordProbe(t, api.TraceRequest{})
	header, rest, _ := strings.Cut(string(file), "\n")
	for _, c := range []struct{ text, want string }{
		{"", "not a recording"},
		{strings.Replace(string(file), "umbra-trace 1", "umbra-trace 2", 1), "a recording of version 2; this program reads version 1"},
		{strings.Replace(header, `"chip":"gf100"`, `"chip":"nv50"`, 1) + "\n" + rest, `no chip "nv50"`},
		{"umbra-trace 1 {}\n", "a recording of 0 GPUs"},
	} {
		_, err := trace.Open(strings.NewReader(c.text), serve.RegistersOf)
		require.ErrorContains(t, err, c.want)
	}
	damaged := open(t, []byte(header+"\n"+strings.Repeat("\xff", 3*events.EventSize)))
	_, err := damaged.Stats("")
	require.ErrorContains(t, err, "the file is damaged")
	cut := open(t, file[:len(file)-5])
	require.NoError(t, cut.Show(io.Discard, ""))
	require.True(t, cut.Cut)

	other := strings.Replace(header, `"chip":"gf100"`, `"chip":"gh100"`, 1) + "\n" + rest
	_, err = trace.Diff(io.Discard, open(t, file), open(t, []byte(other)), 0, 0)
	require.ErrorContains(t, err, "is of a gh100")
	require.ErrorContains(t, err, "with a gf100")
}

// FuzzFile: no bytes after a header do more than fail.
func FuzzFile(f *testing.F) {
	h := trace.Header{GPUs: []trace.GPU{{Name: "a", Chip: "gf100"}}}
	for k := range byte(20) {
		e := events.Event{Kind: events.Kind(k), Value: 1 << 40, Size: 200, Unit: 200, Channel: 9999}
		f.Add(e.Append(nil))
	}
	space, err := serve.RegistersOf("gf100")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		var head bytes.Buffer
		require.NoError(t, h.Write(&head))
		file := append(head.Bytes(), data...)
		all := func() *trace.File {
			r, err := trace.Open(bytes.NewReader(file), func(string) (*mmio.Space, error) { return space, nil })
			require.NoError(t, err)
			return r
		}
		_ = all().Show(io.Discard, "")
		_ = all().Mmiotrace(io.Discard, 0)
		_ = all().Perfetto(io.Discard, "")
		_ = all().Coverage(io.Discard, 0, true)
		_, _ = all().Stats("")
		_, _ = trace.Diff(io.Discard, all(), all(), 0, 0)
	})
}

const scheduled = "scheduler: {policy: credit}\nserver: {inject: true}\n"

// recordProgram records a program, a copy that faults, and what the server counted of both.
func recordProgram(t *testing.T) (file []byte, counted api.GPUReport) {
	t.Helper()
	s, socket := start(t, scheduled)
	var b bytes.Buffer
	end := begin(t, s, api.TraceRequest{GPU: "a", Pushbuffers: true}, &b)
	_, err := s.Show("a")
	require.NoError(t, err)
	var refused *api.Error
	require.ErrorAs(t, s.Trace(t.Context(), api.TraceRequest{}, io.Discard), &refused)
	require.Equal(t, "GPU a is being recorded; end that recording first", refused.Message)

	g := rig.Attach(t, socket, guest.Config{RAM: 1 << 20})
	code := g.Buffer(0x20_0000, 4096, guest.Small)
	words, err := isa.Assemble("mov b32 $r0 0x0\nexit")
	require.NoError(t, err)
	for i, w := range words {
		require.NoError(t, code.Write(uint64(8*i), binary.LittleEndian.AppendUint64(nil, w)))
	}
	ch := g.Channel(1, guest.ChannelConfig{})
	launch := push.Launch{Code: 0x20_0000, Blocks: 1, Threads: 32}
	require.NoError(t, ch.Submit(new(guest.Push).SetObject(push.Compute).Launch(push.Compute.Subchan, launch).Words...))
	require.NoError(t, ch.Finish())
	time.Sleep(20 * time.Millisecond) // the pushbuffer is read before another one is in its place
	require.NoError(t, ch.Copy(guest.CopyEngines[0], 0x9999_0000, 0x20_0000, 4096))
	require.Error(t, ch.Finish())
	require.ErrorIs(t, end(), context.Canceled)
	counted, err = s.Show("a")
	require.NoError(t, err)
	return b.Bytes(), counted
}

// TestForms: a recording of a program has all that happened; each form shows it, and its counts are the server's.
func TestForms(t *testing.T) {
	file, report := recordProgram(t)
	stats, err := open(t, file).Stats("a")
	require.NoError(t, err)
	require.Zero(t, stats.Lost)
	var traps uint64
	for _, c := range stats.Places {
		traps += c.Reads + c.Writes
	}
	require.Equal(t, report.Traps, traps)
	require.Equal(t, report.Counts["mmu_faults"], stats.Kinds["fault"])
	for _, kind := range []string{"submission", "entry", "words", "code", "engine", "forward", "interrupt", "fault", "reset"} {
		require.NotZero(t, stats.Kinds[kind], kind)
	}
	require.NotZero(t, stats.Methods["FERMI_COMPUTE_A.LAUNCH"])
	require.NotZero(t, stats.Engines["a graphics"])

	var text strings.Builder
	require.NoError(t, open(t, file).Show(&text, ""))
	for _, want := range []string{
		"W4 002270 NV_PFIFO_RUNLIST_BASE = ", "FERMI_COMPUTE_A.LAUNCH = ", "NV906F_SET_OBJECT = 000090c0 FERMI_COMPUTE_A",
		"program 0000200008: 8000000000001de7  exit", "fault on engine ", "write of 0x99990000, no page", "interrupt high",
	} {
		require.Contains(t, text.String(), want)
	}

	text.Reset()
	require.NoError(t, open(t, file).Mmiotrace(&text, 0))
	head := "VERSION 20070824\nPCIDEV 0100 10de06d8 10 10000000 18000000 0 20000000 0 24000000 0 1000000 8000000 0 4000000 0 80 0 umbra\nMAP 0.000000 1 0x10000000 "
	require.Equal(t, head, text.String()[:len(head)])
	require.Regexp(t, `(?m)^R 4 \d+\.\d{6} 1 0x10000000 0xc0000a3 0x0 0$`, text.String())

	text.Reset()
	require.NoError(t, open(t, file).Perfetto(&text, "a"))
	var timeline struct {
		TraceEvents []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(text.String()), &timeline))
	var slices uint64
	for _, e := range timeline.TraceEvents {
		if strings.HasPrefix(e.Name, "read ") || strings.HasPrefix(e.Name, "write ") {
			slices++
		}
	}
	require.Equal(t, traps, slices)

	text.Reset()
	require.NoError(t, open(t, file).Coverage(&text, 0, false))
	require.Regexp(t, `(?m)^2 +\d+ +instructions  sm_20$`, text.String())
	require.Regexp(t, `(?m)^\d+ +\d+ +methods +90c0 FERMI_COMPUTE_A$`, text.String())
	require.Regexp(t, `(?m)^[1-9]\d* +\d+ +registers +PFIFO$`, text.String())
}

// slow is a reader that stands still until it is let go.
type slow struct {
	bytes.Buffer
	n  int
	on chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	if s.n++; s.n == 2 {
		<-s.on
	}
	return s.Buffer.Write(p)
}

// TestSlowReader: a guest goes on while nobody takes its events. The recording says how many were lost, and where.
func TestSlowReader(t *testing.T) {
	s, socket := start(t, "")
	file := &slow{on: make(chan struct{})}
	end := begin(t, s, api.TraceRequest{GPU: "a"}, file)
	c, err := client.Dial(socket, nil)
	require.NoError(t, err)
	defer c.Close()
	const reads = 100_000
	for range reads {
		_, err := c.Read32(vfiouser.RegionBAR0, 0)
		require.NoError(t, err)
	}
	close(file.on)
	require.ErrorIs(t, end(), context.Canceled)
	stats, err := open(t, file.Bytes()).Stats("")
	require.NoError(t, err)
	require.NotZero(t, stats.Lost)
	require.Equal(t, uint64(reads), stats.Kinds["read"]+stats.Lost)
	require.Contains(t, replay(t, file.Bytes()).Difference, "the recording lost ")
}

// full is a disk that is full after the header.
type full struct{ n int }

func (f *full) Write(p []byte) (int, error) {
	if f.n++; f.n > 1 {
		return 0, unix.ENOSPC
	}
	return len(p), nil
}

// TestEnds: a recording ends with its time, its disk and its GPU; then there may be another.
func TestEnds(t *testing.T) {
	s, socket := start(t, "")
	require.NoError(t, s.Trace(t.Context(), api.TraceRequest{For: time.Millisecond}, io.Discard))
	end := begin(t, s, api.TraceRequest{}, new(full))
	probe(t, socket)
	require.ErrorIs(t, end(), unix.ENOSPC)
	end = begin(t, s, api.TraceRequest{}, io.Discard)
	_, err := s.Remove("a", true)
	require.NoError(t, err)
	require.NoError(t, end())
}
