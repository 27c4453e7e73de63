package vfiouser_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestAttachAsQEMU goes through what QEMU does from attach to detach.
func TestAttachAsQEMU(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	caps := c.Capabilities()
	require.Equal(t, 16, caps.MaxMsgFDs)
	require.True(t, caps.WriteMultiple)
	require.Equal(t, uint32(1<<20), caps.MaxDataXfer)

	ram, err := client.Alloc(1 << 20)
	require.NoError(t, err)
	defer ram.Close()
	require.NoError(t, c.Map(0, ram, 0, 1<<20, client.ReadWrite))

	info, err := c.Info()
	require.NoError(t, err)
	require.EqualValues(t, 9, info.NumRegions)
	require.EqualValues(t, 5, info.NumIRQs)
	for i := range 9 {
		ri, err := c.RegionInfo(i)
		require.NoError(t, err)
		require.Equal(t, r.dev.regions[i].Size, ri.Size)
		if ri.File != nil {
			ri.File.Close()
		}
	}
	irqs, err := c.AttachIRQs(vfiouser.IRQINTx, 0, 1)
	require.NoError(t, err)
	defer irqs[0].Close()

	id, err := c.Read32(vfiouser.RegionConfig, 0)
	require.NoError(t, err)
	require.Equal(t, uint32(0x06d810de), id)
	require.NoError(t, c.Write32(0, 0x10, 0x12345678))
	require.NoError(t, c.Post32(0, 0x14, 0x9abcdef0))
	v, err := c.Read32(0, 0x14)
	require.NoError(t, err)
	require.Equal(t, uint32(0x9abcdef0), v)

	h := r.dev.Host()
	h.Trigger(vfiouser.IRQINTx, 0)
	_, err = irqs[0].Wait(patience)
	require.NoError(t, err)

	m := h.Memory()
	m.Acquire()
	copy(m.Slice(0x1000, 4, true), "GPU!")
	m.Release()
	require.Equal(t, "GPU!", string(ram.Data[0x1000:0x1004]))

	require.NoError(t, c.Reset())
	r.dev.locked(func() { require.Equal(t, 1, r.dev.resets) })
	require.NoError(t, c.Unmap(0, 1<<20))
	require.NoError(t, c.Close())
	eventually(t, "device detached", func() bool {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return r.dev.detached == 1
	})
}
