package vfiouser_test

import (
	"fmt"
	"log/slog"
	"os"
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

// serverMappings is how many mappings of the files the system says that the server has. The
// clients are in the same process: each has every file mapped once.
func serverMappings(t require.TestingT, files []*client.Memory) (n int) {
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for _, f := range files {
		id := inode(t, f)
		for line := range strings.SplitSeq(string(text), "\n") {
			if strings.Contains(line, id) && strings.Contains(line, "/memfd:guest") {
				n++
			}
		}
		n--
	}
	return n
}

// TestClientCannotTakeAllMappings: a client that sends one file after the other gets its
// limit of mappings of the process, an errno for the others, and one line of the log. Ranges
// that need no mapping of their own are not refused, another client has the same limit, and
// freed mappings can be used again.
func TestClientCannotTakeAllMappings(t *testing.T) {
	const most, n = 5, 40
	log := new(lines)
	o := vfiouser.Options{MaxDMAMappings: most, Log: slog.New(slog.NewTextHandler(log, nil))}
	r, other := newRig(t, newDevice(t), o), newRig(t, newDevice(t), o)
	var files []*client.Memory
	for range n {
		files = append(files, alloc(t, 0x4000))
	}
	at := func(i int) uint64 { return uint64(i) << 20 }
	c := r.dial(nil)
	for i, f := range files {
		err := c.Map(at(i), f, 0, 0x1000, client.ReadWrite)
		if i < most {
			require.NoError(t, err)
		} else {
			require.Equal(t, syscall.ENOSPC, err)
		}
	}
	require.Equal(t, most, serverMappings(t, files))
	require.EqualValues(t, n-most, r.srv.Stats().MappingsRefused)
	require.Zero(t, r.srv.Stats().RegionsRefused)
	require.Equal(t, 1, log.count("rule="+vfiouser.RuleDMAMappings+" max=5"))

	for page := range uint64(3) {
		require.NoError(t, c.Map(at(0)+(page+1)<<12, files[0], (page+1)<<12, 0x1000, client.Readable), "a file that is mapped")
	}
	require.NoError(t, c.MapNoFD(at(most), files[most], 0, 0x1000, client.ReadWrite), "by message")
	require.Equal(t, most, serverMappings(t, files))

	d := other.dial(nil)
	for i := range most {
		require.NoError(t, d.Map(at(i), files[n-1-i], 0, 0x1000, client.ReadWrite), "another guest's share")
	}
	require.Equal(t, 2*most, serverMappings(t, files))

	require.NoError(t, c.Unmap(at(1), 0x1000))
	require.NoError(t, c.Map(at(6), files[6], 0, 0x1000, client.ReadWrite))
	require.Equal(t, syscall.ENOSPC, c.Map(at(1), files[1], 0, 0x1000, client.ReadWrite))
	require.NoError(t, c.Close())
	c = r.dial(nil)
	for i := range most {
		require.NoError(t, c.Map(at(i), files[i], 0, 0x1000, client.ReadWrite), "the client before had as many")
	}
	require.Equal(t, 2*most, serverMappings(t, files))
}

// TestLimitsRefused: the server refuses, counts and logs a range that is too large, and one
// range too many. The size is checked first.
func TestLimitsRefused(t *testing.T) {
	log := new(lines)
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMARegions: 1, MaxDMASize: 0x2000, Log: slog.New(slog.NewTextHandler(log, nil))})
	ram := alloc(t, 0x10000)
	c := r.dial(nil)
	for i := range uint64(3) {
		require.ErrorIs(t, c.Map(0x10000, ram, 0, 0x3000+i<<12, client.ReadWrite), syscall.ENOSPC)
		require.Equal(t, i+1, r.srv.Stats().SizesRefused)
	}
	require.NoError(t, c.Map(0x10000, ram, 0, 0x2000, client.ReadWrite), "as large as it may be")
	for i := range uint64(3) {
		require.ErrorIs(t, c.Map(0x20000+i<<12, ram, 0, 0x1000, client.ReadWrite), syscall.ENOSPC)
	}
	stats := r.srv.Stats()
	require.EqualValues(t, 3, stats.SizesRefused)
	require.EqualValues(t, 3, stats.RegionsRefused)
	require.Zero(t, stats.MappingsRefused)
	require.Equal(t, 1, log.count("rule="+vfiouser.RuleDMARegions+" max=1"))
	require.Equal(t, 1, log.count("rule="+vfiouser.RuleDMASizes+" size=0x3000 max=0x2000"))
}

// TestMappingsAgainstTwin maps and unmaps ranges of a few files with any rights, and holds what
// is refused against a list of mappings, and the list against the system's.
func TestMappingsAgainstTwin(t *testing.T) {
	const most = 3
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMAMappings: most})
	var files []*client.Memory
	for range 4 {
		files = append(files, alloc(t, 0x10000))
	}
	type mapping struct {
		file   int
		rights uint32
		ranges map[uint64]bool // pages
	}
	rapid.Check(t, func(t *rapid.T) {
		c, err := client.Dial(r.path, nil)
		require.NoError(t, err)
		defer c.Close()
		var twin []*mapping
		// has is the mapping that a range of the file can be part of.
		has := func(file int, rights uint32) *mapping {
			for _, want := range []uint32{rights, client.ReadWrite} {
				for _, m := range twin {
					if m.file == file && m.rights == want {
						return m
					}
				}
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				page := uint64(rapid.IntRange(0, 9).Draw(t, "page"))
				file, rights := rapid.IntRange(0, 3).Draw(t, "file"), uint32(rapid.IntRange(1, 3).Draw(t, "rights"))
				for _, m := range twin {
					if m.ranges[page] {
						return // TestMapAgainstTwin has what overlaps
					}
				}
				m := has(file, rights)
				var want error
				switch {
				case m != nil:
				case len(twin) == most:
					want = syscall.ENOSPC
				default:
					m = &mapping{file, rights, map[uint64]bool{}}
					twin = append(twin, m)
				}
				require.Equal(t, want, c.Map(page<<12, files[file], page<<12, 0x1000, rights))
				if want == nil {
					m.ranges[page] = true
				}
			},
			"unmap": func(t *rapid.T) {
				page := uint64(rapid.IntRange(0, 9).Draw(t, "page"))
				var want error = syscall.ENOENT
				for i, m := range twin {
					if m.ranges[page] {
						want = nil
						if delete(m.ranges, page); len(m.ranges) == 0 {
							twin = append(twin[:i:i], twin[i+1:]...)
						}
						break
					}
				}
				require.Equal(t, want, c.Unmap(page<<12, 0x1000))
			},
			"": func(t *rapid.T) { require.Equal(t, len(twin), serverMappings(t, files)) },
		})
	})
}
