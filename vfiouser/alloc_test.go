package vfiouser_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestNoAllocations counts the whole process: client's system calls, server's thread, device.
func TestNoAllocations(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	fd, _ := negotiated(t, vfiouser.Options{})
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
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
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
