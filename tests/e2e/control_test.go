package e2e

import (
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// rebuild changes the card while no driver uses it.
func (b *fixture) rebuild(change func(*soft.Config)) {
	b.t.Helper()
	if b.function().Driver != "" {
		b.call(proto.CmdBind, proto.BindArgs{Action: "unbind"}, nil)
	}
	require.NoError(b.t, b.Card.Rebuild(change))
	require.NoError(b.t, b.gpu.Reset()) // the windows too
}

func (b *fixture) bind() {
	b.t.Helper()
	b.call(proto.CmdBind, proto.BindArgs{Action: "bind"}, nil)
}

// control runs the data tests on a card whose engines accept every method and do
// nothing. Each must fail in the guest, case by case. Channels, fences and host
// semaphores still work, so a test that waits only for those would pass here.
func (b *fixture) control(k kernel) {
	b.rebuild(func(c *soft.Config) { c.DisableEngines = true })
	b.bind()
	w := b.during(func() {
		for _, cmd := range []string{proto.CmdM2MF, proto.CmdCE} {
			b.attempt(cmd, func(b *fixture) { b.requireEveryCaseFails(cmd) })
		}
		for _, c := range []struct {
			cmd  string
			args any
		}{
			{proto.CmdFences, proto.FencesArgs{Count: 4}},
			{proto.CmdBOMoves, proto.BOMovesArgs{Moves: 2}},
			{proto.CmdLoad, nil},
			{proto.CmdFault, proto.OffenceArgs{What: "m2mf-read", Background: -1, TimeoutMS: 200}},
			{proto.CmdFault, proto.OffenceArgs{What: "engine-method", Background: -1, TimeoutMS: 200}},
		} {
			b.attempt(c.cmd, func(b *fixture) { b.requireRefused(c.cmd, c.args, nil) })
		}
	})
	for class, bytes := range w.bytes {
		require.Zero(b.t, bytes, "class %04x", class)
	}
	b.rebuild(func(c *soft.Config) { c.DisableEngines = false })
	mark := b.mark()
	b.bind()
	b.requireClean(k, mark, 1)
	b.copies(proto.CmdM2MF)
}

// requireRefused fails unless the guest program reports an error.
func (b *fixture) requireRefused(cmd string, args, result any) {
	b.t.Helper()
	var refused *lab.CallError
	require.ErrorAs(b.t, b.try(cmd, args, result), &refused)
}

// requireEveryCaseFails fails unless a suite ran all its cases and each was wrong.
func (b *fixture) requireEveryCaseFails(cmd string) {
	b.t.Helper()
	var r proto.CopyResult
	b.requireRefused(cmd, nil, &r)
	require.NotEmpty(b.t, r.Cases)
	for _, c := range r.Cases {
		require.False(b.t, c.OK, c.Name)
	}
	require.Equal(b.t, len(r.Cases), r.Failed)
	require.Zero(b.t, r.Bytes)
}
