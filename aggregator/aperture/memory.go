package aperture

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memory is the file that backs a window, mapped by this process too.
type memory struct {
	file *os.File
	mem  []byte
}

// newMemory makes a memory file of n bytes. Its size is sealed: a guest's machine
// that could cut it short would take the memory away under the card.
func newMemory(name string, n uint64) (*memory, error) {
	fd, err := unix.MemfdCreate("umbra-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a memory file for %s: %w", name, err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), name)}
	if err := m.open(n); err != nil {
		m.file.Close()
		return nil, fmt.Errorf("memory file of %d MiB for %s: %w", n>>20, name, err)
	}
	return m, nil
}

func (m *memory) open(n uint64) error {
	fd := int(m.file.Fd())
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(m.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	m.mem = mem
	return err
}

// punch makes n bytes at off zero by giving their pages back.
func (m *memory) punch(off, n uint64) error {
	return unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
}

func (m *memory) close() error {
	err := unix.Munmap(m.mem)
	m.mem = nil
	if cerr := m.file.Close(); err == nil {
		err = cerr
	}
	return err
}
