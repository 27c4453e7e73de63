package vfiouser_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestReplyCarriesNoOldBytes: a device that leaves its buffer alone shows nothing of the
// replies before.
func TestReplyCarriesNoOldBytes(t *testing.T) {
	r, c := served(t)
	d := r.dev
	secret := make([]byte, 4096-64)
	for i := range secret {
		secret[i] = 0xaa
	}
	require.NoError(t, c.Write(0, 0, secret))
	require.NoError(t, c.Read(0, 0, secret))
	d.locked(func() { d.onRead = func(int, uint64, []byte) error { return nil } })
	got := make([]byte, len(secret))
	require.NoError(t, c.Read(0, 0, got))
	require.Equal(t, make([]byte, len(secret)), got)
}

// TestWriteMulti: the writes of a message are independent of each other; the reply counts those that
// were done.
func TestWriteMulti(t *testing.T) {
	r, c := served(t)
	n, err := c.WriteMulti([]client.MultiWrite{
		{Offset: 0, Data: []byte{1, 2, 3, 4}},
		{Region: 9, Offset: 0, Data: []byte{9}},
		{Region: 6, Offset: 0, Data: []byte{9}}, // read only
		{Offset: 8, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{Region: 7, Offset: 4, Data: []byte{6}},
	})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	r.dev.locked(func() {
		require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, r.dev.mem[0][:16])
		require.EqualValues(t, 6, r.dev.mem[7][4])
		require.Zero(t, r.dev.mem[6][0])
	})
	for _, count := range []uint32{9, ^uint32(0)} {
		entry := append(wire.Append(le.AppendUint64(nil, 1), wire.RegionAccess{Count: count}), make([]byte, 8)...)
		_, err = c.Call(wire.RegionWriteMulti, entry)
		require.Equal(t, syscall.EINVAL, err, "an entry of %d bytes", count)
	}
	_, err = newRig(t, newDevice(t), vfiouser.Options{NoWriteMulti: true}).dial(nil).WriteMulti(nil)
	require.Equal(t, syscall.EINVAL, err, "not negotiated")
}

func TestRegionInfoWithoutDescriptors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(&client.Options{Capabilities: `{"capabilities":{"max_msg_fds":0}}`})
	m, err := c.Call(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: 4096, Index: 1}))
	require.NoError(t, err)
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 1, Flags: 3, Size: 0x10000}, wire.Parse[wire.RegionInfo](m.Payload))
}

// TestNoAllocations counts the whole process: client's system calls, server's thread, device.
func TestNoAllocations(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	fd := negotiated(t)
	reply := make([]byte, 1<<16)
	posted := append(writeMessage(0x24, wire.NoReply), readMessage(0)...)
	var batch []byte
	for i := range 100 {
		batch = append(append(batch, writeMessage(uint64(i)*4, 0)...), readMessage(0)...)
	}
	multi := le.AppendUint64(nil, 2)
	for range 2 {
		multi = le.AppendUint64(wire.Append(multi, wire.RegionAccess{Count: 4}), 5)
	}
	for name, msg := range map[string][]byte{
		"read":        readMessage(0x20),
		"write":       writeMessage(0x20, 0),
		"posted":      posted,
		"multi":       message(wire.RegionWriteMulti, 0, multi),
		"batch":       batch,
		"bad region":  message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Region: 9, Count: 4})),
		"bad command": message(99, 0, nil),
		"device info": message(wire.DeviceGetInfo, 0, wire.Append(nil, wire.DeviceInfo{Argsz: 16})),
		"4 KiB":       message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Region: 2, Count: 4096})),
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(200, func() {
				_, _ = unix.Write(fd, msg)
				want := 1
				if name == "batch" {
					want = 100 * (32 + 36)
				}
				for got := 0; got < want; {
					n, err := unix.Read(fd, reply)
					if err != nil || n == 0 {
						panic("no reply")
					}
					got += n
				}
			}))
		})
	}
}

func TestNoAllocationsInHost(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	r, c := served(t)
	ram := alloc(t, 1<<16)
	for i := range uint64(4) {
		require.NoError(t, c.Map(i<<16, ram, 0, 1<<16, client.ReadWrite))
	}
	attach(t, c, irqMSI, 0, 1)
	h := r.dev.Host()
	m := h.Memory()
	i, p := uint64(0), make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		i++
		if m.Copy((i&3)<<16, p, true) != nil || m.Copy(1<<40, p, false) == nil || m.Copy(0xfff0, p, false) != nil {
			panic("copy")
		}
		h.Trigger(irqMSI, 0)
		h.Trigger(irqMSI, 3)
	}))
}
