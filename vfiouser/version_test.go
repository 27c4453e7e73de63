package vfiouser_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

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
		"QEMU 11.1.3":                {request: qemuVersion, want: full},
		"no write_multiple offered":  {vfiouser.Options{NoWriteMulti: true}, qemuVersion, unasked},
		"no write_multiple proposed": {request: strings.Replace(qemuVersion, "true", "false", 1), want: unasked},
		"no room":                    {request: "\x00\x00\x00\x00"},
		"a byte too few for that":    {request: "\x00\x00\x00\x00{" + strings.Repeat(" ", len(one)-4) + "}\x00", want: `{"capabilities":{"pgsizes":4096}}` + "\x00"},
		"room for one":               {request: "\x00\x00\x00\x00{" + strings.Repeat(" ", len(one)-3) + "}\x00", want: one},
	} {
		m, err := newRig(t, newDevice(t), tt.o).rawDial().Call(wire.Version, []byte(tt.request))
		require.NoError(t, err, name)
		require.Equal(t, "\x00\x00\x00\x00"+tt.want, string(m.Payload), name) // QEMU reads it into the request's buffer
	}
	require.Len(t, qemuVersion, 214-wire.HeaderSize)
}
