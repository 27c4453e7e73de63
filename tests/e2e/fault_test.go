package e2e

import (
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// hopperOffences are those that a GH100's kernel is told of by GSP.
var hopperOffences = []offence{
	{true, "ce-read", mmuFaults, "gsp"},
	{true, "ce-write", mmuFaults, "gsp"},
	{false, "semaphore", mmuFaults, "gsp"},
}

// offence is an error of a guest program, and how the card must count it.
type offence struct {
	gate     bool
	what     string
	seen     string // the count that it adds to
	reporter string // the interrupt that reports it
}

var offences = []offence{
	{true, "m2mf-read", mmuFaults, "mmu"},
	{false, "m2mf-write", mmuFaults, "mmu"},
	{false, "ce-read", mmuFaults, "mmu"},
	{true, "ce-write", mmuFaults, "mmu"},
	{false, "semaphore", mmuFaults, "mmu"},
	{true, "host-method", pbdmaErrors, "pbdma"},
	{false, "empty-subchannel", pbdmaErrors, "pbdma"},
	{false, "bad-header", pbdmaErrors, "pbdma"},
	{false, "garbage", pbdmaErrors, "pbdma"},
	{true, "engine-method", engineErrors, "pgraph"},
	{false, "engine-class", engineErrors, "pgraph"},
}

// offend commits each offence while another process copies. The guest program checks
// by its kernel's own rules whether the channel must die, with which errno and log;
// that the copies went on; and that a new client works.
func (b *fixture) offend(offences []offence) {
	for _, o := range offences {
		if !o.gate && !scale.Release() {
			continue
		}
		b.attempt(o.what, func(b *fixture) {
			var r proto.OffenceResult
			w := b.during(func() {
				b.call(proto.CmdFault, proto.OffenceArgs{What: o.what, Seed: 5}, &r)
			})
			require.NotZero(b.t, w.counts[o.seen], "the card reported it")
			require.Equal(b.t, o.reporter, r.ReportedBy)
			require.Equal(b.t, r.Expected, r.Killed)
			require.True(b.t, r.FreshWorks)
			require.NotZero(b.t, r.Background.Copies)
			require.Zero(b.t, r.Background.Wrong)
			require.Empty(b.t, r.Background.Error)
		})
	}
}
