package isolation

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestWritesAfterDisconnect: a client disconnects and continues to write to the windows
// that it mapped, and its channel to copy, while the server scrubs its memory. The next client
// reads zeros.
func TestWritesAfterDisconnect(t *testing.T) {
	for i, chip := range rig.Chips {
		t.Run(chip.Device.Name(), func(t *testing.T) {
			r := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 8 << 30}})
			window := []uint32{0x1700, 0x10fd40}[i]
			writesAfterDisconnect(t, chip, r.AddChip(chip, aggregator.GuestConfig{Name: "a", Map: aperture.MapPRAMIN}), window)
		})
	}
}

func writesAfterDisconnect(t *testing.T, chip rig.Chip, endpoint *testserver.Endpoint, window uint32) {
	const pramin, praminSize, far = 0x700000, 1 << 20, 32 << 20 // of both chips; no driver has something there
	dial := func() (c *client.Client) {
		require.Eventually(t, func() bool { // the server may not have ended the previous client
			var err error
			c, err = client.Dial(endpoint.Socket, nil)
			return err == nil
		}, wait, tick/10)
		return c
	}
	for range scale.Of(5, 20) {
		v, err := copier(chip, endpoint, 1)
		require.NoError(t, err)
		v.Fill()
		require.NoError(t, v.Ch.Copy(v.Via, v.Src, rig.CopySize))
		require.NoError(t, v.Ch.Lines(v.Via+rig.CopySize, v.Via, rig.CopySize, 1<<32-1))
		require.NoError(t, v.Raw().SetReg(window, far>>16))
		c := v.Raw().Client()
		r, err := c.RegionInfo(vfiouser.RegionBAR0)
		require.NoError(t, err)
		var windows [][]byte
		for _, a := range r.Areas {
			mem, err := r.Mmap(a)
			require.NoError(t, err)
			windows = append(windows, mem)
		}
		require.NotEmpty(t, windows)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, mem := range windows {
					for at := 0; at < len(mem); at += 4096 {
						mem[at] = 0x5a
					}
				}
			}
		}()
		// Its writes reach memory of its GPU.
		require.Eventually(t, func() bool {
			var p [8]byte
			require.NoError(t, c.Read(vfiouser.RegionBAR0, pramin, p[:]))
			return p[0] == 0x5a
		}, wait, tick/10)
		require.NoError(t, r.File.Close())
		require.NoError(t, v.Close())
		require.Eventually(t, func() bool { return !endpoint.HasClient() }, wait, time.Millisecond)
		close(stop)
		<-done
		for _, mem := range windows {
			require.NoError(t, unix.Munmap(mem))
		}
		c = dial()
		p := make([]byte, 64<<10)
		for _, at := range []uint64{0, praminSize, 2 * praminSize, far} { // what drivers take first, and the window
			require.NoError(t, c.Write(vfiouser.RegionBAR0, uint64(window), binary.LittleEndian.AppendUint32(nil, uint32(at>>16))))
			for off := uint64(0); off < praminSize; off += uint64(len(p)) {
				require.NoError(t, c.Read(vfiouser.RegionBAR0, pramin+off, p))
				require.True(t, bytes.Equal(p, make([]byte, len(p))), "memory near %#x is as the last client left it", at+off)
			}
		}
		require.NoError(t, c.Close())
	}
}
