package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// mmuFault waits for the fault of a unit, checks all of it, and frees the slot.
func (r *rig) mmuFault(unit uint32, inst, va uint64, client uint32, write bool, reason shadowpt.Reason) {
	r.t.Helper()
	r.eventually("MMU fault", func() bool { return r.rd(0x259c)>>unit&1 != 0 })
	require.NotZero(r.t, r.rd(0x2100)&(1<<28))
	at := 0x2800 + unit*0x10
	require.Equal(r.t, uint32(inst>>12), r.rd(at), "instance")
	require.Equal(r.t, va, uint64(r.rd(at+8))<<32|uint64(r.rd(at+4)), "address")
	info := uint32(reason) | 1<<6 | client<<8
	if write {
		info |= 1 << 7
	}
	require.Equal(r.t, info, r.rd(at+0xc), "reason %x, client %x", reason, client)
	for e := range uint32(gf100.Engines) {
		require.Zero(r.t, r.rd(0x2640+e*4), "no engine is left on the channel: a driver need not reset it")
	}
	r.wr(0x259c, 1<<unit)
}

const (
	slotGR, slotBAR1, slotBAR3, slotHost, slotCE0, slotCE1 = 0, 4, 5, 7, 0x15, 0x16
	clientDispatch, clientHost, clientRead, clientWrite    = 4, 6, 7, 8
)

func TestMMUFaultOfEachUnit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		words  []uint32
		slot   uint32
		client uint32
		va     uint64
		write  bool
	}{
		{"GR read", cat(incr(2, 0, classM2MF), copyM2MF(vaData, vaHole, 16)), slotGR, clientDispatch, vaHole, false},
		{"GR write", cat(incr(2, 0, classM2MF), copyM2MF(vaHole, vaData, 16)), slotGR, clientDispatch, vaHole, true},
		{"CE0 read", cat(incr(4, 0, classCE0), copyCE(4, vaData, vaHole, 16)), slotCE0, 1, vaHole, false},
		{"CE1 write", cat(incr(4, 0, classCE1), copyCE(4, vaHole, vaData, 16)), slotCE1, 2, vaHole, true},
		{"host release", release32(vaHole, 1), slotHost, clientHost, vaHole, true},
		{"host acquire", semaphoreOp(vaHole, 1, opAcquire), slotHost, clientHost, vaHole, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, cs := newChannels(t, 2)
			c := cs[0]
			c.submit(cat(tc.words, release(0, 1))...)
			r.mmuFault(tc.slot, c.inst, tc.va, tc.client, tc.write, shadowpt.PageNotPresent)
			c.submit(release(1, 1)...)
			r.steady("the channel is dead", func() bool { return c.semaphore(0)|c.semaphore(1) == 0 })
			require.Equal(t, uint32(1), r.rd(0x3000+c.id*8)>>31, "but it is bound")
			cs[1].alive()
			// Recovery as a driver does it; the next channel in the slot works.
			c.disable()
			r.runlist(2)
			r.wr(0x262c, 1)
			c.unbind()
			n := r.newChannel(1, c.userd-uint64(c.id)*gf100.USERDSize)
			r.runlist(1, 2)
			n.alive()
		})
	}
}

// A slot holds one fault; a second channel's waits and is reported after it.
func TestFaultsQueue(t *testing.T) {
	r, cs := newChannels(t, 3)
	for i, c := range cs {
		c.submit(release32(vaHole+uint32(i)*4096, 1)...)
		r.eventually("fault", func() bool { return r.card.Stats().MMUFaults.Load() == uint64(i+1) })
	}
	for range cs {
		r.eventually("fault", func() bool { return r.rd(0x259c) == 1<<slotHost })
		inst := uint64(r.rd(0x2870)) << 12
		for i, c := range cs {
			if c.inst == inst {
				r.mmuFault(slotHost, inst, vaHole+uint64(i)*4096, clientHost, true, shadowpt.PageNotPresent)
			}
		}
	}
	require.Zero(t, r.rd(0x259c))
}

// A driver makes a channel fault that does not leave its engine.
func TestFaultTrigger(t *testing.T) {
	r, cs := newChannels(t, 2)
	r.wr(0x2a30, 0x100) // no channel was on the engine yet
	cs[1].alive()
	c := cs[0]
	c.endless()
	r.running()
	r.wr(0x2a30, 0x100)
	r.mmuFault(slotGR, c.inst, 0, clientDispatch, false, shadowpt.PageNotPresent)
	require.Equal(t, uint32(0x100), r.rd(0x2a30), "until the driver clears it")
	cs[1].alive()
}
