package agent

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// registers maps BAR0 of a function through sysfs. The kernel allows it because
// nouveau maps its BARs without claiming them.
func (s *System) registers(address string) ([]uint32, func(), error) {
	f, err := os.OpenFile(s.path(fmt.Sprintf("%s%s/resource0", pciDevices, address)), os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, regSpace, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap of BAR0: %w", err)
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&m[0])), len(m)/4)
	return words, func() { _ = unix.Munmap(m) }, nil
}

// regSpace is as much of BAR0 as there are registers in.
const regSpace = 16 << 20

// Access reads and writes registers in the order that a names.
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
	regs, done, err := s.registers(address)
	if err != nil {
		return r, err
	}
	defer done()
	for _, x := range a.Accesses {
		if x.Write != nil {
			atomic.StoreUint32(&regs[x.Offset/4], *x.Write)
			continue
		}
		r.Values = append(r.Values, atomic.LoadUint32(&regs[x.Offset/4]))
	}
	return r, nil
}

// Traps accesses a register again and again. No driver has to be there: the function's memory is
// switched on first, which it may be already.
func (s *System) Traps(a proto.TrapsArgs) (res proto.TrapsResult, err error) {
	if a.Offset%4 != 0 || a.Offset >= regSpace || a.Count < 1 {
		return res, fmt.Errorf("%d accesses to offset %#x: want 1 or more, to a multiple of 4 below %#x", a.Count, a.Offset, regSpace)
	}
	if err := s.write(pciDevices+a.Address+"/enable", "1"); err != nil {
		return res, err
	}
	regs, done, err := s.registers(a.Address)
	if err != nil {
		return res, err
	}
	defer done()
	r := &regs[a.Offset/4]
	atomic.LoadUint32(r) // the page fault that maps it
	for i := range a.Count {
		if a.Write {
			*r = uint32(i + 1) // an atomic store is an exchange, which reads as well
		} else {
			atomic.LoadUint32(r)
		}
	}
	res.Last = atomic.LoadUint32(r)
	return res, nil
}
