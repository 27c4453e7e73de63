package agent

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

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
