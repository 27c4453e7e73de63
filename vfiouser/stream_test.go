package vfiouser_test

import (
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func header(cmd wire.Command, size, flags uint32) []byte {
	return wire.Append(nil, wire.Header{ID: 0x1234, Command: cmd, Size: size, Flags: flags})
}

func requireError(t *testing.T, c *client.Client, errno syscall.Errno) {
	t.Helper()
	m, err := c.Recv()
	require.NoError(t, err)
	require.EqualValues(t, wire.HeaderSize, m.Size)
	require.EqualValues(t, wire.TypeReply|wire.Error, m.Flags)
	require.Equal(t, errno, syscall.Errno(m.Errno))
	require.EqualValues(t, 0x1234, m.ID)
}

// TestShortPayloads: a payload that is a byte short is refused, also when no reply is wanted; all of it is
// counted. The conformance suite has the other bad headers.
func TestShortPayloads(t *testing.T) {
	r, c := served(t)
	for cmd, n := range map[wire.Command]int{
		wire.Version: 4, wire.DMAMap: 32, wire.DMAUnmap: 24, wire.DeviceGetInfo: 16, wire.DeviceGetRegionInfo: 32,
		wire.DeviceGetRegionIO: 16, wire.DeviceGetIRQInfo: 16, wire.DeviceSetIRQs: 20, wire.RegionRead: 16, wire.RegionWrite: 16,
		wire.RegionWriteMulti: 8, wire.DeviceFeature: 8, wire.MigDataRead: 8, wire.MigDataWrite: 8,
	} {
		raw := append(header(cmd, uint32(16+n-1), 0), make([]byte, n-1)...)
		require.NoError(t, c.Send(raw))
		requireError(t, c, syscall.EINVAL)
		raw[8] |= byte(wire.NoReply)
		require.NoError(t, c.Send(raw))
	}
	require.NoError(t, c.Send(header(19, 16, wire.NoReply)))
	require.NoError(t, c.Write32(0, 0, 1)) // a message without a reply got none
	stats := r.srv.Stats()
	require.Equal(t, vfiouser.CommandStats{Messages: 2, Bytes: 2 * 39, Posted: 1, Errors: 2}, stats.Commands[wire.DMAUnmap])
	require.Equal(t, vfiouser.CommandStats{Messages: 3, Bytes: 2*31 + 36, Posted: 1, Errors: 2}, stats.Commands[wire.RegionWrite])
	require.Equal(t, vfiouser.CommandStats{Messages: 1, Bytes: 16, Posted: 1, Errors: 1}, stats.Unknown)
}

// TestLargestMessage: the largest message is served; after one that says more, the stream ends and the
// device keeps its state.
func TestLargestMessage(t *testing.T) {
	r, c := served(t)
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	require.NoError(t, c.Write(2, 0x1000, data))
	got := make([]byte, 1<<20)
	require.NoError(t, c.Read(2, 0x1000, got))
	require.Equal(t, data, got)
	require.Equal(t, syscall.EINVAL, c.Read(2, 0, make([]byte, 1<<20+1)))
	require.NoError(t, c.Send(header(wire.RegionRead, 1<<20+33, 0)))
	requireError(t, c, syscall.EINVAL)
	_, err := c.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, r.dial(nil).Read(2, 0x1000, got))
	require.Equal(t, data, got)
}

// script is a message stream that uses most of the protocol, with the descriptors of each
// message.
func script(t testing.TB) (raws [][]byte, fds [][]int) {
	t.Helper()
	ram, e1, e2 := alloc(t, 1<<16), eventfd(t), eventfd(t)
	add := func(raw []byte, f ...int) { raws, fds = append(raws, raw), append(fds, f) }
	add(message(wire.Version, 0, []byte(qemuVersion)))
	add(message(wire.DMAMap, 0, wire.Append(nil, wire.DMAMapRequest{Argsz: 32, Flags: 3, Addr: 0x10000, Size: 0x10000})), ram.FD)
	add(message(wire.DeviceGetInfo, 0, wire.Append(nil, wire.DeviceInfo{Argsz: 16})))
	add(message(wire.DeviceGetRegionInfo, 0, wire.Append(nil, wire.RegionInfo{Argsz: 96, Index: 1})))
	add(message(wire.DeviceSetIRQs, 0, wire.Append(nil, wire.IRQSet{Argsz: 20, Flags: 0x24, Index: 1, Start: 0, Count: 2})), e1.FD, e2.FD)
	add(writeMessage(0x20, 0))
	add(writeMessage(0x24, wire.NoReply))
	add(readMessage(0x20))
	add(message(wire.DMAMap, 0, wire.Append(nil, wire.DMAMapRequest{Argsz: 32, Flags: 3, Addr: 0x40000, Size: 0x1000})))
	add(message(wire.DMAUnmap, 0, wire.Append(nil, wire.DMAUnmapRequest{Argsz: 24, Addr: 0x10000, Size: 0x10000})))
	add(message(wire.DeviceReset, 0, nil))
	return raws, fds
}

func drainReplies(t *testing.T, c *client.Client, n int) (errs int) {
	t.Helper()
	for range n {
		m, err := c.Recv()
		require.NoError(t, err)
		for _, fd := range m.FDs {
			unix.Close(fd)
		}
		if m.Flags&wire.Error != 0 {
			errs++
		}
	}
	return errs
}

// TestSplitAnywhere: what was a message stays one, descriptors included, however the stream is cut.
// Descriptors travel with their message's first byte.
func TestSplitAnywhere(t *testing.T) {
	raws, fds := script(t)
	r := newRig(t, newDevice(t), vfiouser.Options{})
	t.Run("byte by byte", func(t *testing.T) {
		c := r.rawDial()
		for i, raw := range raws {
			require.NoError(t, c.Send(raw[:1], fds[i]...))
			for k := range raw[1:] {
				require.NoError(t, c.Send(raw[k+1:k+2]))
			}
		}
		require.Zero(t, drainReplies(t, c, len(raws)-1))
		c.Close()
	})
	t.Run("descriptors after other messages, cut", func(t *testing.T) {
		c := r.rawDial()
		require.NoError(t, c.Send(raws[0]))
		require.NoError(t, c.Send(append(raws[2][:len(raws[2]):len(raws[2])], raws[1][:20]...), fds[1]...))
		require.Zero(t, drainReplies(t, c, 2))
		require.NoError(t, c.Send(raws[1][20:]))
		require.Zero(t, drainReplies(t, c, 1))
		require.True(t, r.dev.Host().Memory().Ranges()[0].Mapped, "the descriptor was lost as its message moved")
		c.Close()
	})
	t.Run("descriptors after a message's rest", func(t *testing.T) {
		c := r.dial(nil)
		require.NoError(t, c.Send(append(raws[2][:len(raws[2]):len(raws[2])], raws[1][:20]...)))
		require.Zero(t, drainReplies(t, c, 1)) // and the beginning has been read with it
		require.NoError(t, c.Send(append(raws[1][20:len(raws[1]):len(raws[1])], raws[2]...), fds[1]...))
		require.Equal(t, 1, drainReplies(t, c, 2), "DEVICE_GET_INFO has no descriptors")
		require.False(t, r.dev.Host().Memory().Ranges()[0].Mapped, "the descriptor went to a message that had begun before")
		c.Close()
	})
	t.Run("descriptors in front of other messages", func(t *testing.T) {
		c := r.dial(nil)
		all := append(append(append([]byte(nil), raws[1]...), raws[2]...), raws[5]...)
		require.NoError(t, c.Send(all, fds[1]...))
		require.Zero(t, drainReplies(t, c, 3))
		require.True(t, r.dev.Host().Memory().Ranges()[0].Mapped, "the descriptor went to another message")
	})
}

// TestTooManyFDs: a message with more descriptors than any may have is refused, however they arrive.
func TestTooManyFDs(t *testing.T) {
	_, c := served(t)
	raw := message(wire.DMAMap, 0, wire.Append(nil, wire.DMAMapRequest{Argsz: 32, Flags: 3, Size: 4096}))
	for i := range raw {
		require.NoError(t, c.Send(raw[i:i+1], make([]int, 200)...)) // standard input
	}
	m, err := c.Recv()
	require.NoError(t, err)
	require.Equal(t, syscall.EINVAL, syscall.Errno(m.Errno))
	_, err = c.Info()
	require.NoError(t, err)
}

// TestWritesPerBatch: small replies to a batch go out together, but at most as many as the
// kernel takes in one piece, because QEMU does not accept a split header.
func TestWritesPerBatch(t *testing.T) {
	r, c := served(t)
	for _, tt := range []struct {
		count, size int
		least, most uint64
	}{{100, 4, 1, 3}, {200, 1000, 4, 12}} {
		b := c.Batch()
		for range tt.count {
			b.Read(0, 0, make([]byte, tt.size))
		}
		before := r.srv.Stats()
		require.NoError(t, b.Do())
		after := r.srv.Stats()
		require.EqualValues(t, tt.count, after.Replies-before.Replies)
		require.GreaterOrEqual(t, after.Writes-before.Writes, tt.least)
		require.LessOrEqual(t, after.Writes-before.Writes, tt.most)
	}
}

// TestDescriptorInABatch: a reply with a descriptor goes out between its neighbours.
func TestDescriptorInABatch(t *testing.T) {
	c := newRig(t, newDevice(t), vfiouser.Options{}).dial(nil)
	info := message(wire.DeviceGetRegionInfo, 0, wire.Append(nil, wire.RegionInfo{Argsz: 96, Index: 1}))
	require.NoError(t, c.Send(append(append(readMessage(0), info...), readMessage(4)...)))
	for i, size := range []uint32{36, 96, 36} {
		m, err := c.Recv()
		require.NoError(t, err)
		require.Equal(t, size, m.Size)
		require.Len(t, m.FDs, i%2)
		for _, fd := range m.FDs {
			unix.Close(fd)
		}
	}
}

// TestHalfClose serves what a client sent before it closed its way out.
func TestHalfClose(t *testing.T) {
	_, c := served(t)
	require.NoError(t, c.Send(append(writeMessage(0x30, 0), readMessage(0x30)...)))
	require.NoError(t, c.CloseWrite())
	require.Zero(t, drainReplies(t, c, 2))
	_, err := c.Recv()
	require.ErrorIs(t, err, io.EOF)
}
