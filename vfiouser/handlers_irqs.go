package vfiouser

import (
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// setIRQs serves SET_IRQS.
func (c *conn) setIRQs(rq *request) syscall.Errno {
	s := wire.Parse[wire.IRQSet](rq.payload)
	data := rq.payload[wire.IRQSetSize:]
	if errno := c.checkIRQSet(&s, data, rq.fds); errno != 0 {
		return errno
	}
	if s.Count == 0 { // NONE|TRIGGER, start 0
		c.irqs.disable(int(s.Index))
		return 0
	}
	for i := range int(s.Count) {
		c.setIRQ(&s, i, data, rq)
	}
	return 0
}

// checkIRQSet refuses what VFIO refuses.
func (c *conn) checkIRQSet(s *wire.IRQSet, data []byte, fds []int) syscall.Errno {
	kind, action := s.Flags&wire.IRQDataKinds, s.Flags&wire.IRQActions
	count := uint32(c.irqs.count(s.Index))
	single := s.Index == IRQErr || s.Index == IRQReq
	switch {
	case s.Argsz < wire.IRQSetSize,
		s.Flags&^(wire.IRQDataKinds|wire.IRQActions) != 0,
		!oneBit(kind), !oneBit(action),
		s.Index >= NumIRQs,
		s.Start >= count, s.Count > count-s.Start,
		single && (action != wire.IRQActionTrigger || s.Count > 1),
		s.Count == 0 && (s.Start != 0 || kind != wire.IRQDataNone || action != wire.IRQActionTrigger),
		kind != wire.IRQDataEventFD && len(fds) > 0,
		len(fds) > 0 && len(fds) != int(s.Count),
		kind == wire.IRQDataBool && len(data) != int(s.Count):
		return syscall.EINVAL
	}
	for _, fd := range fds {
		if !isEventFD(fd) {
			return syscall.EINVAL
		}
	}
	return 0
}

func oneBit(v uint32) bool { return v != 0 && v&(v-1) == 0 }

// setIRQ applies a checked SET_IRQS to vector start+i.
func (c *conn) setIRQ(s *wire.IRQSet, i int, data []byte, rq *request) {
	index, vec := int(s.Index), int(s.Start)+i
	action := s.Flags & wire.IRQActions
	if s.Flags&wire.IRQDataEventFD != 0 {
		fd := -1
		if len(rq.fds) > 0 {
			fd = rq.take(i)
		}
		c.irqs.attach(index, vec, eventfdFor[action], fd)
		if action == wire.IRQActionTrigger && fd >= 0 && c.observer != nil {
			c.observer.IRQUnmasked(index, vec)
		}
		return
	}
	if s.Flags&wire.IRQDataBool != 0 && data[i] == 0 {
		return
	}
	if action == wire.IRQActionTrigger {
		c.irqs.trigger(index, vec)
		return
	}
	c.maskIRQ(index, vec, action == wire.IRQActionMask)
}

var eventfdFor = map[uint32]irqFD{
	wire.IRQActionTrigger: triggerFD,
	wire.IRQActionMask:    maskFD,
	wire.IRQActionUnmask:  unmaskFD,
}

// maskIRQ masks or unmasks a vector and notifies the device.
func (c *conn) maskIRQ(index, vec int, masked bool) {
	c.irqs.setMask(index, vec, masked)
	switch {
	case c.observer == nil:
	case masked:
		c.observer.IRQMasked(index, vec)
	default:
		c.observer.IRQUnmasked(index, vec)
	}
}
