package conformance

import (
	"fmt"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// readBack wants a read's reply: the request's 16 bytes, then n bytes.
func readBack(m message, n int) expectation {
	return func(s *session, a answer) string {
		if fault := isAnswered(wire.RegionAccessSize+n)(s, a); fault != "" {
			return fault
		}
		if string(a.body[:wire.RegionAccessSize]) != string(m.payload[:wire.RegionAccessSize]) {
			return fmt.Sprintf("a reply to another access: %x", a.body[:wire.RegionAccessSize])
		}
		return ""
	}
}

func readConfig(name string, off uint64, n uint32) Case {
	m := readMessage(regionConfig, off, n)
	return message1(name, fmt.Sprintf("%d bytes at %#x of configuration space", n, off), m, readBack(m, int(n)))
}

// atEnd makes a case of an access of n bytes, past bytes after the end of configuration space
// or, if bar, of the first BAR.
func atEnd(name string, bar, write bool, n, past uint32, want expectation) Case {
	does := fmt.Sprintf("%d bytes, %d of them past the end", n, min(past, n))
	return oneMessage(name, does, func(s *session) (message, string) {
		r, ok := s.dev.config()
		if bar {
			r, ok = s.dev.bar()
		}
		if !ok || r.Size < uint64(n) {
			return message{}, "the device has no such region"
		}
		off := r.Size - uint64(n) + uint64(past)
		m := readMessage(r.Index, off, n)
		if write {
			m = writeMessage(r.Index, off, n, make([]byte, n))
		}
		return m, ""
	}, want)
}

// onConfig makes a case that writes the interrupt line register, which it writes back.
func onConfig(name, does string, run func(s *session, c *client.Client, line byte) finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		c := s.attach()
		a := reply(c, readMessage(regionConfig, interruptLine, 1), wire.RegionAccessSize+1, "the register cannot be read")
		line := a.body[wire.RegionAccessSize]
		defer func() { ask(c, writeMessage(regionConfig, interruptLine, 1, []byte{line})) }()
		return run(s, c, line)
	}}
}

func lineIs(c *client.Client, want byte) finding {
	a := reply(c, readMessage(regionConfig, interruptLine, 1), wire.RegionAccessSize+1, "read back")
	if got := a.body[wire.RegionAccessSize]; got != want {
		return fail("reads %#x after a write of %#x", got, want)
	}
	return pass("reads what was written")
}

func absentAccess(name string, write bool) Case {
	return oneMessage(name, "4 bytes at 0 of a region of size 0", func(s *session) (message, string) {
		i, ok := s.dev.absentRegion()
		if !ok {
			return message{}, "all regions are there"
		}
		m := readMessage(i, 0, 4)
		if write {
			m = writeMessage(i, 0, 4, make([]byte, 4))
		}
		return m, ""
	}, isRefused)
}

var regionAccess = []Case{
	readConfig("1 byte", 1, 1), readConfig("2 bytes", 2, 2), readConfig("4 bytes", 0, 4), readConfig("8 bytes", 8, 8),
	readConfig("3 bytes, unaligned", 1, 3),
	readConfig("256 bytes", 0, 256),
	oneMessage("all of configuration space", "in one read, as QEMU does", func(s *session) (message, string) {
		r, ok := s.dev.config()
		if !ok {
			return message{}, "no configuration space"
		}
		return readMessage(regionConfig, 0, uint32(r.Size)), ""
	}, func(s *session, a answer) string {
		r, _ := s.dev.config()
		return isAnswered(wire.RegionAccessSize+int(r.Size))(s, a)
	}),
	message1("vendor", "the vendor's id is one", readMessage(regionConfig, 0, 2), func(s *session, a answer) string {
		if a.kind != answered || len(a.body) != wire.RegionAccessSize+2 {
			return a.String()
		}
		if id := le.Uint16(a.body[wire.RegionAccessSize:]); id == 0xffff {
			return "vendor ffff: nothing is there"
		}
		return ""
	}),
	atEnd("last byte", false, false, 1, 0, isAnswered(wire.RegionAccessSize+1)),
	atEnd("last 4 bytes", false, false, 4, 0, isAnswered(wire.RegionAccessSize+4)),
	atEnd("across the end", false, false, 4, 2, isRefused),
	atEnd("at the end", false, false, 1, 1, isRefused),
	atEnd("write across the end", false, true, 4, 2, isRefused),
	atEnd("write at the end", false, true, 4, 4, isRefused),
	atEnd("BAR, last 4 bytes", true, false, 4, 0, isAnswered(wire.RegionAccessSize+4)),
	atEnd("BAR, across the end", true, false, 4, 1, isRefused),
	atEnd("BAR, at the end", true, false, 4, 4, isRefused),
	atEnd("BAR, write at the end", true, true, 4, 4, isRefused),
	message1("offset 2^64-1", "1 byte at the highest offset", readMessage(regionConfig, ^uint64(0), 1), isRefused),
	message1("offset that wraps", "8 bytes at 2^64-4", readMessage(regionConfig, ^uint64(3), 8), isRefused),
	message1("write that wraps", "8 bytes at 2^64-4", writeMessage(regionConfig, ^uint64(3), 8, make([]byte, 8)), isRefused),
	message1("region 2^32-1", "a read of region 0xffffffff", readMessage(0xffffffff, 0, 4), isRefused),
	oneMessage("region past the last", "a read of region num_regions", func(s *session) (message, string) {
		return readMessage(s.dev.info.NumRegions, 0, 4), ""
	}, isRefused),
	message1("write to region 2^32-1", "a write to region 0xffffffff", writeMessage(0xffffffff, 0, 4, make([]byte, 4)), isRefused),
	absentAccess("absent region", false), absentAccess("write to an absent region", true),
	message1("count 2^32-1", "a read of 4 GiB", readMessage(regionConfig, 0, 0xffffffff), isRefused),
	message1("more than max_data_xfer_size", "a read of 2 MiB of configuration space", readMessage(regionConfig, 0, 2<<20), isRefused),
	choice(message1("count 0", "a read of nothing", readMessage(regionConfig, 0, 0), anyOf(bare, isAnswered(wire.RegionAccessSize), isRefused))),
	choice(message1("write of nothing", "a write of nothing", writeMessage(regionConfig, interruptLine, 0, nil), anyOf(bare, isAnswered(wire.RegionAccessSize), isRefused))),
	message1("read of 12 bytes", "payload cut", cut(readMessage(regionConfig, 0, 4), 12), isRefused),
	message1("write of 12 bytes", "payload cut", cut(writeMessage(regionConfig, interruptLine, 0, nil), 12), isRefused),
	message1("write with too little", "count 4, 2 bytes", writeMessage(regionConfig, interruptLine, 4, make([]byte, 2)), isRefused),
	message1("write with too much", "count 1, 4 bytes", writeMessage(regionConfig, interruptLine, 1, make([]byte, 4)), isRefused),
	onConfig("write", "the interrupt line register; the reply has the request's 16 bytes", func(s *session, c *client.Client, line byte) finding {
		m := writeMessage(regionConfig, interruptLine, 1, []byte{line ^ 5})
		a := ask(c, m)
		if a.kind != answered || string(a.body) != string(m.payload[:wire.RegionAccessSize]) {
			return fail("%v", a)
		}
		return lineIs(c, line^5)
	}),
	onConfig("posted write", "the interrupt line register with No_reply, then a read", func(s *session, c *client.Client, line byte) finding {
		must(c.Send(writeMessage(regionConfig, interruptLine, 1, []byte{line ^ 6}).with(wire.NoReply).bytes()), "send")
		return lineIs(c, line^6)
	}),
	onConfig("refused write", "a write that is wrong leaves the register alone", func(s *session, c *client.Client, line byte) finding {
		a := ask(c, writeMessage(regionConfig, interruptLine, 4, []byte{line ^ 7}))
		if a.kind != refused {
			return fail("%v, where an error was due", a)
		}
		return lineIs(c, line)
	}),
}

// multi is a REGION_WRITE_MULTI of n entries of one byte to the interrupt line register.
func multi(n uint64, values ...byte) message {
	p := le.AppendUint64(nil, n)
	for _, v := range values {
		p = wire.Append(p, wire.RegionAccess{Offset: interruptLine, Region: regionConfig, Count: 1})
		p = append(p, v, 0, 0, 0, 0, 0, 0, 0)
	}
	return command(wire.RegionWriteMulti, p)
}

func ifMulti(name, does string, run func(s *session, c *client.Client, line byte) finding) Case {
	return onConfig(name, does, func(s *session, c *client.Client, line byte) finding {
		if !s.dev.caps.WriteMultiple {
			return absent("the server does not offer write_multiple")
		}
		return run(s, c, line)
	})
}

var writeMulti = []Case{
	oneMessage("not offered", "a REGION_WRITE_MULTI that the server did not offer", func(s *session) (message, string) {
		if s.dev.caps.WriteMultiple {
			return message{}, "the server offers it"
		}
		return multi(0), ""
	}, isRefused),
	ifMulti("two writes", "two writes to one register", func(s *session, c *client.Client, line byte) finding {
		a := ask(c, multi(2, line^3, line^9))
		if a.kind != answered || len(a.body) != 8 || le.Uint64(a.body) != 2 {
			return fail("%v", a)
		}
		return lineIs(c, line^9)
	}),
	ifMulti("posted", "two writes with No_reply", func(s *session, c *client.Client, line byte) finding {
		must(c.Send(multi(2, line^3, line^10).with(wire.NoReply).bytes()), "send")
		return lineIs(c, line^10)
	}),
	ifMulti("more than there are", "a count of 3 with 2 entries", func(s *session, c *client.Client, line byte) finding {
		return judge(s, c, multi(3, line, line), isRefused)
	}),
	ifMulti("count 2^63", "a count whose size wraps", func(s *session, c *client.Client, line byte) finding {
		return judge(s, c, multi(1<<63, line), isRefused)
	}),
}

var reset = []Case{
	message1("reset", "DEVICE_RESET", command(wire.DeviceReset, nil), bare),
	choice(message1("reset with a payload", "DEVICE_RESET with 16 bytes", command(wire.DeviceReset, make([]byte, 16)), servedOrRefused)),
	{Name: "memory survives", Does: "DMA_MAP, DEVICE_RESET, DMA_UNMAP", run: func(s *session) finding {
		c, m := s.attach(), s.memory(size)
		maps(c, base, size, 0, rw, m.fd)
		reply(c, command(wire.DeviceReset, nil), -1, "reset")
		unmaps(c, base, size, 0)
		return pass("the range was still there")
	}},
}
