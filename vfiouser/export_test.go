package vfiouser

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Resident is how many pages of a mapping this process's page tables have.
func Resident(mem []byte) (n int) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	entries := make([]byte, len(mem)/pageSize*8)
	if _, err := f.ReadAt(entries, int64(address(mem)/pageSize*8)); err != nil {
		panic(err)
	}
	for ; len(entries) > 0; entries = entries[8:] {
		n += int(binary.NativeEndian.Uint64(entries) >> 63) // "page present"
	}
	return n
}

// OnMunmap has f called with the pages that are left for a munmap. The connection's thread calls it.
func (m *Memory) OnMunmap(f func(resident int)) {
	m.files.munmap = func(mem []byte) error {
		f(Resident(mem))
		return unix.Munmap(mem)
	}
}
