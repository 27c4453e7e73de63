package vfiouser_test

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestHugePages: ranges of a file of huge pages, of any size, take whole huge pages of addresses and
// give all of them back.
func TestHugePages(t *testing.T) {
	const huge = 2 << 20
	ram := sparse(t, 2*huge, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	reserve(t, ram, 3, huge)
	servers := func() uint64 { return mappedBytes(t, ram) - 3*huge }
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAMappings: 8, MaxDMAMemory: 4 * huge})
	c := r.dial(nil)
	m := r.dev.Host().Memory()
	for i := range 20 { // more than mappings and addresses suffice for, unless all come back
		require.NoError(t, c.Map(0x1000, ram, huge-0x1000, 0x2000, client.ReadWrite))
		require.EqualValues(t, 2*huge, servers())
		require.NoError(t, m.Copy(0x1000, []byte{byte(i)}, true))
		got := make([]byte, 1)
		_, err := unix.Pread(ram.FD, got, huge-0x1000)
		require.NoError(t, err)
		require.EqualValues(t, i, got[0])
		require.NoError(t, c.Map(0x10000, ram, huge, 0x1000, client.Readable), "shares the mapping")
		require.NoError(t, unix.Ftruncate(ram.FD, 3*huge))
		require.NoError(t, c.Map(0x20000, ram, 2*huge+0x3000, 0x1000, client.ReadWrite), "where the file has grown")
		require.EqualValues(t, 3*huge, servers())
		require.NoError(t, c.UnmapAll())
		require.Zero(t, servers())
	}
	require.Zero(t, r.srv.Stats().Panics)
}

// reserve maps n huge pages of a file. It skips the test if the system has too few and lets nobody add
// any.
func reserve(t *testing.T, m *client.Memory, n, huge int) {
	const path = "/proc/sys/vm/nr_hugepages"
	mem, err := unix.Mmap(m.FD, 0, n*huge, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		had, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		if os.WriteFile(path, fmt.Append(nil, had+n), 0) == nil {
			t.Cleanup(func() { _ = os.WriteFile(path, fmt.Append(nil, had), 0) })
		}
		if mem, err = unix.Mmap(m.FD, 0, n*huge, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			t.Skipf("no huge pages: %v", err)
		}
	}
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
}

// TestOnlyMemoryIsMapped: guest memory is a memfd or a file of tmpfs; other files are refused, counted
// and logged, unless an option permits them.
func TestOnlyMemoryIsMapped(t *testing.T) {
	log := new(lines)
	o := vfiouser.Options{Log: slog.New(slog.NewTextHandler(log, nil))}
	strict := newRig(t, newDevice(t), o)
	o.AnyDMAFile = true
	anyFile := newRig(t, newDevice(t), o)
	open := func(path string, flags int) *client.Memory {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return &client.Memory{FD: fd}
	}
	ram := alloc(t, 0x1000)
	ramPath := fmt.Sprintf("/proc/self/fd/%d", ram.FD)
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])

	const no = syscall.EOPNOTSUPP
	for _, f := range []struct {
		name        string
		m           *client.Memory
		rights      uint32
		strict, any error
	}{
		{"memfd", ram, client.ReadWrite, nil, nil},
		{"memfd for reading", open(ramPath, unix.O_RDONLY), client.Readable, nil, nil},
		{"memfd for reading, to write", open(ramPath, unix.O_RDONLY), client.ReadWrite, syscall.EACCES, syscall.EACCES},
		{"memfd without rights", open(ramPath, unix.O_PATH), client.Readable, no, syscall.EBADF},
		{"memfd for file I/O", ram, client.ReadWrite | wire.DMAUseFileIO, nil, nil},
		{"program", open("/proc/self/exe", unix.O_RDONLY), client.Readable, no, nil},
		{"program for file I/O", open("/proc/self/exe", unix.O_RDONLY), client.Readable | wire.DMAUseFileIO, no, no},
		{"procfs", open("/proc/self/status", unix.O_RDONLY), client.Readable, no, syscall.EINVAL},
		{"zero device, which a tmpfs holds", open("/dev/zero", unix.O_RDWR), client.ReadWrite, no, nil},
		{"folder", open("/dev/shm", unix.O_RDONLY), client.Readable, no, syscall.ENODEV},
		{"pipe", &client.Memory{FD: pipe[0]}, client.Readable, no, syscall.ENODEV},
	} {
		for _, r := range []struct {
			rig  *rig
			want error
		}{{strict, f.strict}, {anyFile, f.any}} {
			c := r.rig.dial(nil)
			require.Equal(t, r.want, c.Map(0, f.m, 0, 0x1000, f.rights), f.name)
			for _, m := range r.rig.dev.Host().Memory().Ranges() {
				require.True(t, m.Mapped, f.name)
			}
			require.NoError(t, c.Close())
		}
	}
	require.EqualValues(t, 7, strict.srv.Stats().DMARefused[vfiouser.DMAFiles])
	require.Positive(t, log.count("rule="+vfiouser.DMAFiles.String()+" address=0x0 size=0x1000"))
	require.Positive(t, log.count("set dma-any-file"))
}

// TestUnmapInPieces: munmap finds no page of a range that the device has touched, when the client
// takes it back, and when the client ends.
func TestUnmapInPieces(t *testing.T) {
	const size = 5<<20 + 0x3000
	for _, bound := range []uint64{0, size} {
		r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAAlloc: bound})
		c := r.dial(nil)
		memory := r.dev.Host().Memory()
		var touched, left []int
		memory.Watch(func(change vfiouser.MemoryChange) {
			if change.Removed {
				touched = append(touched, vfiouser.Resident(change.Bytes))
			}
			memory.OnMunmap(func(n int) { left = append(left, n) })
		})
		ram := alloc(t, size)
		for _, end := range []func() error{func() error { return c.Unmap(0, size) }, r.srv.Close} {
			require.NoError(t, c.Map(0, ram, 0, size, client.ReadWrite))
			require.NoError(t, memory.Copy(0, make([]byte, size), true))
			require.NoError(t, end())
		}
		require.Equal(t, []int{size / 4096, size / 4096}, touched)
		require.Equal(t, []int{0, 0}, left)
	}
}

// TestFileThatNeverAnswers: a file system of the client's may answer nothing. The server refuses a file
// without asking its file system.
func TestFileThatNeverAnswers(t *testing.T) {
	d := newDevice(t)
	c := newRig(t, d, vfiouser.Options{}).dial(nil)
	d.locked(func() {
		d.onRead = func(int, uint64, []byte) error { // on the thread that serves the client, which ends with it
			refuse(t, unix.SYS_FSTAT)
			refuse(t, unix.SYS_FSTATFS)
			return nil
		}
	})
	_, err := c.Read32(0, 0)
	require.NoError(t, err)
	require.Equal(t, syscall.EPERM, c.Map(0, alloc(t, 0x1000), 0, 0x1000, client.Readable), "memory is asked")
	disk, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer disk.Close()
	require.Equal(t, syscall.EOPNOTSUPP, c.Map(0, &client.Memory{FD: int(disk.Fd())}, 0, 0x1000, client.Readable))
}
