package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machines holds a token for each virtual machine that runs. Each keeps one and
// a half processors busy.
var machines = make(chan struct{}, 2)

// Deadlines of a whole test and of one command in the guest. A command takes
// seconds on an idle machine.
const (
	patience     = 20 * time.Minute
	callPatience = 4 * time.Minute
)

// fixture is a machine on a GPU, in a test or in one step of it.
type fixture struct {
	*testserver.PassThrough
	t   *testing.T
	ctx context.Context

	gpu *serve.Device // counts the guest's accesses; only started and virtual set it
}

// claim waits for a free place for a machine.
func claim(t *testing.T) {
	t.Helper()
	labtest.Need(t)
	machines <- struct{}{}
	t.Cleanup(func() { <-machines })
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// start boots a machine on a whole card. Both end with the test.
func start(t *testing.T, cfg testserver.Config) *fixture {
	t.Helper()
	claim(t)
	b := &fixture{t: t, ctx: deadline(t)}
	var err error
	b.PassThrough, err = testserver.New(cfg)
	require.NoError(t, err)
	b.gpu = b.Device
	t.Cleanup(func() {
		if t.Failed() && b.VM != nil {
			t.Log(b.VM.Diagnosis())
		}
		require.NoError(t, b.Close())
	})
	require.NoError(t, b.Boot(b.ctx))
	t.Attr("kernel", b.VM.Kernel()+" under "+b.VM.Accel().Name)
	return b
}

// virtual boots a machine on a virtual GPU, the only one of its card. Both end with the test.
func virtual(t *testing.T, cfg testserver.SharedConfig, gpu serve.GPUConfig, machine lab.Config) (*fixture, *rig.Rig) {
	t.Helper()
	claim(t)
	s := rig.New(t, cfg)
	gpu.Share.Name = "gpu"
	e := s.AddWith(gpu)
	machine.Sockets = []string{e.Socket}
	b := &fixture{t: t, ctx: deadline(t), gpu: e.Device}
	b.PassThrough = &testserver.PassThrough{Card: s.Card, VM: boot(t, machine)}
	return b, s
}

// boot boots a machine, which ends with the test.
func boot(t *testing.T, machine lab.Config) *lab.VM {
	t.Helper()
	vm := labtest.Start(t, machine)
	t.Attr("kernel", vm.Kernel()+" under "+vm.Accel().Name)
	return vm
}

// in is the same machine in a subtest.
func (b *fixture) in(t *testing.T) *fixture {
	c := *b
	c.t = t
	return &c
}

// step is a subtest on the same machine. If it fails, the test ends: later steps
// would find another driver state than they expect.
func (b *fixture) step(name string, f func(b *fixture)) {
	b.t.Helper()
	if !b.attempt(name, f) {
		b.t.FailNow()
	}
}

// attempt is a step whose failure does not affect later steps.
func (b *fixture) attempt(name string, f func(b *fixture)) bool {
	return b.t.Run(name, func(t *testing.T) { f(b.in(t)) })
}

// try runs a command in the guest.
func (b *fixture) try(cmd string, args, result any) error {
	ctx, cancel := context.WithTimeoutCause(b.ctx, callPatience, errors.New("the guest did not answer"))
	defer cancel()
	return b.VM.Agent().Call(ctx, cmd, args, result)
}

// call runs a command in the guest, and fails the test if the command fails.
func (b *fixture) call(cmd string, args, result any) {
	b.t.Helper()
	require.NoError(b.t, b.try(cmd, args, result), cmd)
}

// modprobe loads nouveau, with options besides those of the kernel's command line.
func (b *fixture) modprobe(options ...string) {
	b.t.Helper()
	b.call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau", Options: options}, nil)
}

func (b *fixture) rmmod() {
	b.t.Helper()
	b.call(proto.CmdRmmod, proto.ModprobeArgs{Name: "nouveau"}, nil)
}

// mark is the present end of the guest's kernel log.
func (b *fixture) mark() uint64 {
	b.t.Helper()
	var m proto.MarkResult
	b.call(proto.CmdMark, nil, &m)
	return m.Seq
}

// logAfter returns the guest's kernel log after a mark.
func (b *fixture) logAfter(mark uint64) []lab.LogLine {
	b.t.Helper()
	lines, err := b.VM.KernelLogAfter(b.ctx, mark)
	require.NoError(b.t, err)
	return lines
}

// requireNoHoles fails if the guest accessed a register that the GPU does not
// declare.
func (b *fixture) requireNoHoles() {
	b.t.Helper()
	r := b.gpu.Registers().Report()
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
