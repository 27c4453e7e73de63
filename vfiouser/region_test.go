package vfiouser_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

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
		{"inside", 0, 0xfe0, 4, nil, nil},
		{"8 bytes", 0, 0, 8, nil, nil},
		{"odd length", 0, 3, 7, nil, nil},
		{"the last byte", 0, 0xfff, 1, nil, nil},
		{"whole region", 7, 0, 256, nil, nil},
		{"across the end", 0, 0xffe, 4, syscall.EINVAL, syscall.EINVAL},
		{"behind the end", 0, 0x1000, 4, syscall.EINVAL, syscall.EINVAL},
		{"far off", 0, 1 << 63, 4, syscall.EINVAL, syscall.EINVAL},
		{"wraps", 0, ^uint64(0) - 1, 4, syscall.EINVAL, syscall.EINVAL},
		{"absent region", 3, 0, 4, syscall.EINVAL, syscall.EINVAL},
		{"region 9", 9, 0, 4, syscall.EINVAL, syscall.EINVAL},
		{"region 2^32-1", ^uint32(0), 0, 4, syscall.EINVAL, syscall.EINVAL},
		{"read-only region", 6, 0, 4, nil, syscall.EINVAL},
		{"special offset as a middle byte", 0, 0xfef, 4, nil, nil},
		{"nothing", 0, 8, 0, nil, nil},
		{"nothing at the end", 0, 0x1000, 0, nil, nil},
		{"nothing behind the end", 0, 0x1001, 0, syscall.EINVAL, syscall.EINVAL},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := wire.RegionAccess{Offset: tt.off, Region: tt.region, Count: tt.n}.Append(nil)
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
	for _, extra := range []int{-1, 1, 100} {
		p := append(wire.RegionAccess{Count: 8}.Append(nil), make([]byte, 8+extra)...)
		_, err := c.Call(wire.RegionWrite, p)
		require.Equal(t, syscall.EINVAL, err, "%+d bytes of data", extra)
	}
	_, err := c.Call(wire.RegionRead, wire.RegionAccess{Region: 2, Count: 1<<20 + 1}.Append(nil))
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

	entry := wire.RegionAccess{Count: 4}.Append(nil)
	entry = append(entry, 0, 0, 0, 0, 0, 0, 0, 0)
	for name, p := range map[string][]byte{
		"count over":    append(le.AppendUint64(nil, 2), entry...),
		"count under":   append(le.AppendUint64(nil, 0), entry...),
		"count wild":    append(le.AppendUint64(nil, 1<<63), entry...),
		"count wraps":   append(le.AppendUint64(nil, 0xaaaaaaaaaaaaaaab), entry...),
		"ragged":        append(le.AppendUint64(nil, 1), entry[:20]...),
		"entry of 9":    append(append(le.AppendUint64(nil, 1), wire.RegionAccess{Count: 9}.Append(nil)...), entry[:8]...),
		"entry of 2^32": append(append(le.AppendUint64(nil, 1), wire.RegionAccess{Count: ^uint32(0)}.Append(nil)...), entry[:8]...),
	} {
		_, err := c.Call(wire.RegionWriteMulti, p)
		require.Equal(t, syscall.EINVAL, err, name)
	}

	require.NoError(t, c.PostMulti([]client.MultiWrite{{Offset: 0x40, Data: []byte{0x5a}}}))
	v, err := c.Read32(0, 0x40)
	require.NoError(t, err)
	require.EqualValues(t, 0x5a, v)

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

func TestBatch(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	b := c.Batch()
	got := make([][4]byte, 500)
	for i := range got {
		b.Write(0, uint64(i)*4, le.AppendUint32(nil, uint32(i)*3))
		b.Read(0, uint64(i)*4, got[i][:])
	}
	require.NoError(t, b.Do())
	for i := range got {
		require.EqualValues(t, i*3, le.Uint32(got[i][:]))
	}
	b.Clear()
	b.Read(0, failAt, got[0][:])
	b.Read(0, 0, got[1][:])
	require.ErrorIs(t, b.Do(), syscall.EPERM)
}

func TestInfo(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	info, err := c.Info()
	require.NoError(t, err)
	require.Equal(t, wire.DeviceInfo{Argsz: 16, Flags: 3, NumRegions: 9, NumIRQs: 5}, info)
	_, err = c.Call(wire.DeviceGetInfo, wire.DeviceInfo{Argsz: 15}.Append(nil))
	require.Equal(t, syscall.EINVAL, err)
	_, err = c.Call(wire.DeviceGetInfo, wire.DeviceInfo{Argsz: 100}.Append(nil))
	require.NoError(t, err, "a client of a later version")

	for i, q := range r.dev.irqs {
		irq, err := c.IRQInfo(i)
		require.NoError(t, err)
		require.Equal(t, wire.IRQInfo{Argsz: 16, Flags: uint32(q.Flags), Index: uint32(i), Count: uint32(q.Count)}, irq)
	}
	_, err = c.IRQInfo(5)
	require.Equal(t, syscall.EINVAL, err)
	_, err = c.Call(wire.DeviceGetIRQInfo, wire.IRQInfo{Argsz: 12}.Append(nil))
	require.Equal(t, syscall.EINVAL, err)

	require.NoError(t, c.Reset())
	r.dev.locked(func() { require.Equal(t, 1, r.dev.resets) })
}

func TestRegionInfo(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ask := func(argsz, index uint32) (client.Message, error) {
		return c.Call(wire.DeviceGetRegionInfo, wire.RegionInfo{Argsz: argsz, Index: index}.Append(nil))
	}
	for _, bad := range [][2]uint32{{31, 0}, {0, 0}, {32, 9}, {32, ^uint32(0)}} {
		_, err := ask(bad[0], bad[1])
		require.Equal(t, syscall.EINVAL, err)
	}
	plainOf := func(index uint32) wire.RegionInfo {
		m, err := ask(1000, index)
		require.NoError(t, err)
		require.Len(t, m.Payload, 32, "exactly sized")
		require.Empty(t, m.FDs)
		return wire.ParseRegionInfo(m.Payload)
	}
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 3}, plainOf(3), "absent")
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 0, Flags: 3, Size: 0x1000}, plainOf(0))
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 6, Flags: 1, Size: 0x800}, plainOf(6))

	const need = 32 + 16 + 2*16
	for _, argsz := range []uint32{32, 48, need - 1} {
		m, err := ask(argsz, 1)
		require.NoError(t, err)
		require.Len(t, m.Payload, int(argsz))
		require.Empty(t, m.FDs, "no descriptor as long as the capability does not fit")
		require.Equal(t, wire.RegionInfo{Argsz: need, Index: 1, Flags: 7, Size: 0x10000, Offset: 0x4000}, wire.ParseRegionInfo(m.Payload))
	}
	for _, argsz := range []uint32{need, 4096} {
		m, err := ask(argsz, 1)
		require.NoError(t, err)
		require.Len(t, m.Payload, need)
		require.Len(t, m.FDs, 1)
		unix.Close(m.FDs[0])
		require.Equal(t, wire.RegionInfo{Argsz: need, Index: 1, Flags: 15, CapOffset: 32, Size: 0x10000, Offset: 0x4000}, wire.ParseRegionInfo(m.Payload))
		require.Equal(t, []byte{
			1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
			0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0,
			0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0,
		}, m.Payload[32:])
	}

	// The client sees the device's file through the mapping.
	info, err := c.RegionInfo(1)
	require.NoError(t, err)
	defer info.File.Close()
	require.Equal(t, r.dev.regions[1].Areas, info.Areas)
	p, err := info.Mmap(info.Areas[1])
	require.NoError(t, err)
	defer unix.Munmap(p)
	p[5] = 0x42
	var b [1]byte
	_, err = r.dev.regions[1].File.ReadAt(b[:], 0x4000+0x8000+5)
	require.NoError(t, err)
	require.EqualValues(t, 0x42, b[0])

	whole, err := c.RegionInfo(2)
	require.NoError(t, err)
	whole.File.Close()
	require.Equal(t, []wire.Area{{Offset: 0, Size: 1 << 21}}, whole.Areas)

	// A client that takes no descriptors gets no mappable region.
	c.Close()
	c = r.dial(&client.Options{Capabilities: `{"capabilities":{"max_msg_fds":0}}`})
	m, err := ask(4096, 1)
	require.NoError(t, err)
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 1, Flags: 3, Size: 0x10000}, wire.ParseRegionInfo(m.Payload))
}
