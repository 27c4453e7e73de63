package vfiouser_test

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// FuzzStream feeds a server any bytes, with descriptors in between, and then checks that it
// is intact: whole replies, no panic, no descriptor or goroutine left, the next client served. cuts has the length of each write and its number of descriptors;
// negotiated has the version agreed before.
func FuzzStream(f *testing.F) {
	raws, _ := script(f)
	var all []byte
	for _, raw := range raws {
		f.Add(raw, []byte{1, 2}, true)
		f.Add(raw, []byte{}, false)
		all = append(all, raw...)
	}
	f.Add(all, []byte{213, 0, 47, 1, 31, 0, 47, 0, 35, 2, 0, 0, 255, 0}, false)
	f.Add(header(wire.RegionRead, 3, 0), []byte{}, true)
	f.Add(header(wire.DMARead, 1<<20, wire.TypeReply), []byte{9, 0}, true)
	f.Add(message(wire.DeviceFeature, 0, le.AppendUint64(wire.Append(nil, wire.Feature{Argsz: 64, Flags: wire.FeatureSet | wire.FeatureMigDeviceState}), 3)), []byte{}, true)
	multi := wire.Append(le.AppendUint64(nil, 1), wire.RegionAccess{Count: 8})
	f.Add(message(wire.RegionWriteMulti, 0, append(multi, 1, 2, 3, 4, 5, 6, 7, 8)), []byte{16, 1}, true)
	f.Add(message(wire.DMAMap, 0, wire.Append(nil, wire.DMAMapRequest{Argsz: 32, Flags: 3, Addr: ^uint64(0xfff), Size: 0x1000})), []byte{255, 2}, true)

	dev := newMigDevice(f)
	dev.regions[0].Size = 0x800 // without the offsets that panic
	srv, err := vfiouser.NewServer(dev, vfiouser.Options{DMATimeout: time.Second})
	require.NoError(f, err)
	f.Cleanup(func() { srv.Close() })
	ram, event := alloc(f, 1<<16), eventfd(f)

	f.Fuzz(func(t *testing.T, stream, cuts []byte, negotiated bool) {
		fds, goroutines := countFDs(t), runtime.NumGoroutine()
		fd, done := connect(t, srv)
		c, err := client.NewFD(fd, &client.Options{NoVersion: true})
		require.NoError(t, err)
		read := make(chan error, 1)
		go func() { // takes the replies, so that the server does not wait
			for {
				m, err := c.RecvAny()
				if err != nil {
					read <- err
					return
				}
				for _, fd := range m.FDs {
					unix.Close(fd)
				}
			}
		}()
		if negotiated {
			_, err := unix.Write(fd, raws[0])
			require.NoError(t, err)
		}
		for len(stream) > 0 {
			n, with := len(stream), 0
			if len(cuts) >= 2 {
				n, with, cuts = min(int(cuts[0])+1, n), int(cuts[1])%20, cuts[2:]
			}
			var rights []byte
			if with > 0 {
				rights = unix.UnixRights(slices.Repeat([]int{ram.FD, event.FD}, 10)[with%2:][:with]...)
			}
			if _, err := unix.SendmsgN(fd, stream[:n], rights, nil, unix.MSG_NOSIGNAL); err != nil {
				break // the server closed a stream that it could not follow
			}
			stream = stream[n:]
		}
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		<-done
		require.NotErrorIs(t, <-read, client.ErrProtocol)
		c.Close()
		require.Zero(t, srv.Stats().Panics)
		for end := time.Now().Add(patience); countFDs(t) != fds || runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("descriptors: %d, were %d; goroutines: %d, were %d", countFDs(t), fds, runtime.NumGoroutine(), goroutines)
			}
		}
	})
}

func countFDs(t testing.TB) int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(dir)
}
