package conformance

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// cutOff makes a case that sends the first bytes of a message and leaves, for every number of
// bytes. The next client has to be served.
func cutOff(name string, negotiated bool, msg func(s *session) message) Case {
	return Case{Name: name, Does: "the client leaves after each byte of it; the next one is served", run: func(s *session) finding {
		m := msg(s)
		raw := m.bytes()
		for n := range len(raw) + 1 {
			s.leaveAfter(raw[:n], m.fds, negotiated)
		}
		return nextServed(s, "%d clients that left, all followed by one that was served", len(raw)+1)
	}}
}

func nextServed(s *session, format string, args ...any) finding {
	if err := alive(s.attach()); err != nil {
		return fail("%v", err)
	}
	return pass(format, args...)
}

func (s *session) leaveAfter(raw []byte, fds []int, negotiated bool) {
	open := s.dial
	if negotiated {
		open = s.attach
	}
	c := open()
	if len(raw) > 0 {
		must(c.Send(raw, fds...), "send")
	}
	c.Close()
	s.conns = s.conns[:len(s.conns)-1]
}

var disconnect = []Case{
	cutOff("in VERSION", false, func(*session) message { return versionMessage(0, 0, `{"capabilities": {}}`) }),
	cutOff("in DEVICE_GET_INFO", true, func(*session) message { return goodInfo }),
	cutOff("in REGION_WRITE", true, func(*session) message { return writeMessage(1000, 0, 4, make([]byte, 4)) }),
	cutOff("in DMA_MAP with a descriptor", true, func(s *session) message { return mapMessage(base, page, 0, rw, s.memory(page).fd) }),
	cutOff("in SET_IRQS with a descriptor", true, func(s *session) message { return irqMessage(attachFDs, 0, 0, 1, nil, s.eventfd().FD) }),
	{Name: "at once", Does: "100 clients connect and leave; the next one is served", run: func(s *session) finding {
		for range 100 {
			s.leaveAfter(nil, nil, false)
		}
		return nextServed(s, "served")
	}},
	{Name: "memory is unmapped", Does: "DMA_MAP, then the client leaves", run: func(s *session) finding {
		m := s.memory(size)
		c := s.attach()
		maps(c, base, size, 0, rw, m.fd)
		if !m.mapped() {
			return absent("the server had not mapped it")
		}
		c.Close()
		wait := s.o.patience()
		if !within(wait, func() bool { return !m.mapped() }) {
			return fail("still mapped %v later", wait)
		}
		return pass("unmapped")
	}},
	{Name: "ranges are removed", Does: "a client's mappings are not in the way of the next client's", run: func(s *session) finding {
		m := s.memory(size)
		c := s.attach()
		maps(c, base, size, 0, rw, m.fd)
		c.Close()
		return judge(s, s.attach(), mapMessage(base+page, size, 0, rw, m.fd), bare)
	}},
	onIRQ("eventfds are removed", "a client's eventfds are not signalled by the next", 1, func(q *irqCase) finding {
		e := q.attach(0, 1)[0]
		q.c.Close()
		q.c = q.s.attach()
		q.set(fireNone, 0, 1, nil)
		return notSignalled(e)
	}),
	{Name: "unread replies", Does: "1,000 reads, and the client leaves without their replies", run: func(s *session) finding {
		c := s.attach()
		var raw []byte
		for range 1000 {
			raw = append(raw, readMessage(regionConfig, 0, 4).bytes()...)
		}
		must(c.Send(raw), "send")
		c.Close()
		return nextServed(s, "the next one is served")
	}},
	choice(Case{Name: "a second client", Does: "a client while another is attached", run: func(s *session) finding {
		c := s.attach()
		fd, err := s.o.Dial()
		if err != nil {
			return pass("cannot connect: %v", err)
		}
		second, err := client.NewFD(fd, &client.Options{NoVersion: true, Timeout: 200 * time.Millisecond})
		must(err, "connect")
		s.conns = append(s.conns, second)
		a := ask(second, versionMessage(0, 0, client.QEMUCapabilities))
		if a.kind == nonsense {
			return fail("%v", a)
		}
		if err := alive(c); err != nil {
			return fail("the first client: %v", err)
		}
		if a.kind == silent {
			return pass("it waits until the first has disconnected")
		}
		return pass("%v", a)
	}}),
}

func inOrder(c *client.Client, ms []message) (answers []answer, fault string) {
	for i, m := range ms {
		a := receive(c, m)
		if a.kind != answered && a.kind != refused {
			return nil, fmt.Sprintf("message %d of %d: %v", i, len(ms), a)
		}
		answers = append(answers, a)
	}
	return answers, ""
}

func allAnswered(answers []answer, fault string) string {
	for i, a := range answers {
		if a.kind != answered {
			return fmt.Sprintf("message %d: %v", i, a)
		}
	}
	return fault
}

func sendTogether(c *client.Client, ms []message) (answers []answer, fault string) {
	var raw []byte
	for _, m := range ms {
		raw = append(raw, m.bytes()...)
	}
	must(c.Send(raw), "send")
	return inOrder(c, ms)
}

func reads(name, does string, n int, id func(i int) uint16) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		var ms []message
		for i := range n {
			ms = append(ms, readMessage(regionConfig, uint64(i*4), 4).id(id(i)))
		}
		answers, fault := sendTogether(s.attach(), ms)
		if fault != "" {
			return fail("%s", fault)
		}
		for i, a := range answers {
			if fault := readBack(ms[i], 4)(s, a); fault != "" {
				return fail("read %d: %s", i, fault)
			}
		}
		return pass("in order")
	}}
}

func pieces(name, does string, cuts func(n int) []int) Case {
	return choice(Case{Name: name, Does: does, run: func(s *session) finding {
		c := s.attach()
		raw := goodInfo.bytes()
		at := 0
		for _, end := range append(cuts(len(raw)), len(raw)) {
			if err := c.Send(raw[at:end]); err != nil {
				return pass("the connection closed")
			}
			at = end
			time.Sleep(2 * time.Millisecond)
		}
		a := receive(c, goodInfo)
		if a.kind == silent || a.kind == nonsense {
			return fail("%v", a)
		}
		return pass("%v", a)
	}})
}

var pipelining = []Case{
	reads("32 reads", "32 reads in one write; 32 replies in their order", 32, func(i int) uint16 { return uint16(1000 + i) }),
	reads("the same id", "8 reads of different places with one id", 8, func(int) uint16 { return theID }),
	{Name: "mixed", Does: "six commands in one write, two of them wrong", run: func(s *session) finding {
		c := s.attach()
		ms := []message{
			goodInfo.id(1), command(200, make([]byte, 8)).id(2), regionInfoMessage(regionConfig, 32).id(3),
			readMessage(5000, 0, 4).id(4), irqInfoMessage(0, 16).id(5), readMessage(regionConfig, 0, 4).id(6),
		}
		answers, fault := sendTogether(c, ms)
		if fault != "" {
			return fail("%s", fault)
		}
		for i, a := range answers {
			if bad := i == 1 || i == 3; bad != (a.kind == refused) {
				return fail("message %d: %v", i, a)
			}
		}
		return pass("in order, the wrong ones refused")
	}},
	onConfig("1,000 posted writes", "No_reply, then a read: the last one's value, and no reply before", func(s *session, c *client.Client, line byte) finding {
		var raw []byte
		for i := range 1000 {
			raw = append(raw, writeMessage(regionConfig, interruptLine, 1, []byte{byte(i)}).with(wire.NoReply).bytes()...)
		}
		must(c.Send(raw), "send")
		return lineIs(c, 999&0xff)
	}),
	{Name: "map, unmap, without waiting", Does: "8 DMA_MAPs and DMA_UNMAPs in one write, as QEMU does in a transaction", run: func(s *session) finding {
		c := s.attach()
		var ms []message
		for i := range 8 {
			ms = append(ms, mapMessage(base, size, 0, rw).id(uint16(2*i)), unmapMessage(base, size, 0).id(uint16(2*i+1)))
		}
		if fault := allAnswered(sendTogether(c, ms)); fault != "" {
			return fail("%s", fault)
		}
		return pass("in order")
	}},
	{Name: "descriptors of messages in a row", Does: "8 DMA_MAPs sent without waiting, each with its own file", run: func(s *session) finding {
		c := s.attach()
		var ms []message
		var files []memory
		for i := range uint64(8) {
			f := s.memory(page)
			m := mapMessage(base+i*2*page, page, 0, rw, f.fd).id(uint16(i))
			must(c.Send(m.bytes(), m.fds...), "send")
			ms, files = append(ms, m), append(files, f)
		}
		if fault := allAnswered(inOrder(c, ms)); fault != "" {
			return fail("%s", fault)
		}
		unmaps(c, base, page, 0)
		if files[0].mapped() {
			return fail("the first range had another's file")
		}
		return pass("each range its own")
	}},
	pieces("header byte by byte", "a message in pieces of one byte", func(n int) []int {
		var out []int
		for i := 1; i < n; i++ {
			out = append(out, i)
		}
		return out
	}),
	pieces("header, then payload", "the header alone, then the rest", func(int) []int { return []int{wire.HeaderSize} }),
	pieces("payload in two", "a message cut in its payload", func(int) []int { return []int{wire.HeaderSize + 8} }),
}

// strayed makes a case of a message with a descriptor that it must not carry: the server must
// not keep it, for any answer.
func strayed(name, does string, n int, msg func(s *session) message) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		c := s.attach()
		t := s.pipe()
		m := msg(s)
		for range n {
			m.fds = append(m.fds, t.w)
		}
		a := ask(c, m)
		if a.kind == silent || a.kind == nonsense {
			return fail("%v", a)
		}
		if !t.closed() {
			return fail("%v, and the descriptor is kept", a)
		}
		return pass("%v, descriptor closed", a)
	}}
}

// unfinished makes a case of a client that leaves after n bytes of a message with a descriptor.
func unfinished(name, does string, n int, kept finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		c, t := s.attach(), s.pipe()
		must(c.Send(goodInfo.bytes()[:n], t.w), "send")
		c.Close()
		if !t.closed() {
			return kept
		}
		return pass("closed")
	}}
}

var descriptors = []Case{
	strayed("on DEVICE_GET_INFO", "one descriptor where none belongs", 1, func(*session) message { return goodInfo }),
	strayed("on REGION_READ", "one descriptor where none belongs", 1, func(*session) message { return readMessage(regionConfig, 0, 4) }),
	strayed("on an unknown command", "one descriptor on command 200", 1, func(*session) message { return command(200, make([]byte, 16)) }),
	strayed("on a refused DMA_MAP", "one descriptor on a DMA_MAP with an unknown flag", 1, func(*session) message { return mapMessage(base, size, 0, 0x80000000) }),
	strayed("on a DMA_MAP that cannot be", "a pipe for memory", 1, func(*session) message { return mapMessage(base, size, 0, rw) }),
	strayed("on a refused SET_IRQS", "two descriptors for index 77", 2, func(*session) message { return irqMessage(attachFDs, 77, 0, 2, nil) }),
	strayed("16 on DEVICE_GET_INFO", "16 descriptors where none belongs", 16, func(*session) message { return goodInfo }),
	strayed("253 on DEVICE_GET_INFO", "as many descriptors as a message can carry", 253, func(*session) message { return goodInfo }),
	{Name: "200 refused DMA_MAPs", Does: "200 messages with a descriptor each, all refused", run: func(s *session) finding {
		c := s.attach()
		t := s.pipe()
		for range 200 {
			if a := ask(c, mapMessage(base, size, 0, 0x80000000, t.w)); a.kind != refused {
				return fail("%v", a)
			}
		}
		if !t.closed() {
			return fail("a descriptor is kept")
		}
		return pass("all closed")
	}},
	unfinished("with the connection", "a descriptor on half a message, and the client leaves", 20, fail("the descriptor is kept")),
	choice(unfinished("with half a header", "a descriptor on half a header, and the client leaves", 8,
		pass("the descriptor is kept: one is lost each time"))),
	{Name: "in VERSION's place", Does: "a descriptor on a first message that is none", run: func(s *session) finding {
		c := s.dial()
		t := s.pipe()
		raw := goodInfo.bytes()
		must(c.Send(raw, t.w), "send")
		a := receive(c, goodInfo)
		c.Close()
		if !t.closed() {
			return fail("%v, and the descriptor is kept", a)
		}
		return pass("%v, descriptor closed", a)
	}},
	onIRQ("eventfds replaced 100 times", "100 eventfds for one vector; the last is signalled, and no descriptor is lacking", 1, func(q *irqCase) finding {
		var e *client.EventFD
		for range 100 {
			e = q.attach(0, 1)[0]
		}
		q.set(fireNone, 0, 1, nil)
		return signalled(e)
	}),
}
