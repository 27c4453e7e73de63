package conformance

import (
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Forms of SET_IRQS.
const (
	fireNone   = wire.IRQDataNone | wire.IRQActionTrigger
	fireBool   = wire.IRQDataBool | wire.IRQActionTrigger
	attachFDs  = wire.IRQDataEventFD | wire.IRQActionTrigger
	maskNone   = wire.IRQDataNone | wire.IRQActionMask
	unmaskNone = wire.IRQDataNone | wire.IRQActionUnmask
	unmaskFDs  = wire.IRQDataEventFD | wire.IRQActionUnmask
)

type irqCase struct {
	s     *session
	c     *client.Client
	index uint32
	count uint32
}

// onIRQ makes a case on the index with the most vectors; it needs least of them.
func onIRQ(name, does string, least uint32, run func(q *irqCase) finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		index, count := s.dev.irq()
		if count < least {
			return absent("the device has an index of %d vectors at most", count)
		}
		return run(&irqCase{s, s.attach(), index, count})
	}}
}

func (q *irqCase) set(flags, start, count uint32, data []byte, fds ...int) {
	reply(q.c, irqMessage(flags, q.index, start, count, data, fds...), 0, "SET_IRQS flags %#x start %d count %d", flags, start, count)
}

// attach gives n vectors from start on an eventfd each, in one message.
func (q *irqCase) attach(start, n uint32) []*client.EventFD {
	var es []*client.EventFD
	var fds []int
	for range n {
		e := q.s.eventfd()
		es, fds = append(es, e), append(fds, e.FD)
	}
	q.set(attachFDs, start, n, nil, fds...)
	return es
}

// fired counts an eventfd's signals. A signal of a message is there when its reply is; a moment
// is given anyway.
func fired(e *client.EventFD) uint64 {
	n, err := e.Wait(200 * time.Millisecond)
	if err != nil {
		return 0
	}
	return n
}

func quiet(e *client.EventFD) bool {
	time.Sleep(10 * time.Millisecond)
	return e.Count() == 0
}

func signalled(e *client.EventFD) finding {
	if n := fired(e); n != 1 {
		return fail("%d signals", n)
	}
	return pass("signalled")
}

func notSignalled(e *client.EventFD) finding {
	if !quiet(e) {
		return fail("signalled")
	}
	return pass("not signalled")
}

// wrongIRQ makes a case of a SET_IRQS that is wrong, on the index with the most vectors.
func wrongIRQ(name, does string, least uint32, at func(index, count uint32) message, want expectation) Case {
	return onIRQ(name, does, least, func(q *irqCase) finding { return judge(q.s, q.c, at(q.index, q.count), want) })
}

// formIRQ is a message for wrongIRQ that does not depend on how many vectors there are.
func formIRQ(flags, start, count uint32, data ...byte) func(index, count uint32) message {
	return func(index, _ uint32) message { return irqMessage(flags, index, start, count, data) }
}

// fires makes a case of an eventfd on vector 0, some messages, and whether it is signalled then.
func fires(name, does string, signal bool, sets ...irqForm) Case {
	return onIRQ(name, does, 1, func(q *irqCase) finding {
		e := q.attach(0, 1)[0]
		for _, f := range sets {
			q.set(f.flags, 0, f.count, f.data)
		}
		if signal {
			return signalled(e)
		}
		return notSignalled(e)
	})
}

// withFDs makes a case of a SET_IRQS for count vectors, with n eventfds that do not fit it.
func withFDs(name, does string, n int, flags, count uint32) Case {
	return onIRQ(name, does, count, func(q *irqCase) finding {
		var fds []int
		for range n {
			fds = append(fds, q.s.eventfd().FD)
		}
		return judge(q.s, q.c, irqMessage(flags, q.index, 0, count, nil, fds...), isRefused)
	})
}

type irqForm struct {
	flags, count uint32
	data         []byte
}

var setIRQs = []Case{
	fires("fire", "an eventfd is attached, and the vector fired with DATA_NONE", true, irqForm{fireNone, 1, nil}),
	fires("fire with DATA_BOOL 1", "one byte 1", true, irqForm{fireBool, 1, []byte{1}}),
	fires("fire with DATA_BOOL 0", "one byte 0", false, irqForm{fireBool, 1, []byte{0}}),
	fires("detach", "EVENTFD with no descriptor, then fire", false, irqForm{attachFDs, 1, nil}, irqForm{fireNone, 1, nil}),
	fires("disable", "DATA_NONE, TRIGGER, count 0, then fire", false, irqForm{fireNone, 0, nil}, irqForm{fireNone, 1, nil}),
	onIRQ("fire by a pattern", "bytes 0 and 1 by turns", 2, func(q *irqCase) finding {
		n := min(q.count, 4)
		es := q.attach(0, n)
		pattern := []byte{0, 1, 0, 1}[:n]
		q.set(fireBool, 0, n, pattern)
		for i, e := range es {
			if got := fired(e); got != uint64(pattern[i]) {
				return fail("vector %d: %d signals for a byte %d", i, got, pattern[i])
			}
		}
		return pass("as the pattern says")
	}),
	onIRQ("fire with no eventfd", "a vector that has none", 1, func(q *irqCase) finding {
		q.set(fireNone, 0, 1, nil)
		return pass("accepted")
	}),
	onIRQ("one vector of many", "all vectors attached, each fired alone", 2, func(q *irqCase) finding {
		n := min(q.count, 4)
		es := q.attach(0, n)
		for i := range n {
			q.set(fireNone, i, 1, nil)
			for k, e := range es {
				want := uint64(0)
				if uint32(k) == i {
					want = 1
				}
				if got := e.Count(); got != want {
					return fail("vector %d fired: %d signals on %d", i, got, k)
				}
			}
		}
		return pass("%d vectors, each its own", n)
	}),
	onIRQ("holes", "vectors 0 and 2 attached, 0 to 2 fired", 3, func(q *irqCase) finding {
		a, b := q.attach(0, 1)[0], q.attach(2, 1)[0]
		q.set(fireNone, 0, 3, nil)
		if x, y := fired(a), fired(b); x != 1 || y != 1 {
			return fail("%d and %d signals", x, y)
		}
		return pass("both signalled")
	}),
	onIRQ("replace", "a second eventfd for a vector", 1, func(q *irqCase) finding {
		before := q.attach(0, 1)[0]
		after := q.attach(0, 1)[0]
		q.set(fireNone, 0, 1, nil)
		if x := fired(after); x != 1 || !quiet(before) {
			return fail("%d signals on the second", x)
		}
		return pass("the second is signalled, the first is not")
	}),
	choice(onIRQ("detach in the middle", "EVENTFD with no descriptor for vector 1 of 0 to 2, then fire", 3, func(q *irqCase) finding {
		es := q.attach(0, 3)
		q.set(attachFDs, 1, 1, nil)
		q.set(fireNone, 0, 3, nil)
		if fired(es[0]) != 1 || fired(es[2]) != 1 {
			return fail("its neighbours are not signalled")
		}
		if !quiet(es[1]) {
			return pass("it is signalled all the same")
		}
		return pass("it alone is not signalled")
	})),
	onIRQ("disable what is off", "count 0 with nothing attached", 1, func(q *irqCase) finding {
		q.set(fireNone, 0, 0, nil)
		return pass("accepted")
	}),
	onIRQ("attach again after disable", "disable, attach, fire", 1, func(q *irqCase) finding {
		q.attach(0, 1)
		q.set(fireNone, 0, 0, nil)
		e := q.attach(0, 1)[0]
		q.set(fireNone, 0, 1, nil)
		return signalled(e)
	}),
	choice(onIRQ("mask, fire, unmask", "a vector masked by DATA_NONE", 1, func(q *irqCase) finding {
		e := q.attach(0, 1)[0]
		if a := ask(q.c, irqMessage(maskNone, q.index, 0, 1, nil)); a.kind != answered {
			return pass("masking: %v", a)
		}
		q.set(fireNone, 0, 1, nil)
		if n := e.Count(); n != 0 {
			return pass("signalled though masked: the mask is the device's business")
		}
		q.set(unmaskNone, 0, 1, nil)
		if fired(e) != 1 {
			return fail("the signal is lost")
		}
		return pass("held, and signalled when unmasked")
	})),
	onIRQ("unmask", "UNMASK with DATA_NONE of what is not masked, as QEMU does after INTx", 1, func(q *irqCase) finding {
		q.attach(0, 1)
		q.set(unmaskNone, 0, 1, nil)
		return pass("accepted")
	}),
	choice(onIRQ("resample", "UNMASK by an eventfd, as KVM's INTx does", 1, func(q *irqCase) finding {
		q.attach(0, 1)
		return judge(q.s, q.c, irqMessage(unmaskFDs, q.index, 0, 1, nil, q.s.eventfd().FD), servedOrRefused)
	})),
	choice(onIRQ("a pipe for an eventfd", "a descriptor that is no eventfd", 1, func(q *irqCase) finding {
		return judge(q.s, q.c, irqMessage(attachFDs, q.index, 0, 1, nil, q.s.pipe().w), servedOrRefused)
	})),
	wrongIRQ("argsz 19", "argsz 19", 1, func(index, _ uint32) message {
		return command(wire.DeviceSetIRQs, wire.Append(nil, wire.IRQSet{Argsz: 19, Flags: fireNone, Index: index, Count: 1}))
	}, isRefused),
	wrongIRQ("payload of 16 bytes", "payload cut", 1, func(index, _ uint32) message {
		return cut(irqMessage(fireNone, index, 0, 1, nil), 16)
	}, isRefused),
	message1("index 5", "index 5", irqMessage(fireNone, 5, 0, 1, nil), isRefused),
	message1("index 2^32-1", "index 0xffffffff", irqMessage(fireNone, 0xffffffff, 0, 1, nil), isRefused),
	wrongIRQ("no data kind", "TRIGGER alone", 1, formIRQ(wire.IRQActionTrigger, 0, 1), isRefused),
	wrongIRQ("two data kinds", "NONE and BOOL", 1, formIRQ(fireNone|wire.IRQDataBool, 0, 1), isRefused),
	wrongIRQ("no action", "DATA_NONE alone", 1, formIRQ(wire.IRQDataNone, 0, 1), isRefused),
	wrongIRQ("two actions", "MASK and TRIGGER", 1, formIRQ(fireNone|wire.IRQActionMask, 0, 1), isRefused),
	choice(wrongIRQ("unknown flag", "flag 0x40", 1, formIRQ(fireNone|0x40, 0, 1), servedOrRefused)),
	wrongIRQ("start past the last", "start = count", 1, func(index, count uint32) message {
		return irqMessage(fireNone, index, count, 1, nil)
	}, isRefused),
	wrongIRQ("range past the last", "start 0, one vector too many", 1, func(index, count uint32) message {
		return irqMessage(fireNone, index, 0, count+1, nil)
	}, isRefused),
	choice(wrongIRQ("range that wraps", "start 1, count 2^32-1", 2, formIRQ(fireNone, 1, 0xffffffff), servedOrRefused)),
	wrongIRQ("count 0 past start 0", "start 1, count 0", 2, formIRQ(fireNone, 1, 0), isRefused),
	wrongIRQ("count 0 with EVENTFD", "EVENTFD, count 0", 1, formIRQ(attachFDs, 0, 0), isRefused),
	wrongIRQ("count 0 with MASK", "MASK, count 0", 1, formIRQ(maskNone, 0, 0), isRefused),
	withFDs("descriptor with DATA_NONE", "an eventfd where none belongs", 1, fireNone, 1),
	withFDs("more descriptors than vectors", "two eventfds for one vector", 2, attachFDs, 1),
	withFDs("fewer descriptors than vectors", "one eventfd for two vectors", 1, attachFDs, 2),
	wrongIRQ("too few bytes", "BOOL with no byte", 1, formIRQ(fireBool, 0, 1), isRefused),
	wrongIRQ("too many bytes", "BOOL with 3 bytes for one vector", 1, formIRQ(fireBool, 0, 1, 1, 1, 1), isRefused),
	oneMessage("index with no vectors", "any form on an index whose count is 0", func(s *session) (message, string) {
		for i, q := range s.dev.irqs {
			if q.Count == 0 {
				return irqMessage(fireNone, uint32(i), 0, 1, nil), ""
			}
		}
		return message{}, "all indexes have vectors"
	}, isRefused),
	errMask("mask of ERR", irqErr), errMask("mask of REQ", irqReq),
}

func errMask(name string, index uint32) Case {
	return oneMessage(name, "MASK with DATA_NONE", func(s *session) (message, string) {
		if int(index) >= len(s.dev.irqs) || s.dev.irqs[index].Count == 0 {
			return message{}, "the index has no vector"
		}
		return irqMessage(maskNone, index, 0, 1, nil), ""
	}, isRefused)
}
