package vfiouser_test

import (
	"bytes"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestMapAgainstTwin drives the map with random ranges and holds every answer and every byte
// against a flat list.
func TestMapAgainstTwin(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMARegions: 12})
	ram := [2]*client.Memory{alloc(t, 64<<12), alloc(t, 64<<12)}
	for k, f := range ram {
		for i := range f.Data {
			f.Data[i] = byte(i>>12 + 100*k)
		}
	}
	type entry struct {
		addr, size, off uint64
		rights          uint32
		file            int // -1 = none
	}
	rapid.Check(t, func(t *rapid.T) {
		c, err := client.Dial(r.path, nil)
		require.NoError(t, err)
		defer c.Close()
		m := r.dev.Host().Memory()
		var twin []entry
		page := func(max int, what string) uint64 { return uint64(rapid.IntRange(0, max).Draw(t, what)) << 12 }
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				e := entry{
					addr: page(31, "addr"), size: page(7, "pages") + 0x1000, off: page(66, "off"),
					rights: uint32(rapid.IntRange(0, 3).Draw(t, "rights")), file: rapid.IntRange(-1, 1).Draw(t, "file"),
				}
				var want error
				for _, o := range twin {
					if e.addr < o.addr+o.size && o.addr < e.addr+e.size {
						want = syscall.EEXIST
					}
				}
				if want == nil && len(twin) == 12 {
					want = syscall.ENOSPC
				}
				same := false
				for _, o := range twin {
					if o.addr == e.addr && o.size == e.size && o.rights == e.rights && o.file == e.file && (o.off == e.off || e.file < 0) {
						want, same = nil, true
					}
				}
				if e.file >= 0 && e.off+e.size > 64<<12 {
					want = syscall.EINVAL
				}
				if e.file < 0 {
					err = c.MapNoFD(e.addr, ram[0], e.off, e.size, e.rights)
				} else {
					err = c.Map(e.addr, ram[e.file], e.off, e.size, e.rights)
				}
				require.Equal(t, want, err)
				if err == nil && !same {
					twin = append(twin, e)
				}
			},
			"unmap": func(t *rapid.T) {
				addr, size := page(31, "addr"), page(7, "pages")+0x1000
				if len(twin) > 0 && rapid.Bool().Draw(t, "known") {
					k := twin[rapid.IntRange(0, len(twin)-1).Draw(t, "which")]
					addr, size = k.addr, k.size
				}
				var want error = syscall.ENOENT
				for i, o := range twin {
					if o.addr == addr && o.size == size {
						twin, want = append(twin[:i:i], twin[i+1:]...), nil
						break
					}
				}
				require.Equal(t, want, c.Unmap(addr, size))
			},
			"unmap all": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
					t.Skip("rare") // rapid counts another action instead
				}
				require.NoError(t, c.UnmapAll())
				twin = nil
			},
			"copy": func(t *rapid.T) {
				addr := page(40, "addr") + uint64(rapid.IntRange(0, 4095).Draw(t, "byte"))
				p, write := make([]byte, rapid.IntRange(0, 0x9000).Draw(t, "n")), rapid.Bool().Draw(t, "write")
				right := uint32(client.Readable)
				if write {
					right = client.Writable
				}
				var want error
				at := make([]*byte, len(p)) // in the files
				for i := range at {
					k := slices.IndexFunc(twin, func(o entry) bool { return o.rights&right != 0 && addr+uint64(i)-o.addr < o.size })
					switch {
					case k < 0:
						want = vfiouser.ErrNotMapped
					case twin[k].file >= 0:
						o := twin[k]
						at[i] = &ram[o.file].Data[o.off+addr+uint64(i)-o.addr]
						p[i] = *at[i]
					case want == nil:
						want = vfiouser.ErrByMessage
					}
				}
				got := bytes.Clone(p)
				if !write {
					clear(got)
				}
				require.Equal(t, want, m.Copy(addr, got, write))
				require.True(t, want != nil || bytes.Equal(p, got))
			},
			"": func(t *rapid.T) {
				require.Len(t, m.Ranges(), len(twin))
			},
		})
	})
}
