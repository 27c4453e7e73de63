package vfiouser_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
		{"program", open("/proc/self/exe", unix.O_RDONLY), client.Readable, no, nil},
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
			require.NoError(t, c.Close())
		}
	}
	require.EqualValues(t, 6, strict.srv.Stats().DMARefused[vfiouser.DMAFiles])
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

// TestFileThatNeverAnswers: a client gives a file whose file system answers nothing. The server
// refuses it without asking that file system. It holds few, and its end waits for none.
func TestFileThatNeverAnswers(t *testing.T) {
	fd, _, abort := silentFile(t, 0)
	r := newRig(t, newDevice(t), vfiouser.Options{})
	defer abort() // else the rig waits for the descriptors
	c := r.dial(nil)
	const most = 64 // that the server holds
	held := func() (n int) {
		for _, f := range openFDs(t) {
			if strings.HasSuffix(f, "/memory") {
				n++
			}
		}
		return n // the client's own counts for the one whose close waits, which has no number any more
	}
	request := wire.Append(header(wire.DMAMap, 48, 0), wire.DMAMapRequest{Argsz: 32, Flags: wire.DMARdAllowed, Size: 0x1000})
	for range 2 * most {
		require.NoError(t, c.Send(request, fd))
	}
	eventually(t, "the server takes descriptors", func() bool { return held() == most })
	prompt(t, "Close", func() { require.NoError(t, r.srv.Close()) })
	require.Equal(t, most, held())
	require.EqualValues(t, most, r.srv.Stats().DMARefused[vfiouser.DMAFiles])
}

// TestFileIO: a range for file I/O shows the bytes of its file, and writes go to their place, also when the
// client sets O_APPEND; the file gets no longer. One in memory is mapped, as often as the client likes. It
// fails where the file is too short.
func TestFileIO(t *testing.T) {
	const page, fileIO = 0x1000, client.ReadWrite | wire.DMAUseFileIO
	disk, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	require.NoError(t, err)
	defer disk.Close()
	for name, fd := range map[string]int{"memory": alloc(t, 4*page).FD, "disk": int(disk.Fd())} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newDevice(t), vfiouser.Options{AnyDMAFile: true, MaxDMAAlloc: 8 * page, MaxDMAMappings: 8})
			c, file := r.dial(nil), &client.Memory{FD: fd}
			require.NoError(t, unix.Ftruncate(fd, 4*page))
			for range 20 { // more than mappings or the bound suffice for, unless all come back
				require.NoError(t, c.Map(0, file, page, page, fileIO))
				require.NoError(t, c.Unmap(0, page))
			}
			for i := range uint64(3) {
				require.NoError(t, c.Map(i*page, file, (1+i)*page, page, fileIO))
			}
			mem, want, got := r.dev.Host().Memory(), []byte("a word"), make([]byte, 6)
			_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
			require.Equal(t, err == nil, mem.Ranges()[0].Mapped)
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND)
			require.NoError(t, err)
			require.NoError(t, mem.Copy(page-3, want, true))
			_, err = unix.Pread(fd, got, 2*page-3)
			require.NoError(t, err)
			require.Equal(t, want, got)
			clear(got)
			require.NoError(t, mem.Copy(page-3, got, false))
			require.Equal(t, want, got)
			var st unix.Stat_t
			require.NoError(t, unix.Fstat(fd, &st))
			require.EqualValues(t, 4*page, st.Size)
			require.Equal(t, syscall.EINVAL, c.Map(4*page, file, 4*page, page, fileIO))
			require.NoError(t, unix.Ftruncate(fd, 2*page))
			require.ErrorIs(t, mem.Copy(page+4, got, false), vfiouser.ErrFault)
			require.NoError(t, c.UnmapAll())
			require.ErrorIs(t, mem.Copy(page, got, false), vfiouser.ErrNotMapped)
		})
	}
}

// TestFileIOThatNeverAnswers: while a copy waits for a client's file, nothing but the range's removal
// does.
func TestFileIOThatNeverAnswers(t *testing.T) {
	fd, reads, abort := silentFile(t, 1<<20)
	r := newRig(t, newDevice(t), vfiouser.Options{AnyDMAFile: true})
	c, ram := r.dial(nil), alloc(t, 0x1000)
	stuck := make(chan error)
	require.NoError(t, c.Map(0x1000, ram, 0, 0x1000, client.ReadWrite))
	require.NoError(t, c.Map(0, &client.Memory{FD: fd}, 0, 0x1000, client.Readable|wire.DMAUseFileIO))
	mem := r.dev.Host().Memory()
	go func() { stuck <- mem.Copy(0, make([]byte, 8), false) }()
	<-reads
	require.NoError(t, mem.Copy(0x1000, make([]byte, 8), true))
	unmapped := make(chan error, 1)
	go func() { unmapped <- c.Unmap(0x1000, 0x1000) }()
	select {
	case err := <-unmapped:
		require.NoError(t, err)
	case <-stuck:
		t.Fatal("another range's removal waited")
	}
	abort()
	require.ErrorIs(t, <-stuck, vfiouser.ErrFault)
	require.NoError(t, c.Unmap(0, 0x1000))
}

// silentFile opens a file in a FUSE file system that answers nothing from then on but opens; the system
// knows its attributes for so many seconds. The first read closes reads. After abort, which comes by itself
// if the test hangs, nothing waits for it: else the process could not even be killed.
func silentFile(t *testing.T, known uint64) (fd int, reads <-chan struct{}, abort func()) {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev)); err != nil {
		unix.Close(dev)
		t.Skipf("no FUSE: %v", err)
	}
	opened, read, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		answerFUSE(dev, known, opened, read)
	}()
	fd, err = unix.Open(filepath.Join(dir, "memory"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	close(opened)
	abort = sync.OnceFunc(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE)) })
	late := time.AfterFunc(20*time.Second, abort)
	t.Cleanup(func() {
		late.Stop()
		abort()
		unix.Close(fd)
		unix.Close(dev)
		<-ended
	})
	require.NoError(t, err)
	return fd, read, abort
}

// answerFUSE answers what an open of a file asks, and then only opens. It closes reads at the first read.
func answerFUSE(dev int, known uint64, silent <-chan struct{}, reads chan<- struct{}) {
	const lookup, getattr, open, read, initialize = 1, 3, 14, 15, 26
	firstRead := sync.OnceFunc(func() { close(reads) })
	le := binary.LittleEndian
	attr := func(ino uint64, mode uint32) []byte {
		b := make([]byte, 88)
		le.PutUint64(b, ino)
		le.PutUint64(b[8:], 1<<20)
		le.PutUint32(b[60:], mode)
		le.PutUint32(b[64:], 1)
		return b
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(dev, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT:
			continue
		case err != nil || n < 40:
			return
		}
		op := le.Uint32(buf[4:])
		if op == read {
			firstRead()
		}
		select {
		case <-silent:
			if op != open {
				continue
			}
		default:
		}
		var out []byte
		switch op {
		case initialize:
			out = make([]byte, 64)
			le.PutUint32(out, 7)
			le.PutUint32(out[4:], 31)
			le.PutUint32(out[20:], 1<<12)
		case lookup:
			out = make([]byte, 40)
			le.PutUint64(out, 2)
			le.PutUint64(out[24:], known)
			out = append(out, attr(2, unix.S_IFREG|0o600)...)
		case getattr:
			out = make([]byte, 16)
			out = append(out, attr(le.Uint64(buf[16:]), unix.S_IFDIR|0o700)...)
		case open:
			out = make([]byte, 16)
		default:
			continue
		}
		head := make([]byte, 16)
		le.PutUint32(head, uint32(16+len(out)))
		copy(head[8:], buf[8:16])
		if _, err := unix.Write(dev, append(head, out...)); err != nil {
			return
		}
	}
}
