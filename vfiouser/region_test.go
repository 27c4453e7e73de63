package vfiouser_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestRegionInfoWithoutDescriptors: a client that takes no descriptors gets no mappable region.
func TestRegionInfoWithoutDescriptors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(&client.Options{Capabilities: `{"capabilities":{"max_msg_fds":0}}`})
	m, err := c.Call(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: 4096, Index: 1}))
	require.NoError(t, err)
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 1, Flags: 3, Size: 0x10000}, wire.Parse[wire.RegionInfo](m.Payload))
}
