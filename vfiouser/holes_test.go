package vfiouser_test

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// allocated is how many bytes of pages a file has.
func allocated(t testing.TB, m *client.Memory) uint64 {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD, &st))
	return uint64(st.Blocks) * 512
}

func punch(t testing.TB, m *client.Memory, off, n int64) {
	require.NoError(t, unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n))
}

// TestAllocationIsBounded: accesses of the device to pages that the client's files do not have
// allocate as many as they may, whatever the client does with its files, and then fail, also for the
// next client. Pages that the client has populated count nothing.
func TestAllocationIsBounded(t *testing.T) {
	const page, most, size = 0x1000, 64, 1 << 20
	for _, c := range []struct {
		name string
		// touch accesses a page that the device has to allocate, for the i-th time.
		touch func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error
	}{
		{"sparse file, write", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			return m.Copy(i*page+123, []byte{1}, true)
		}},
		{"sparse file, read", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			return m.Copy(i*page+123, make([]byte, 2), false)
		}},
		{"page before a hole", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			_, err := unix.Pwrite(ram.FD, []byte("data"), int64(2*i*page))
			require.NoError(t, err)
			return m.Copy(2*i*page, make([]byte, page+1), true)
		}},
		{"hole punched again and again", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			_, err := unix.Pwrite(ram.FD, []byte("data"), 0)
			require.NoError(t, err)
			require.NoError(t, m.Copy(0, make([]byte, 4), false))
			punch(t, ram, 0, page)
			return m.Copy(0, []byte{1}, true)
		}},
		{"file shortened and lengthened", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			require.NoError(t, unix.Ftruncate(ram.FD, 0))
			require.NoError(t, unix.Ftruncate(ram.FD, size))
			return m.Copy(0, []byte{1}, true)
		}},
		{"range for reading", func(t *testing.T, m *vfiouser.Memory, ram *client.Memory, i uint64) error {
			return m.Copy(size+i*page, make([]byte, 1), false)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := new(lines)
			r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAAlloc: most * page, Log: slog.New(slog.NewTextHandler(log, nil))})
			cl := r.dial(nil)
			ram, read := sparse(t, size, 0), sparse(t, size, 0)
			require.NoError(t, cl.Map(0, ram, 0, size, client.ReadWrite))
			require.NoError(t, cl.Map(size, read, 0, size, client.Readable))
			m := r.dev.Host().Memory()
			for i := range uint64(most) {
				require.NoError(t, c.touch(t, m, ram, i), i)
			}
			for i := range uint64(10) {
				require.ErrorIs(t, c.touch(t, m, ram, most+i), vfiouser.ErrFault)
			}
			cl.Close()
			cl = r.dial(nil) // whoever has the file's descriptor keeps the pages
			require.NoError(t, cl.Map(0, ram, 0, size, client.ReadWrite))
			require.NoError(t, cl.Map(size, read, 0, size, client.Readable))
			m = r.dev.Host().Memory()
			require.ErrorIs(t, c.touch(t, m, ram, most+10), vfiouser.ErrFault)
			require.EqualValues(t, 11, r.srv.Stats().DMARefused[vfiouser.DMAAlloc])
			require.Positive(t, log.count(fmt.Sprintf("rule=dma_alloc_refused max=%d", most*page)))
			require.LessOrEqual(t, allocated(t, read), uint64(most*page))

			require.NoError(t, unix.Fallocate(ram.FD, 0, 0, size)) // as QEMU does with prealloc=on
			require.NoError(t, m.Copy(0, make([]byte, size), true))
			_, err := cl.Info()
			require.NoError(t, err)
		})
	}
}

// TestAllocationOfReadOnlyFile: the kernel cannot watch a descriptor without the right to write, so
// all of its range counts.
func TestAllocationOfReadOnlyFile(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAAlloc: 0x10000})
	c := r.dial(nil)
	ram := sparse(t, 1<<20, 0)
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", ram.FD), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	read := &client.Memory{FD: fd}
	require.Equal(t, syscall.ENOSPC, c.Map(0, read, 0, 0x11000, client.Readable))
	require.EqualValues(t, 1, r.srv.Stats().DMARefused[vfiouser.DMAAlloc])
	require.NoError(t, c.Map(0, read, 0, 0xf000, client.Readable))
	m := r.dev.Host().Memory()
	require.NoError(t, m.Copy(0, make([]byte, 0xf000), false))
	require.NoError(t, c.Map(0x20000, ram, 0x20000, 0x10000, client.ReadWrite))
	require.NoError(t, m.Copy(0x20000, []byte{1}, true))
	require.ErrorIs(t, m.Copy(0x21000, []byte{1}, true), vfiouser.ErrFault)
	require.EqualValues(t, 0x10000, allocated(t, ram))
}

// TestAllocationWhileHolesArePunched: a client punches holes while the device copies. Copies work or
// fault, and together allocate no more than they may.
func TestAllocationWhileHolesArePunched(t *testing.T) {
	const size, most = 1 << 20, 4 << 20
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAAlloc: most})
	c := r.dial(nil)
	ram := sparse(t, size, 0)
	require.NoError(t, c.Map(0, ram, 0, size, client.ReadWrite))
	m := r.dev.Host().Memory()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				punch(t, ram, 0, size)
			}
		}
	}()
	for r.srv.Stats().DMARefused[vfiouser.DMAAlloc] == 0 {
		if err := m.Copy(0, make([]byte, size), true); err != nil {
			require.ErrorIs(t, err, vfiouser.ErrFault)
		}
	}
	close(stop)
	<-ended
	punch(t, ram, 0, size)
	require.ErrorIs(t, m.Copy(0, make([]byte, size), true), vfiouser.ErrFault)
	require.LessOrEqual(t, allocated(t, ram), uint64(size))
}
