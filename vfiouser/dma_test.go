package vfiouser_test

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func alloc(t testing.TB, n int) *client.Memory {
	t.Helper()
	m, err := client.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestDMAMapErrors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMARegions: 4})
	c := r.dial(nil)
	ram := alloc(t, 1<<20)
	ro, err := os.Open("/proc/self/fd/" + strconv.Itoa(ram.FD))
	require.NoError(t, err)
	defer ro.Close()
	require.NoError(t, c.Map(0x100000, ram, 0, 0x10000, client.ReadWrite))

	const none = -1
	ok := wire.DMAMapRequest{Argsz: 32, Flags: 3, Addr: 0x400000, Size: 0x1000}
	tests := []struct {
		name   string
		change func(q *wire.DMAMapRequest)
		fd     int
		err    error
	}{
		{"mmap flag without descriptor", func(q *wire.DMAMapRequest) { q.Flags |= 4 }, none, syscall.EINVAL},
		{"size 0", func(q *wire.DMAMapRequest) { q.Size = 0 }, ram.FD, syscall.EINVAL},
		{"address unaligned", func(q *wire.DMAMapRequest) { q.Addr++ }, ram.FD, syscall.EINVAL},
		{"size unaligned", func(q *wire.DMAMapRequest) { q.Size += 512 }, ram.FD, syscall.EINVAL},
		{"offset unaligned", func(q *wire.DMAMapRequest) { q.Offset = 8 }, ram.FD, syscall.EINVAL},
		{"wraps", func(q *wire.DMAMapRequest) { q.Addr, q.Size = ^uint64(0)&^0xfff, 0x2000 }, none, syscall.EINVAL},
		{"over 8 TiB", func(q *wire.DMAMapRequest) { q.Size = 8<<40 + 0x1000 }, none, syscall.ENOSPC},
		{"past the end of the file", func(q *wire.DMAMapRequest) { q.Offset, q.Size = 0xff000, 0x2000 }, ram.FD, syscall.EINVAL},
		{"offset past the end", func(q *wire.DMAMapRequest) { q.Offset = 1 << 40 }, ram.FD, syscall.EINVAL},
		{"offset wraps", func(q *wire.DMAMapRequest) { q.Offset = ^uint64(0xfff) }, ram.FD, syscall.EINVAL},
		{"same but no descriptor", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x100000, 0x10000 }, none, syscall.EEXIST},
		{"the same again", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x100000, 0x10000 }, ram.FD, nil},
		{"read of a read-only file", func(q *wire.DMAMapRequest) { q.Addr, q.Flags = 0x500000, 1 }, int(ro.Fd()), nil},
		{"the last page", func(q *wire.DMAMapRequest) { q.Addr = ^uint64(0) &^ 0xfff }, none, nil},
		{"mmap flag", func(q *wire.DMAMapRequest) { q.Flags |= 4 }, ram.FD, nil},
		{"a fifth of four", func(q *wire.DMAMapRequest) { q.Addr = 0x600000 }, none, syscall.ENOSPC},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := ok
			tt.change(&q)
			var fds []int
			if tt.fd != none {
				fds = []int{tt.fd}
			}
			m, err := c.Call(wire.DMAMap, wire.Append(nil, q), fds...)
			require.Equal(t, tt.err, err)
			require.Empty(t, m.Payload)
		})
	}
	m := r.dev.Host().Memory()
	require.Len(t, m.Ranges(), 4)
	require.ErrorIs(t, m.Copy(^uint64(0), make([]byte, 32), false), vfiouser.ErrNotMapped, "a copy that wraps")
}

// The conformance suite has what every server refuses; these are this server's choices.
func TestDMAUnmapErrors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<20)
	require.NoError(t, c.Map(0x10000, ram, 0, 0x10000, client.ReadWrite))
	require.NoError(t, c.MapNoFD(0x20000, ram, 0, 0x10000, client.ReadWrite))
	for name, u := range map[string]wire.DMAUnmapRequest{
		"argsz over 1 MiB": {Argsz: 1<<20 + 1, Addr: 0x10000, Size: 0x10000},
		"two together":     {Argsz: 24, Addr: 0x10000, Size: 0x20000},
		"flags 3":          {Argsz: 24, Flags: 3},
		"dirty bitmap of a device that does not migrate": {Argsz: 48, Flags: 1, Addr: 0x10000, Size: 0x10000},
	} {
		_, err := c.Call(wire.DMAUnmap, wire.Append(nil, u))
		want := syscall.EINVAL
		if name == "two together" {
			want = syscall.ENOENT
		}
		require.Equal(t, want, err, name)
	}
	require.Len(t, r.dev.Host().Memory().Ranges(), 2)
}

// lines is a log that a test reads while the server writes it.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(string(l.text), text)
}

// TestMemoryThatIsNotShared: a client that keeps its memory private is logged once, with
// the remedy; one that keeps only firmware and device memory private is not.
func TestMemoryThatIsNotShared(t *testing.T) {
	ram := alloc(t, 64<<20)
	for name, shared := range map[string]bool{"off": false, "on": true} {
		t.Run(name, func(t *testing.T) {
			log := new(lines)
			r := newRig(t, newDevice(t), vfiouser.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
			c := r.dial(nil)
			main := c.MapNoFD
			if shared {
				main = c.Map
			}
			require.NoError(t, main(0, ram, 0, 0xa0000, client.ReadWrite))
			require.NoError(t, c.MapNoFD(0xc0000, ram, 0, 0x20000, client.Readable)) // ROMs
			require.NoError(t, c.MapNoFD(0xffe0_0000, ram, 0, 2<<20, client.Readable))
			require.Zero(t, log.count("share=on"))
			require.NoError(t, main(0x100000, ram, 0x100000, 4<<20, client.ReadWrite))
			require.NoError(t, main(0x1_0000_0000, ram, 0x800000, 4<<20, client.ReadWrite))
			require.NoError(t, c.MapNoFD(0xfd00_0000, ram, 0, 16<<20, client.ReadWrite)) // a display's
			want := 1
			if shared {
				want = 0
			}
			require.Equal(t, want, log.count("memory-backend-memfd,id=mem,size=SIZE,share=on"))
		})
	}
}
