package gate

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// Addresses in a programmer's space, of a page each.
const (
	loopVA   = 0x1000_0000
	timesVA  = 0x1001_0000
	argsVA   = 0x1002_0000
	resultVA = 0x1003_0000
	backVA   = 0x1004_0000
)

const threads = 64

// times stores each thread's number times an argument, after as many turns of a loop.
const times = `
	mov b32 $r0 $tidx
	mov b32 $r1 $r0
loop:
	sub b32 $r1 $r1 0x1
	set $p0 0x1 gt s32 $r1 0x0
	$p0 bra loop
	mul $r1 u32 $r0 u32 c0[0x0]
	shl b32 $r2 $r0 clamp 0x2
	add b32 $r2 $r2 0x10030000
	st b32 wb g[$r2] $r1
	exit
`

// programmer is a guest with a channel that runs programs.
type programmer struct {
	*rig.Guest
	t            *testing.T
	ch           *guest.Channel
	args, result *guest.Buffer
	back         *guest.Buffer
	rounds       uint32
}

func addProgrammer(t *testing.T, s *rig.Rig, name string) *programmer {
	p := &programmer{t: t, Guest: s.Join(aggregator.GuestConfig{Name: name, Map: aperture.MapAll})}
	buffer := func(va uint64, text string) *guest.Buffer {
		code, err := isa.Assemble(text)
		require.NoError(t, err)
		raw := make([]byte, 0, 4096)
		for _, w := range code {
			raw = binary.LittleEndian.AppendUint64(raw, w)
		}
		b := p.Buffer(va, 4096, guest.Small)
		require.NoError(t, b.Write(0, raw[:4096]))
		return b
	}
	buffer(loopVA, "bra 0x0")
	buffer(timesVA, times)
	p.args, p.result, p.back = buffer(argsVA, ""), buffer(resultVA, ""), buffer(backVA, "")
	p.ch = p.channel(1)
	return p
}

func (p *programmer) channel(id int) *guest.Channel {
	ch := p.Channel(id, guest.ChannelConfig{})
	require.NoError(p.t, ch.Submit(new(guest.Push).SetObject(push.Compute).Bind(guest.CE0).Words...))
	require.NoError(p.t, ch.Finish())
	return ch
}

func (p *programmer) launch(ch *guest.Channel, code uint64) *guest.Push {
	return new(guest.Push).Launch(push.Compute.Subchan, push.Launch{Code: code, Blocks: 1, Threads: threads, Constants: argsVA})
}

// round runs the program that ends, copies its results, and looks at them.
func (p *programmer) round(ch *guest.Channel) {
	p.rounds++
	require.NoError(p.t, p.args.Write(0, binary.LittleEndian.AppendUint32(nil, p.rounds)))
	require.NoError(p.t, ch.Submit(p.launch(ch, timesVA).Words...))
	require.NoError(p.t, ch.Finish())
	require.NoError(p.t, ch.Submit(new(guest.Push).Copy(guest.CE0, backVA, resultVA, 4*threads).Words...))
	require.NoError(p.t, ch.Finish())
	got := make([]byte, 4*threads)
	require.NoError(p.t, p.back.Read(0, got))
	for i := range uint32(threads) {
		require.Equal(p.t, i*p.rounds, binary.LittleEndian.Uint32(got[4*i:]), "thread %d of round %d", i, p.rounds)
	}
}

// TestEndlessProgram: a program that does not end costs its channel, when it has run for
// limits.request. Until then and afterwards other guests' programs and copies go on, and so does
// another channel of the same guest.
func TestEndlessProgram(t *testing.T) {
	cfg := sched.Default()
	cfg.Policy, cfg.Watchdog.Limit, cfg.Watchdog.Grace = sched.Credit, 400*time.Millisecond, 300*time.Millisecond
	s := rig.NewScheduled(t, 0, cfg)
	bad, good := addProgrammer(t, s, "bad"), addProgrammer(t, s, "good")
	other := bad.channel(2)
	bad.round(other)
	good.round(good.ch)

	require.NoError(t, bad.ch.Submit(bad.launch(bad.ch, loopVA).Words...))
	before := good.rounds
	for s.Agg.ScheduleCounts().Runaways == 0 {
		good.round(good.ch)
	}
	require.Greater(t, good.rounds, before+3, "it had to wait for the end of the endless program")
	var stopped *guest.ChannelError
	require.ErrorAs(t, bad.ch.Finish(), &stopped)
	require.Equal(t, 1, stopped.Fault.Channel)
	bad.round(other)
	good.round(good.ch)
	require.EqualValues(t, 1, bad.GPU.Stats().Runaways.Load())
	require.Zero(t, good.GPU.Stats().Runaways.Load())
	require.Empty(t, bad.GPU.QuarantineReason())

	require.NoError(t, bad.ch.Close())
	bad.ch = bad.channel(1)
	bad.round(bad.ch)
}
