package vfiouser_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// inode is how the system's list of mappings names a file.
func inode(t require.TestingT, m *client.Memory) string {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD, &st))
	return fmt.Sprintf(" %d ", st.Ino)
}

// sparse makes a memfd of n bytes that has no pages, and no mapping of the client's.
func sparse(t *testing.T, n int64, flags int) *client.Memory {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC|flags)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, n))
	return &client.Memory{FD: fd}
}

// mappedBytes is how many bytes of addresses this process has for files.
func mappedBytes(t require.TestingT, files ...*client.Memory) (n uint64) {
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for _, f := range files {
		id := inode(t, f)
		for line := range strings.SplitSeq(string(text), "\n") {
			if !strings.Contains(line, id) {
				continue
			}
			var from, to uint64
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			require.NoError(t, err)
			n += to - from
		}
	}
	return n
}

// TestOnlyTheRangeIsMapped: a range takes its own bytes of this process's addresses, however large
// its file is, unless the client runs out of mappings and its limit permits the whole file.
func TestOnlyTheRangeIsMapped(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAMappings: 4, MaxDMAMemory: 1 << 30})
	c := r.dial(nil)
	huge, small := sparse(t, 4<<40, 0), sparse(t, 1<<20, 0)
	require.NoError(t, c.Map(0, huge, 1<<40, 0x2000, client.ReadWrite))
	require.EqualValues(t, 0x2000, mappedBytes(t, huge))
	require.NoError(t, c.Map(0x10000, small, 0x1000, 0x1000, client.ReadWrite))
	require.EqualValues(t, 0x1000, mappedBytes(t, small))
	require.NoError(t, c.Map(0x20000, huge, 0x10000, 0x1000, client.ReadWrite), "half of the mappings are taken, but the file is too large")
	require.EqualValues(t, 0x3000, mappedBytes(t, huge))
	require.NoError(t, c.Map(0x30000, small, 0x3000, 0x1000, client.ReadWrite))
	require.EqualValues(t, 1<<20+0x1000, mappedBytes(t, small), "the whole file")
	require.NoError(t, c.Map(0x40000, small, 0x8000, 0x1000, client.ReadWrite), "shares that mapping")
	require.NoError(t, unix.Ftruncate(small.FD, 1<<21))
	require.Equal(t, syscall.ENOSPC, c.Map(0x50000, small, 1<<20, 0x1000, client.ReadWrite), "where the file has grown")
	require.NoError(t, r.dev.Host().Memory().Copy(0x30000, []byte("mark"), true))
	got := make([]byte, 4)
	_, err := unix.Pread(small.FD, got, 0x3000)
	require.NoError(t, err)
	require.Equal(t, "mark", string(got))
	require.NoError(t, c.UnmapAll())
	require.Zero(t, mappedBytes(t, huge)+mappedBytes(t, small))
}

// TestClientCannotTakeAllAddresses: a client that maps one sparse file after the other gets its limit of
// this process's mappings and addresses, an errno for the rest, and one line of the log. Ranges that need
// none of their own are not refused. Another client has the same limit, and what is freed can be used again.
func TestClientCannotTakeAllAddresses(t *testing.T) {
	const most, n = 3, 40
	for _, tt := range []struct {
		rule vfiouser.DMARule
		o    vfiouser.Options
		each uint64
		max  uint64
	}{
		{vfiouser.DMAMappings, vfiouser.Options{MaxDMAMappings: most}, 0x4000, most},
		{vfiouser.DMAMemory, vfiouser.Options{MaxDMAMemory: most * 2 << 40}, 2 << 40, most * 2 << 40},
	} {
		log := new(lines)
		tt.o.Log = slog.New(slog.NewTextHandler(log, nil))
		r, other := newRig(t, newDevice(t), tt.o), newRig(t, newDevice(t), tt.o)
		c, d := r.dial(nil), other.dial(nil)
		var files []*client.Memory
		for i := range uint64(n) {
			f := sparse(t, int64(tt.each), 0)
			files = append(files, f)
			var want error
			if i >= most {
				want = syscall.ENOSPC
			}
			require.Equal(t, want, c.Map(i*tt.each, f, 0, tt.each, client.ReadWrite))
			require.Equal(t, want == nil, mappedBytes(t, f) > 0)
		}
		require.EqualValues(t, n-most, r.srv.Stats().DMARefused[tt.rule])
		require.Equal(t, 1, log.count(fmt.Sprintf("rule=%v address=%#x size=%#x max=%d", tt.rule, most*tt.each, tt.each, tt.max)))
		require.NoError(t, c.Map(n*tt.each, files[0], 0x1000, 0x1000, client.ReadWrite), "a part of a range that is mapped")
		require.NoError(t, c.MapNoFD((n+1)*tt.each, files[0], 0, tt.each, client.ReadWrite), "by message")
		require.NoError(t, d.Map(0, files[most], 0, tt.each, client.ReadWrite), "another client")
		require.NoError(t, c.Unmap(tt.each, tt.each))
		require.NoError(t, c.Map(most*tt.each, files[most], 0, tt.each, client.ReadWrite), "what was freed")
		require.Equal(t, syscall.ENOSPC, c.Map(tt.each, files[1], 0, tt.each, client.ReadWrite))
	}
}

// TestMappingsAgainstTwin maps and unmaps ranges of a few files with any rights, and holds what
// is refused against a list of mappings, and the list against the system's.
func TestMappingsAgainstTwin(t *testing.T) {
	const most = 4
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAMappings: most})
	var files []*client.Memory
	for range 4 {
		files = append(files, alloc(t, 0x10000))
	}
	type mapping struct {
		file   int
		rights uint32
		page   uint64 // its only one, or
		whole  bool
		ranges map[uint64]bool // pages
	}
	rapid.Check(t, func(t *rapid.T) {
		c, err := client.Dial(r.path, nil)
		require.NoError(t, err)
		defer c.Close()
		var twin []*mapping
		// has is the mapping that a range of the file can be part of.
		has := func(file int, rights uint32, page uint64) *mapping {
			for _, m := range twin {
				if m.file == file && (m.rights == rights || m.rights == client.ReadWrite) && (m.whole || m.page == page) {
					return m
				}
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				at, page := uint64(rapid.IntRange(0, 9).Draw(t, "at")), uint64(rapid.IntRange(0, 9).Draw(t, "page"))
				file, rights := rapid.IntRange(0, 3).Draw(t, "file"), uint32(rapid.IntRange(1, 3).Draw(t, "rights"))
				for _, m := range twin {
					if m.ranges[at] {
						return // TestMapAgainstTwin has what overlaps
					}
				}
				m := has(file, rights, page)
				var want error
				switch {
				case m != nil:
				case len(twin) == most:
					want = syscall.ENOSPC
				default:
					m = &mapping{file, rights, page, len(twin) >= most/2, map[uint64]bool{}}
					twin = append(twin, m)
				}
				require.Equal(t, want, c.Map(at<<12, files[file], page<<12, 0x1000, rights))
				if want == nil {
					m.ranges[at] = true
				}
			},
			"unmap": func(t *rapid.T) {
				at, n := uint64(rapid.IntRange(0, 9).Draw(t, "at")), uint64(rapid.IntRange(1, 3).Draw(t, "n"))
				twin = slices.DeleteFunc(twin, func(m *mapping) bool {
					maps.DeleteFunc(m.ranges, func(r uint64, _ bool) bool { return r >= at && r < at+n })
					return len(m.ranges) == 0
				})
				require.NoError(t, c.Unmap(at<<12, n<<12))
			},
			"": func(t *rapid.T) {
				want := uint64(len(files)) * 0x10000 // the client's own
				for _, m := range twin {
					want += 0x1000
					if m.whole {
						want += 0xf000
					}
				}
				require.Equal(t, want, mappedBytes(t, files...))
			},
		})
		require.NoError(t, c.UnmapAll())
		require.EqualValues(t, len(files)*0x10000, mappedBytes(t, files...))
	})
}
