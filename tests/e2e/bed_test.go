package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machines holds a token for each virtual machine that runs. Each keeps a
// processor and a half busy.
var machines = make(chan struct{}, 2)

// What hangs ends after these. A command of the guest's takes seconds.
const (
	patience     = 10 * time.Minute
	callPatience = 90 * time.Second
)

// bed is a stand in a test or in one step of it.
type bed struct {
	*stand.Stand
	t   *testing.T
	ctx context.Context
}

// start boots a machine on a card; both end with the test.
func start(t *testing.T, cfg stand.Config) *bed {
	t.Helper()
	b := newBed(t, cfg)
	b.boot()
	return b
}

// newBed makes a card without a machine, and keeps a machine's place free.
func newBed(t *testing.T, cfg stand.Config) *bed {
	t.Helper()
	labtest.Need(t)
	machines <- struct{}{}
	t.Cleanup(func() { <-machines })
	s, err := stand.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(func() {
		if t.Failed() && s.VM != nil {
			t.Log(s.VM.Diagnosis())
		}
		require.NoError(t, s.Close())
		cancel()
	})
	return &bed{s, t, ctx}
}

func (b *bed) boot() {
	b.t.Helper()
	require.NoError(b.t, b.Boot(b.ctx))
	b.t.Attr("kernel", b.VM.Kernel()+" under "+b.VM.Accel().Name)
}

// step is a subtest on the same machine. The steps after one that failed are
// not run: they would find another driver state than the one they are made for.
func (b *bed) step(name string, f func(b *bed)) {
	b.t.Helper()
	if !b.attempt(name, f) {
		b.t.FailNow()
	}
}

// attempt is a step whose failure does not concern the steps after it.
func (b *bed) attempt(name string, f func(b *bed)) bool {
	return b.t.Run(name, func(t *testing.T) { f(&bed{b.Stand, t, b.ctx}) })
}

// try asks the guest.
func (b *bed) try(cmd string, args, result any) error {
	ctx, cancel := context.WithTimeout(b.ctx, callPatience)
	defer cancel()
	return b.VM.Agent().Call(ctx, cmd, args, result)
}

// call asks the guest, and fails the test unless it says that all held.
func (b *bed) call(cmd string, args, result any) {
	b.t.Helper()
	require.NoError(b.t, b.try(cmd, args, result))
}

// modprobe loads nouveau, with options on top of those of the command line.
func (b *bed) modprobe(options ...string) {
	b.t.Helper()
	b.call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau", Options: options}, nil)
}

func (b *bed) rmmod() {
	b.t.Helper()
	b.call(proto.CmdRmmod, proto.ModprobeArgs{Name: "nouveau"}, nil)
}

// mark is a place in the guest's kernel log.
func (b *bed) mark() uint64 {
	b.t.Helper()
	var m proto.MarkResult
	b.call(proto.CmdMark, nil, &m)
	return m.Seq
}

// logAfter is what the guest's kernel said after a mark.
func (b *bed) logAfter(mark uint64) []lab.LogLine {
	b.t.Helper()
	var res proto.KmsgResult
	b.call(proto.CmdKmsg, proto.KmsgArgs{AfterSeq: &mark, Limit: 1 << 16}, &res)
	require.False(b.t, res.More)
	lines := make([]lab.LogLine, 0, len(res.Records))
	for _, r := range res.Records {
		lines = append(lines, lab.LogLine{
			Level: lab.Level(r.Level), Facility: r.Facility,
			Time: time.Duration(r.USec) * time.Microsecond, Text: r.Text,
		})
	}
	return lines
}

// requireNoHoles wants every register that the guest has touched since the
// registers were built to be a declared one.
func (b *bed) requireNoHoles() {
	b.t.Helper()
	r, err := b.Card.Registers().Report(mmio.ByCount)
	require.NoError(b.t, err)
	require.Empty(b.t, r.Missed.Holes)
	require.Zero(b.t, r.Missed.Outside)
	require.Zero(b.t, r.Missed.OddSize)
	require.NotZero(b.t, r.Reads+r.Writes)
}

func texts(lines []lab.LogLine) string {
	var s strings.Builder
	for _, l := range lines {
		s.WriteString(l.String() + "\n")
	}
	return s.String()
}
