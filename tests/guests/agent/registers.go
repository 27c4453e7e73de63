package agent

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// bar maps the start of a BAR of the card through sysfs. The kernel allows it because
// nouveau maps its BARs without claiming them.
func (s *System) bar(address string, index, size int) ([]uint32, func(), error) {
	f, err := os.OpenFile(s.path(fmt.Sprintf("%s%s/resource%d", pciDevices, address, index)), os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap of BAR%d: %w", index, err)
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&m[0])), len(m)/4)
	return words, func() { _ = unix.Munmap(m) }, nil
}

// regSpace is as much of BAR0 as there are registers in.
const regSpace = 16 << 20

// BAR maps the start of a BAR of the card.
func (s *System) BAR(index, size int) ([]uint32, func(), error) {
	address, err := s.card()
	if err != nil {
		return nil, nil, err
	}
	return s.bar(address, index, size)
}

// Access reads and writes registers in the order that a names.
func (s *System) Access(a proto.RegistersArgs) (proto.RegistersResult, error) {
	r := proto.RegistersResult{Values: []uint32{}}
	for _, x := range a.Accesses {
		if x.Offset%4 != 0 || x.Offset >= regSpace {
			return r, fmt.Errorf("register %#x: want a multiple of 4 below %#x", x.Offset, regSpace)
		}
	}
	regs, done, err := s.BAR(0, regSpace)
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

// Where USERD lies. Source: the chip's PFIFO and cl906f.h.
const (
	regUserdBase = 0x002254 // BAR1 offset >> 12, bits 27:0
	userdPage    = 0x1000   // a channel
	userdRef     = 0x48
	userdPages   = 128
)

// Reference reads the REF word of a channel's USERD page, through BAR1.
func (s *System) Reference(channel int) (uint32, error) {
	if channel < 0 || channel >= userdPages {
		return 0, fmt.Errorf("channel %d: want 0 to %d", channel, userdPages-1)
	}
	regs, done, err := s.BAR(0, regSpace)
	if err != nil {
		return 0, err
	}
	base := int(atomic.LoadUint32(&regs[regUserdBase/4])&0xfffffff) << 12
	done()
	at := base + channel*userdPage
	user, done, err := s.BAR(1, at+userdPage)
	if err != nil {
		return 0, err
	}
	defer done()
	return atomic.LoadUint32(&user[(at+userdRef)/4]), nil
}

// Traps times accesses to a register. No driver has to be there: the function's memory is
// switched on first, which it may be already.
func (s *System) Traps(a proto.TrapsArgs) (res proto.TrapsResult, err error) {
	switch {
	case a.Offset%4 != 0 || a.Offset >= regSpace:
		return res, fmt.Errorf("offset %#x: want a multiple of 4 below %#x", a.Offset, regSpace)
	case a.Count < 1 || a.Burst < 0:
		return res, fmt.Errorf("count %d, burst %d: want one access at least", a.Count, a.Burst)
	}
	if err := s.write(pciDevices+a.Address+"/enable", "1"); err != nil {
		return res, err
	}
	regs, done, err := s.bar(a.Address, 0, regSpace)
	if err != nil {
		return res, err
	}
	defer done()
	r := &regs[a.Offset/4]
	res.Last = atomic.LoadUint32(r) // the page fault that maps it
	res.Reads = 1
	group := max(a.Burst, 1)
	began := time.Now()
	for res.Count < a.Count {
		for range group {
			res.Count++
			if a.Write {
				*r = uint32(res.Count) // an atomic store is an exchange, which reads as well
			} else {
				atomic.LoadUint32(r)
			}
		}
		if a.Burst > 0 {
			atomic.LoadUint32(r)
			res.Reads++
		}
	}
	res.NS = float64(time.Since(began).Nanoseconds()) / float64(res.Count)
	res.Last = atomic.LoadUint32(r)
	res.Reads++
	return res, nil
}
