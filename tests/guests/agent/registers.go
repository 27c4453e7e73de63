package agent

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// regSpace is as much of BAR0 as there are registers in.
const regSpace = 16 << 20

// Access reads and writes registers in the order that a names, through sysfs. The kernel allows it
// because nouveau maps its BARs without claiming them.
func (s *System) Access(a proto.RegistersArgs) (proto.RegistersResult, error) {
	r := proto.RegistersResult{Values: []uint32{}}
	for _, x := range a.Accesses {
		if x.Offset%4 != 0 || x.Offset >= regSpace {
			return r, fmt.Errorf("register %#x: want a multiple of 4 below %#x", x.Offset, regSpace)
		}
	}
	address, err := s.card()
	if err != nil {
		return r, err
	}
	f, err := os.OpenFile(s.path(pciDevices+address+"/resource0"), os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, regSpace, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return r, fmt.Errorf("mmap of BAR0: %w", err)
	}
	for _, x := range a.Accesses {
		at := (*uint32)(unsafe.Pointer(&m[x.Offset]))
		if x.Write != nil {
			atomic.StoreUint32(at, *x.Write)
			continue
		}
		r.Values = append(r.Values, atomic.LoadUint32(at))
	}
	return r, unix.Munmap(m)
}
