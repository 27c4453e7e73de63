package vfiouser_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// qemuVersion is the payload that QEMU 11.1.3 sends.
const qemuVersion = "\x00\x00\x00\x00" + client.QEMUCapabilities + "\x00"

func TestVersionRefused(t *testing.T) {
	caps := func(s string) string { return "\x00\x00\x00\x00" + `{"capabilities": ` + s + "}\x00" }
	tests := []struct{ name, payload string }{
		{"payload short", "\x00\x00\x00"},
		{"not terminated", "\x00\x00\x00\x00{}"},
		{"only a NUL", "\x00\x00\x00\x00\x00"},
		{"no JSON", "\x00\x00\x00\x00{\x00"},
		{"an array", "\x00\x00\x00\x00[]\x00"},
		{"trailing text", "\x00\x00\x00\x00{}x\x00"},
		{"capabilities a number", caps("5")},
		{"capabilities an array", caps("[]")},
		{"capabilities null", caps("null")},
		{"max_msg_fds a string", caps(`{"max_msg_fds": "16"}`)},
		{"max_msg_fds negative", caps(`{"max_msg_fds": -1}`)},
		{"max_msg_fds 1025", caps(`{"max_msg_fds": 1025}`)},
		{"max_msg_fds a fraction", caps(`{"max_msg_fds": 1.5}`)},
		{"max_data_xfer_size a string", caps(`{"max_data_xfer_size": "x"}`)},
		{"max_data_xfer_size negative", caps(`{"max_data_xfer_size": -5}`)},
		{"max_dma_maps a bool", caps(`{"max_dma_maps": true}`)},
		{"pgsizes an object", caps(`{"pgsizes": {}}`)},
		{"twin_socket a bool", caps(`{"twin_socket": true}`)},
		{"twin_socket.supported a number", caps(`{"twin_socket": {"supported": 1}}`)},
		{"write_multiple a number", caps(`{"write_multiple": 1}`)},
		{"migration a number", caps(`{"migration": 1}`)},
		{"migration.pgsize a string", caps(`{"migration": {"pgsize": "4096"}}`)},
		{"migration.pgsize of a device that migrates", caps(`{"migration": {"pgsize": 8192}}`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, newMigDevice(t), vfiouser.Options{})
			c := r.rawDial()
			_, err := c.Call(wire.Version, []byte(tt.payload))
			require.Equal(t, syscall.EINVAL, err)
			requireNegotiable(t, c)
		})
	}
	t.Run("a descriptor", func(t *testing.T) {
		r := newRig(t, newDevice(t), vfiouser.Options{})
		c := r.rawDial()
		_, err := c.Call(wire.Version, []byte(qemuVersion), 0)
		require.Equal(t, syscall.EINVAL, err)
		requireNegotiable(t, c)
	})
	t.Run("another command first", func(t *testing.T) {
		r := newRig(t, newDevice(t), vfiouser.Options{})
		c := r.rawDial()
		_, err := c.Info()
		require.Equal(t, syscall.EINVAL, err)
		require.Nil(t, r.dev.Host(), "a device is attached before the version is agreed")
		requireNegotiable(t, c)
	})
}

func requireNegotiable(t *testing.T, c *client.Client) {
	t.Helper()
	_, err := c.Call(wire.Version, []byte(qemuVersion))
	require.NoError(t, err)
	_, err = c.Info()
	require.NoError(t, err)
}

func TestVersionReply(t *testing.T) {
	full := `{"capabilities":{"max_msg_fds":16,"write_multiple":true,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096}}`
	tests := []struct {
		name    string
		o       vfiouser.Options
		request string
		want    string
	}{
		{"QEMU 11.1.3", vfiouser.Options{}, qemuVersion, full + "\x00"},
		{"no write_multiple offered", vfiouser.Options{NoWriteMulti: true}, qemuVersion, strings.Replace(full, `"write_multiple":true,`, "", 1) + "\x00"},
		{"no write_multiple proposed", vfiouser.Options{}, strings.Replace(qemuVersion, "true", "false", 1), strings.Replace(full, `"write_multiple":true,`, "", 1) + "\x00"},
		{"minor 1 proposed", vfiouser.Options{}, "\x00\x00\x01\x00" + qemuVersion[4:], full + "\x00"},
		{"no JSON: no room for any", vfiouser.Options{}, "\x00\x00\x00\x00", ""},
		{"room for one", vfiouser.Options{}, "\x00\x00\x00\x00{" + strings.Repeat(" ", 37) + "}\x00", `{"capabilities":{"max_msg_fds":16}}` + "\x00"},
		{"unknown capability", vfiouser.Options{}, "\x00\x00\x00\x00" + `{"capabilities":{"telepathy":[1,2]}}` + "\x00", `{"capabilities":{"max_msg_fds":16}}` + "\x00"},
		{"page size of a device that does not migrate", vfiouser.Options{}, "\x00\x00\x00\x00" + `{"capabilities":{"migration":{"pgsize":8192}}}` + "\x00", `{"capabilities":{"max_msg_fds":16}}` + "\x00"},
		{"twin socket", vfiouser.Options{}, "\x00\x00\x00\x00" + `{"capabilities":{"twin_socket":{"supported":true,"fd_index":0}}}` + "\x00", `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576}}` + "\x00"},
		{"no descriptor for a twin socket", vfiouser.Options{}, "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":0,"twin_socket":{"supported":true}}}` + strings.Repeat(" ", 40) + "\x00", `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096}}` + "\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, plain{newDevice(t)}, tt.o)
			c := r.rawDial()
			m, err := c.Call(wire.Version, []byte(tt.request))
			require.NoError(t, err)
			require.LessOrEqual(t, len(m.Payload), len(tt.request), "QEMU reads the reply into the request's buffer")
			require.Equal(t, "\x00\x00\x00\x00", string(m.Payload[:4]), "major and minor")
			require.Equal(t, tt.want, string(m.Payload[4:]))

			_, err = c.Call(wire.Version, []byte(tt.request))
			require.Equal(t, syscall.EINVAL, err, "a second VERSION")
			_, err = c.Info()
			require.NoError(t, err)
		})
	}
	require.Len(t, qemuVersion, 214-wire.HeaderSize)
}

// TestOtherMajorIsDropped: no message of another major version can be understood, so the connection ends.
func TestOtherMajorIsDropped(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	for _, major := range []string{"\x01\x00", "\xff\xff"} {
		c := r.rawDial()
		_, err := c.Call(wire.Version, []byte(major+"\x00\x00"))
		require.Equal(t, syscall.EINVAL, err)
		_, err = c.Recv()
		require.ErrorIs(t, err, io.EOF)
		c.Close()
	}
}

// dialTwin makes a client with a second socket, which answers DMA messages from ram at address 0.
func dialTwin(t *testing.T, r *rig, ram *client.Memory) (c, twin *client.Client) {
	c = r.rawDial()
	m, err := c.Call(wire.Version, []byte("\x00\x00\x00\x00"+`{"capabilities":{"twin_socket":{"supported":true},"max_msg_fds":1}}`+strings.Repeat(" ", 40)+"\x00"))
	require.NoError(t, err)
	require.Contains(t, string(m.Payload), `"twin_socket":{"supported":true,"fd_index":0}`)
	require.Len(t, m.FDs, 1)
	require.NoError(t, c.MapNoFD(0, ram, 0, uint64(len(ram.Data)), client.ReadWrite))
	twin, err = client.NewFD(m.FDs[0], &client.Options{NoVersion: true, AnswerDMA: true})
	require.NoError(t, err)
	t.Cleanup(func() { twin.Close() })
	twin.Share(c)
	return c, twin
}

// TestTwinSocket: a client that asks for it gets a second socket for DMA by message, and can
// answer there while one of its own commands waits for its reply.
func TestTwinSocket(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: patience})
	ram := alloc(t, 1<<20)
	c, twin := dialTwin(t, r, ram)
	for i := range ram.Data {
		ram.Data[i] = byte(i ^ i>>9)
	}
	h, got := r.dev.Host(), make([]byte, 200000)
	for range 3 { // commands of the client's and of the server's at the same time
		done := make(chan error, 1)
		go func() { done <- h.DMARead(context.Background(), 0x123, got) }()
		for i := range uint32(100) {
			require.NoError(t, c.Write32(0, 0, i))
		}
		require.NoError(t, <-done)
		require.Equal(t, ram.Data[0x123:][:len(got)], got)
	}
	require.NoError(t, h.DMAWrite(context.Background(), 0x10000, got[:70000]))
	require.Equal(t, got[:70000], ram.Data[0x10000:][:70000])

	twin.Close() // the client takes no more DMA messages; its own commands continue
	require.ErrorIs(t, h.DMARead(context.Background(), 0, got), vfiouser.ErrDetached)
	require.NoError(t, c.Write32(0, 0, 1))
}

// TestTwinSocketWaitsForRoom: while the server has too many descriptors to close it reads no more replies
// to DMA messages, and then goes on.
func TestTwinSocketWaitsForRoom(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: patience})
	ram := alloc(t, 1<<12)
	c, twin := dialTwin(t, r, ram)
	refused := append(header(wire.DeviceSetIRQs, 36, 0), make([]byte, 20)...)
	fd, end := lingeringUntil(t)
	r.dev.locked(func() { // while the server does not read
		require.NoError(t, c.Send(wire.Append(header(wire.RegionRead, 32, 0), wire.RegionAccess{Count: 4})))
		require.NoError(t, c.Send(refused, fd))
		unix.Close(fd)
	})
	many := slices.Repeat([]int{eventfd(t).FD}, 16)
	for range 4 {
		require.NoError(t, c.Send(refused, many...))
	}
	_, err := c.Recv()
	require.NoError(t, err)
	for range 1 + 4 {
		requireError(t, c, syscall.EINVAL)
	}
	asked := make(chan struct{}, 2)
	twin.OnDMA(func(wire.Command, uint64, int) error { asked <- struct{}{}; return nil })
	got := make([]byte, 8)
	require.NoError(t, r.dev.Host().DMARead(t.Context(), 0, got)) // by a receive that began before
	<-asked
	done := make(chan error, 1)
	go func() { done <- r.dev.Host().DMARead(t.Context(), 0, got) }()
	select {
	case err := <-done:
		t.Fatalf("answered without room: %v", err)
	case <-asked:
	}
	end()
	require.NoError(t, <-done)
}
