package conformance

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func cut(m message, n int) message { m.payload = m.payload[:n]; return m }

func longer(m message, n int) message {
	m.payload = append(append([]byte(nil), m.payload...), make([]byte, n)...)
	return m
}

func soundDevice(s *session, a answer) string {
	if fault := isAnswered(wire.DeviceInfoSize)(s, a); fault != "" {
		return fault
	}
	i := wire.Parse[wire.DeviceInfo](a.body)
	switch {
	case i.Argsz != wire.DeviceInfoSize:
		return fmt.Sprintf("argsz %d", i.Argsz)
	case i.Flags&wire.DeviceFlagPCI == 0:
		return fmt.Sprintf("flags %#x: not PCI", i.Flags)
	case i.NumRegions <= regionConfig || i.NumRegions > 100:
		return fmt.Sprintf("%d regions: PCI has a configuration space, region 7, and QEMU takes 100", i.NumRegions)
	case i.NumIRQs <= irqMSIX || i.NumIRQs > 50:
		return fmt.Sprintf("%d interrupt indexes: PCI has MSI-X, index 2, and QEMU takes 50", i.NumIRQs)
	}
	return ""
}

var deviceInfo = []Case{
	message1("device", "DEVICE_GET_INFO; the reply is read", goodInfo, soundDevice),
	message1("argsz large", "argsz 4096", deviceInfoMessage(4096), soundDevice),
	message1("argsz 15", "argsz 15", deviceInfoMessage(15), isRefused),
	message1("argsz 0", "argsz 0", deviceInfoMessage(0), isRefused),
	message1("payload of 12 bytes", "payload cut", cut(goodInfo, 12), isRefused),
	choice(message1("payload of 32 bytes", "payload with 16 bytes more", longer(goodInfo, 16), servedOrRefused)),
}

func soundRegion(i uint32, r wire.RegionInfo) string {
	switch {
	case r.Index != i:
		return fmt.Sprintf("region %d is said to be %d", i, r.Index)
	case r.Argsz < wire.RegionInfoSize:
		return fmt.Sprintf("region %d: argsz %d", i, r.Argsz)
	case r.Flags&^0xf != 0:
		return fmt.Sprintf("region %d: flags %#x", i, r.Flags)
	case r.Flags&wire.RegionFlagCaps != 0 && r.CapOffset < wire.RegionInfoSize:
		return fmt.Sprintf("region %d: capabilities at %d", i, r.CapOffset)
	}
	return ""
}

// onMappable makes a case on a region that can be mapped. full is the argsz it needs.
func onMappable(name, does string, run func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		r, ok := s.dev.mappable()
		if !ok {
			return absent("no region can be mapped")
		}
		if r.Argsz <= wire.RegionInfoSize {
			return absent("region %d can be mapped whole and has no capabilities", r.Index)
		}
		return run(s, s.attach(), r, r.Argsz)
	}}
}

var regionInfo = []Case{
	{Name: "all regions", Does: "each region's description is read", run: func(s *session) finding {
		c := s.attach()
		there := 0
		for i := range uint32(len(s.dev.regions)) {
			a := reply(c, regionInfoMessage(i, wire.RegionInfoSize), wire.RegionInfoSize, "region %d", i)
			r := wire.Parse[wire.RegionInfo](a.body)
			if fault := soundRegion(i, r); fault != "" {
				return fail("%s", fault)
			}
			if r.Size > 0 {
				there++
			}
			if a.fds > 0 && r.Argsz > wire.RegionInfoSize {
				return fail("region %d: a descriptor with a description that does not fit", i)
			}
		}
		return pass("%d of %d have a size", there, len(s.dev.regions))
	}},
	{Name: "twice the same", Does: "each region's description is asked for twice", run: func(s *session) finding {
		c := s.attach()
		for i := range uint32(len(s.dev.regions)) {
			a, b := ask(c, regionInfoMessage(i, wire.RegionInfoSize)), ask(c, regionInfoMessage(i, wire.RegionInfoSize))
			if a.kind != answered || b.kind != answered || string(a.body) != string(b.body) {
				return fail("region %d: %v, then %v", i, a, b)
			}
		}
		return pass("the same")
	}},
	{Name: "absent region", Does: "the description of a region that is not there", run: func(s *session) finding {
		i, ok := s.dev.absentRegion()
		if !ok {
			return absent("all regions are there")
		}
		a := reply(s.attach(), regionInfoMessage(i, wire.RegionInfoSize), wire.RegionInfoSize, "region %d", i)
		if r := wire.Parse[wire.RegionInfo](a.body); r.Size != 0 || r.Flags != 0 {
			return fail("size %#x, flags %#x", r.Size, r.Flags)
		}
		return pass("size 0, flags 0")
	}},
	{Name: "configuration space", Does: "region 7's description", run: func(s *session) finding {
		r, ok := s.dev.config()
		const rw = wire.RegionFlagRead | wire.RegionFlagWrite
		if !ok || r.Size != 256 && r.Size != 4096 || r.Flags&rw != rw {
			return fail("size %d, flags %#x", r.Size, r.Flags)
		}
		return pass("%d bytes", r.Size)
	}},
	message1("argsz 31", "argsz 31", regionInfoMessage(0, 31), isRefused),
	message1("argsz 0", "argsz 0", regionInfoMessage(0, 0), isRefused),
	message1("payload of 28 bytes", "payload cut", cut(regionInfoMessage(0, wire.RegionInfoSize), 28), isRefused),
	oneMessage("index past the last", "index num_regions", func(s *session) (message, string) {
		return regionInfoMessage(s.dev.info.NumRegions, wire.RegionInfoSize), ""
	}, isRefused),
	message1("index 2^32-1", "index 0xffffffff", regionInfoMessage(0xffffffff, wire.RegionInfoSize), isRefused),
	message1("argsz 1 MiB", "argsz 1 MiB", regionInfoMessage(regionConfig, 1<<20), isAnswered(wire.RegionInfoSize)),
	onMappable("capabilities that do not fit", "argsz 32 for a region with capabilities", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		a := reply(c, regionInfoMessage(r.Index, wire.RegionInfoSize), wire.RegionInfoSize, "argsz 32")
		if got := wire.Parse[wire.RegionInfo](a.body); got.Flags&wire.RegionFlagCaps != 0 || got.Flags&wire.RegionFlagMmap == 0 || got.Argsz != full || a.fds != 0 {
			return fail("%v, flags %#x, argsz %d", a, got.Flags, got.Argsz)
		}
		return pass("argsz %d is asked for", full)
	}),
	onMappable("one byte too few", "one byte less than is needed", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		a := ask(c, regionInfoMessage(r.Index, full-1))
		if a.kind != answered || len(a.body) < wire.RegionInfoSize || len(a.body) > int(full-1) {
			return fail("%v for argsz %d", a, full-1)
		}
		if got := wire.Parse[wire.RegionInfo](a.body); got.Flags&wire.RegionFlagCaps != 0 || a.fds != 0 || got.Argsz != full {
			return fail("%v, flags %#x, argsz %d", a, got.Flags, got.Argsz)
		}
		return pass("%v, no capabilities", a)
	}),
	onMappable("capability chain", "what is needed; the chain is walked", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		a := reply(c, regionInfoMessage(r.Index, full), int(full), "argsz %d", full)
		got := wire.Parse[wire.RegionInfo](a.body)
		if got.Flags&wire.RegionFlagCaps == 0 {
			return fail("flags %#x: no capabilities", got.Flags)
		}
		areas, n, err := wire.ParseSparse(a.body, got.CapOffset)
		if err != nil {
			return fail("%v", err)
		}
		for _, x := range areas {
			if x.Size == 0 || x.Offset%page != 0 || x.Offset > got.Size || x.Size > got.Size-x.Offset {
				return fail("area %#x+%#x in a region of %#x bytes", x.Offset, x.Size, got.Size)
			}
		}
		return pass("%d capabilities, %d areas", n, len(areas))
	}),
	onMappable("more than is needed", "argsz of 64 KiB; the reply is no longer than it has to be", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		reply(c, regionInfoMessage(r.Index, 64<<10), int(full), "argsz 64 KiB for %d bytes", full)
		return pass("%d bytes", full)
	}),
	choice(onMappable("descriptors of a region", "how many descriptors come along", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		a := reply(c, regionInfoMessage(r.Index, full), int(full), "argsz %d", full)
		areas, _, err := wire.ParseSparse(a.body, wire.Parse[wire.RegionInfo](a.body).CapOffset)
		if err != nil {
			return fail("%v", err)
		}
		if a.fds != 1 && a.fds != len(areas) {
			return fail("%d descriptors for %d areas", a.fds, len(areas))
		}
		return pass("%d for %d areas", a.fds, len(areas))
	})),
	onMappable("the descriptor can be mapped", "each area is mapped", func(s *session, c *client.Client, r wire.RegionInfo, full uint32) finding {
		must(c.Send(regionInfoMessage(r.Index, full).bytes()), "send")
		m, err := c.Recv()
		must(err, "receive")
		for _, fd := range m.FDs {
			defer unix.Close(fd)
		}
		if len(m.FDs) == 0 || len(m.Payload) < wire.RegionInfoSize {
			return fail("no descriptor")
		}
		got := wire.Parse[wire.RegionInfo](m.Payload)
		areas, _, err := wire.ParseSparse(m.Payload, got.CapOffset)
		if err != nil {
			return fail("%v", err)
		}
		for _, x := range areas {
			data, err := unix.Mmap(m.FDs[0], int64(got.Offset+x.Offset), page, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return fail("area %#x+%#x: mmap: %v", x.Offset, x.Size, err)
			}
			_ = unix.Munmap(data)
		}
		return pass("%d areas", len(areas))
	}),
}

var irqInfo = []Case{
	{Name: "all indexes", Does: "each interrupt's description is read", run: func(s *session) finding {
		c := s.attach()
		text := ""
		for i := range uint32(numIRQs) {
			a := reply(c, irqInfoMessage(i, wire.IRQInfoSize), wire.IRQInfoSize, "index %d", i)
			q := wire.Parse[wire.IRQInfo](a.body)
			switch {
			case q.Index != i || q.Argsz != wire.IRQInfoSize || q.Flags&^0xf != 0:
				return fail("index %d: index %d, argsz %d, flags %#x", i, q.Index, q.Argsz, q.Flags)
			case q.Count > 0 && q.Flags&wire.IRQFlagEventFD == 0:
				return fail("index %d: no eventfds", i)
			case i == irqINTx && q.Count > 1 || i >= irqErr && q.Count > 1:
				return fail("index %d: %d vectors", i, q.Count)
			case q.Count > 2048:
				return fail("index %d: %d vectors", i, q.Count)
			}
			text += fmt.Sprintf(" %d", q.Count)
		}
		return pass("vectors:%s", text)
	}},
	message1("index 5", "index 5", irqInfoMessage(5, wire.IRQInfoSize), isRefused),
	message1("index 2^32-1", "index 0xffffffff", irqInfoMessage(0xffffffff, wire.IRQInfoSize), isRefused),
	message1("argsz 15", "argsz 15", irqInfoMessage(0, 15), isRefused),
	message1("argsz 0", "argsz 0", irqInfoMessage(0, 0), isRefused),
	message1("payload of 12 bytes", "payload cut", cut(irqInfoMessage(0, 16), 12), isRefused),
	message1("argsz large", "argsz 4096", irqInfoMessage(0, 4096), isAnswered(wire.IRQInfoSize)),
}
