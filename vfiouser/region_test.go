package vfiouser_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// The conformance suite has the accesses that are out of bounds.
func TestRegionAccessErrors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	tests := []struct {
		name   string
		region uint32
		off    uint64
		n      uint32
		read   error
		write  error
	}{
		{"odd length", 0, 3, 7, nil, nil},
		{"whole region", 7, 0, 256, nil, nil},
		{"read-only region", 6, 0, 4, nil, syscall.EINVAL},
		{"special offset as a middle byte", 0, 0xfef, 4, nil, nil},
		{"nothing", 0, 8, 0, nil, nil},
		{"nothing at the end", 0, 0x1000, 0, nil, nil},
		{"nothing past the end", 0, 0x1001, 0, syscall.EINVAL, syscall.EINVAL},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := wire.Append(nil, wire.RegionAccess{Offset: tt.off, Region: tt.region, Count: tt.n})
			m, err := c.Call(wire.RegionRead, a)
			require.Equal(t, tt.read, err)
			if err == nil {
				want := wire.RegionAccessSize + int(tt.n)
				if tt.n == 0 {
					want = 0
				}
				require.Len(t, m.Payload, want)
			}
			m, err = c.Call(wire.RegionWrite, append(a, make([]byte, tt.n)...))
			require.Equal(t, tt.write, err)
			if err == nil && tt.n > 0 {
				require.Equal(t, a, m.Payload)
			}
		})
	}
	_, err := c.Call(wire.RegionRead, wire.Append(nil, wire.RegionAccess{Region: 2, Count: 1<<20 + 1}))
	require.Equal(t, syscall.EINVAL, err, "over max_data_xfer_size")
}

// TestReplyCarriesNoOldBytes: a device that leaves its buffer alone shows nothing of the
// replies before.
func TestReplyCarriesNoOldBytes(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
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

func TestWriteMulti(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	n, err := c.WriteMulti([]client.MultiWrite{
		{Offset: 0, Data: []byte{1, 2, 3, 4}},
		{Region: 9, Offset: 0, Data: []byte{9}},
		{Offset: 0x1000, Data: []byte{9}},
		{Offset: 8, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{Offset: 0x20, Data: nil},
		{Region: 7, Offset: 4, Data: []byte{6}},
	})
	require.NoError(t, err)
	require.Equal(t, 4, n)
	r.dev.locked(func() {
		require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, r.dev.mem[0][:16])
		require.EqualValues(t, 6, r.dev.mem[7][4])
	})

	_, err = c.WriteMulti([]client.MultiWrite{{Region: 9, Data: []byte{1}}})
	require.Equal(t, syscall.EINVAL, err, "none done")
	n, err = c.WriteMulti(nil)
	require.NoError(t, err)
	require.Zero(t, n)

	entry := wire.Append(nil, wire.RegionAccess{Count: 4})
	entry = append(entry, 0, 0, 0, 0, 0, 0, 0, 0)
	for name, p := range map[string][]byte{
		"count under":   append(le.AppendUint64(nil, 0), entry...),
		"count wraps":   append(le.AppendUint64(nil, 0xaaaaaaaaaaaaaaab), entry...),
		"ragged":        append(le.AppendUint64(nil, 1), entry[:20]...),
		"entry of 9":    append(append(le.AppendUint64(nil, 1), wire.Append(nil, wire.RegionAccess{Count: 9})...), entry[:8]...),
		"entry of 2^32": append(append(le.AppendUint64(nil, 1), wire.Append(nil, wire.RegionAccess{Count: ^uint32(0)})...), entry[:8]...),
	} {
		_, err := c.Call(wire.RegionWriteMulti, p)
		require.Equal(t, syscall.EINVAL, err, name)
	}

	r = newRig(t, newDevice(t), vfiouser.Options{NoWriteMulti: true})
	c = r.dial(nil)
	_, err = c.WriteMulti(nil)
	require.Equal(t, syscall.EINVAL, err, "not negotiated")
}

// TestPostedOrder: posted writes are done, in order, before a later read is answered.
func TestPostedOrder(t *testing.T) {
	d := newDevice(t)
	var seen []uint32
	d.onWrite = func(_ int, _ uint64, p []byte) error {
		seen = append(seen, le.Uint32(p))
		return nil
	}
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	b := c.Batch()
	var v [4]byte
	for i := range uint32(5000) {
		b.Post(0, 0x100, le.AppendUint32(nil, i))
	}
	b.Read(0, 0, v[:])
	require.NoError(t, b.Do())
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Len(t, seen, 5000)
	for i, v := range seen {
		require.EqualValues(t, i, v)
	}
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

type ioDevice struct {
	*memDevice
	parts map[int][]vfiouser.IOFD
}

func (d ioDevice) RegionIOFDs(index int) []vfiouser.IOFD { return d.parts[index] }

func eventFile(t testing.TB) *os.File {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "ioeventfd")
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRegionIOFDs(t *testing.T) {
	e1, e2, shadow := eventFile(t), eventFile(t), memfd(t, 4096)
	many := make([]vfiouser.IOFD, 20)
	for i := range many {
		many[i] = vfiouser.IOFD{Offset: uint64(i) * 8, Size: 8, File: eventFile(t)}
	}
	d := ioDevice{newDevice(t), map[int][]vfiouser.IOFD{
		0: {
			{Offset: 0x10, Size: 4, File: e1, Flags: 1, DataMatch: 0x1122334455667788},
			{Offset: 0x20, Size: 8, File: e2},
			{Offset: 0x30, Size: 2, File: e1, Type: vfiouser.IORegionFD, DataMatch: 9},
		},
		1: {
			{Offset: 0x40, Size: 4, File: e1, Type: vfiouser.IOEventFDShadow, Shadow: shadow, ShadowOffset: 0x80},
			{Offset: 0x44, Size: 4, File: e1, DataMatch: 7},
		},
		2: many,
		6: {{Size: 4}},
	}}
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	ask := func(q wire.RegionIO) (client.Message, error) {
		return c.Call(wire.DeviceGetRegionIO, wire.Append(nil, q))
	}
	_, err := ask(wire.RegionIO{Argsz: 1<<20 + 1})
	require.Equal(t, syscall.EINVAL, err)
	_, err = ask(wire.RegionIO{Argsz: 1000, Index: 3})
	require.Equal(t, syscall.EINVAL, err, "absent region")
	_, err = ask(wire.RegionIO{Argsz: 4000, Index: 2})
	require.Equal(t, syscall.E2BIG, err, "more descriptors than the client takes")
	_, err = ask(wire.RegionIO{Argsz: 4000, Index: 6})
	require.Equal(t, syscall.EBADF, err, "a part without a descriptor")

	m, err := ask(wire.RegionIO{Argsz: 4000, Index: 7})
	require.NoError(t, err)
	require.Equal(t, wire.Append(nil, wire.RegionIO{Argsz: 16, Index: 7}), m.Payload, "none")

	for _, argsz := range []uint32{16, 100, 16 + 3*40 - 1} {
		m, err = ask(wire.RegionIO{Argsz: argsz})
		require.NoError(t, err)
		require.Equal(t, wire.Append(nil, wire.RegionIO{Argsz: 16 + 3*40, Count: 3}), m.Payload, "what is needed")
		require.Empty(t, m.FDs)
	}
	io, err := c.RegionIOFDs(0)
	require.NoError(t, err)
	require.Equal(t, wire.RegionIO{Argsz: 16 + 3*40, Count: 3}, io.RegionIO)
	require.Len(t, io.FDs, 2, "each descriptor once")
	require.Equal(t, []wire.SubRegion{
		{Offset: 0x10, Size: 4, FDIndex: 0, Flags: 1, DataMatch: 0x1122334455667788},
		{Offset: 0x20, Size: 8, FDIndex: 1},
		{Offset: 0x30, Size: 2, FDIndex: 0, Type: 1, DataMatch: 9},
	}, io.Parts)
	other := client.EventFD{FD: io.FDs[1]}
	require.NoError(t, other.Signal())
	var b [8]byte
	n, err := e2.Read(b[:])
	require.NoError(t, err)
	require.Equal(t, 8, n)
	unix.Close(io.FDs[0])
	unix.Close(io.FDs[1])

	io, err = c.RegionIOFDs(1)
	require.NoError(t, err)
	require.EqualValues(t, 16+2*48, io.Argsz, "the form that has shadow fields")
	require.Len(t, io.FDs, 2)
	require.Equal(t, []wire.SubRegion{
		{Offset: 0x40, Size: 4, FDIndex: 0, Type: 2, ShadowFD: 1, ShadowOffset: 0x80},
		{Offset: 0x44, Size: 4, FDIndex: 0, DataMatch: 7},
	}, io.Parts)
	unix.Close(io.FDs[0])
	unix.Close(io.FDs[1])
	c.Close()

	r = newRig(t, newDevice(t), vfiouser.Options{})
	io, err = r.dial(nil).RegionIOFDs(0)
	require.NoError(t, err)
	require.Zero(t, io.Count, "a device that offers none")
}
