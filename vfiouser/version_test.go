package vfiouser_test

import (
	"context"
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

// TestVersionRefused: the conformance suite has the other proposals that are refused.
func TestVersionRefused(t *testing.T) {
	r := newRig(t, newMigDevice(t), vfiouser.Options{})
	c := r.rawDial()
	for _, text := range []string{
		"", "{}x", `{"capabilities": null}`,
		`{"capabilities": {"max_msg_fds": 1025}}`,
		`{"capabilities": {"migration": {"pgsize": 8192}}}`,
	} {
		_, err := c.Call(wire.Version, []byte("\x00\x00\x00\x00"+text+"\x00"))
		require.Equal(t, syscall.EINVAL, err, text)
	}
	_, err := c.Info()
	require.Equal(t, syscall.EINVAL, err)
	require.Nil(t, r.dev.Host(), "a device is attached before the version is agreed")
	_, err = c.Call(wire.Version, []byte(qemuVersion))
	require.NoError(t, err)
}

func TestVersionReply(t *testing.T) {
	const full = `{"capabilities":{"max_msg_fds":16,"write_multiple":true,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096}}` + "\x00"
	const one = `{"capabilities":{"max_msg_fds":16}}` + "\x00"
	unasked := strings.Replace(full, `"write_multiple":true,`, "", 1)
	for name, tt := range map[string]struct {
		o             vfiouser.Options
		request, want string
	}{
		"QEMU 11.1.3":                   {request: qemuVersion, want: full},
		"no write_multiple offered":     {vfiouser.Options{NoWriteMulti: true}, qemuVersion, unasked},
		"no write_multiple proposed":    {request: strings.Replace(qemuVersion, "true", "false", 1), want: unasked},
		"no room":                       {request: "\x00\x00\x00\x00"},
		"room for one":                  {request: "\x00\x00\x00\x00{" + strings.Repeat(" ", len(one)-3) + "}\x00", want: one},
		"no descriptor for twin socket": {request: "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":0,"twin_socket":{"supported":true}}}` + strings.Repeat(" ", 40) + "\x00", want: unasked},
	} {
		m, err := newRig(t, newDevice(t), tt.o).rawDial().Call(wire.Version, []byte(tt.request))
		require.NoError(t, err, name)
		require.Equal(t, "\x00\x00\x00\x00"+tt.want, string(m.Payload), name) // QEMU reads it into the request's buffer
	}
	require.Len(t, qemuVersion, 214-wire.HeaderSize)
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
