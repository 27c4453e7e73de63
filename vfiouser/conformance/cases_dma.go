package conformance

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

const rw = wire.DMARdAllowed | wire.DMAWrAllowed

// Where cases map, and how much.
const (
	base = 0x100000
	size = 16 * page
)

// onMemory makes a case on a connection with one file of memory.
func onMemory(name, does string, run func(s *session, c *client.Client, m memory) finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		m := s.memory(64 * page)
		return run(s, s.attach(), m)
	}}
}

// maps sends a DMA_MAP that has to succeed.
func maps(c *client.Client, addr, n, off uint64, flags uint32, fds ...int) {
	reply(c, mapMessage(addr, n, off, flags, fds...), 0, "DMA_MAP %#x+%#x", addr, n)
}

// unmaps sends a DMA_UNMAP that has to succeed, and reads the reply.
func unmaps(c *client.Client, addr, n uint64, flags uint32) {
	m := unmapMessage(addr, n, flags)
	if a := reply(c, m, wire.DMAUnmapSize, "DMA_UNMAP %#x+%#x flags %d", addr, n, flags); string(a.body) != string(m.payload) {
		panic(stop{fmt.Errorf("DMA_UNMAP %#x+%#x flags %d: %v, where the request's 24 bytes were due", addr, n, flags, a)})
	}
}

// span is a range of a case's file, which begins at base and at the file's start.
type span struct{ at, size uint64 }

var oneRange = []span{{0, size}}

// afterMaps makes a case of a message after ranges were mapped with a descriptor.
func afterMaps(name, does string, mapped []span, msg message, want expectation) Case {
	return onMemory(name, does, func(s *session, c *client.Client, m memory) finding {
		for _, r := range mapped {
			maps(c, base+r.at, r.size, r.at, rw, m.fd)
		}
		if msg.Command == wire.DMAMap {
			msg.fds = []int{m.fd}
		}
		return judge(s, c, msg, want)
	})
}

// overlap makes a case of a second range that meets a first, at base.
func overlap(name string, addr, n uint64) Case {
	return afterMaps(name, fmt.Sprintf("%#x+%#x over %#x+%#x", addr, n, base, size), oneRange, mapMessage(addr, n, 0, rw), refusedWith(unix.EEXIST, unix.EINVAL))
}

// neighbours are n ranges of a page, a page apart.
func neighbours(n int) (out []span) {
	for i := range uint64(n) {
		out = append(out, span{2 * i * page, page})
	}
	return out
}

// mapOf makes a case of a DMA_MAP with a descriptor of the case's file.
func mapOf(name, does string, msg message, want expectation) Case {
	return afterMaps(name, does, nil, msg, want)
}

// mapOther makes a case of a DMA_MAP with another descriptor.
func mapOther(name, does string, flags uint32, fd func(*session, memory) int, want expectation) Case {
	return onMemory(name, does, func(s *session, c *client.Client, m memory) finding {
		return judge(s, c, mapMessage(base, size, 0, flags, fd(s, m)), want)
	})
}

var dmaMap = []Case{
	mapOf("with a descriptor", "64 KiB of a memory file", mapMessage(base, size, 0, rw), bare),
	message1("without a descriptor", "64 KiB that are reached by message", mapMessage(base, size, 0, rw), bare),
	mapOf("read only", "READ alone, with a descriptor that can be written", mapMessage(base, size, 0, wire.DMARdAllowed), bare),
	mapOther("read only, opened so", "READ alone, with a descriptor that can only be read", wire.DMARdAllowed, (*session).readOnly, bare),
	mapOther("more rights than the descriptor", "READ and WRITE with a descriptor that can only be read", rw, (*session).readOnly, isRefused),
	mapOther("a descriptor that cannot be mapped", "a pipe", rw, func(s *session, _ memory) int { return s.pipe().w }, isRefused),
	mapOf("at an offset", "one page from page 3 on", mapMessage(base, page, 3*page, rw), bare),
	afterMaps("one file at many offsets", "9 ranges of one file", neighbours(8), mapMessage(base+32*page, page, 5*page, rw), bare),
	afterMaps("neighbours", "a range right after, and one right before", []span{{0, size}, {size, size}}, mapMessage(base-size, size, 2*size, rw), bare),
	afterMaps("12 ranges", "12 at a time", neighbours(11), mapMessage(base+32*page, page, 0, rw), bare),
	choice(onMemory("64 ranges", "64 at a time", func(s *session, c *client.Client, m memory) finding {
		for i := range uint64(64) {
			a := ask(c, mapMessage(base+i*2*page, page, i*page, rw, m.fd))
			switch a.kind {
			case answered:
			case refused:
				return pass("%d, then %v", i, a)
			default:
				return fail("%v", a)
			}
		}
		return pass("all accepted")
	})),
	choice(afterMaps("the same range again", "the very same DMA_MAP twice", oneRange, mapMessage(base, size, 0, rw), servedOrRefused)),
	message1("file I/O without a descriptor", "flag 8", mapMessage(base, size, 0, rw|wire.DMAUseFileIO), isRefused),
	choice(mapOf("file I/O", "flag 8, libvfio-user's: read and write the file", mapMessage(base, size, 0, rw|wire.DMAUseFileIO), servedOrRefused)),
	overlap("overlap, the same range elsewhere in the file", base, size-page),
	overlap("overlap at the start", base-page, 2*page),
	overlap("overlap inside", base+page, page),
	overlap("overlap at the end", base+size-page, 2*page),
	overlap("overlap around", base-page, size+2*page),
	message1("argsz 31", "argsz 31", command(wire.DMAMap, wire.Append(nil, wire.DMAMapRequest{Argsz: 31, Flags: rw, Addr: base, Size: size})), isRefused),
	message1("payload of 24 bytes", "payload cut", cut(mapMessage(base, size, 0, rw), 24), isRefused),
	message1("unknown flag", "flag 0x80000000", mapMessage(base, size, 0, rw|0x80000000), isRefused),
	choice(message1("no rights", "flags 0", mapMessage(base, size, 0, 0), servedOrRefused)),
	choice(message1("size 0", "size 0", mapMessage(base, 0, 0, rw), servedOrRefused)),
	choice(message1("range that wraps", "the last page and one more", mapMessage(^uint64(page-1), 2*page, 0, rw), servedOrRefused)),
	choice(message1("16 TiB", "more than a bitmap can be kept for", mapMessage(0, 16<<40, 0, rw), servedOrRefused)),
	choice(mapOf("offset within a page", "offset 512", mapMessage(base, page, 512, rw), servedOrRefused)),
	choice(mapOf("past the end of the file", "a page that the file has not", mapMessage(base, page, 64*page, rw), servedOrRefused)),
	choice(onMemory("two descriptors", "one too many", func(s *session, c *client.Client, m memory) finding {
		return judge(s, c, mapMessage(base, page, 0, rw, m.fd, m.fd), servedOrRefused)
	})),
}

func (s *session) readOnly(m memory) int {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", m.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(err, "open")
	s.undo = append(s.undo, func() { unix.Close(fd) })
	return fd
}

// wrongUnmap makes a case of a DMA_UNMAP of one mapped range, at base.
func wrongUnmap(name, does string, msg message, want expectation) Case {
	return afterMaps(name, does, oneRange, msg, want)
}

var missing = refusedWith(syscall.ENOENT, syscall.EINVAL)

var dmaUnmap = []Case{
	onMemory("exact", "the mapped range; the reply repeats the request", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw, m.fd)
		unmaps(c, base, size, 0)
		return pass("the 24 bytes came back")
	}),
	onMemory("without a descriptor", "a range that had none", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw)
		unmaps(c, base, size, 0)
		return pass("the 24 bytes came back")
	}),
	onMemory("unmapped before the reply", "whether the pages are unmapped when the reply arrives", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw, m.fd)
		if !m.mapped() {
			return absent("the server had not mapped it")
		}
		unmaps(c, base, size, 0)
		if m.mapped() {
			return fail("still mapped")
		}
		return pass("unmapped")
	}),
	onMemory("one of two ranges of a file", "the other stays", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw, m.fd)
		maps(c, base+size, size, size, rw, m.fd)
		unmaps(c, base, size, 0)
		return judge(s, c, unmapMessage(base+size, size, 0), isAnswered(wire.DMAUnmapSize))
	}),
	choice(onMemory("again", "the same DMA_UNMAP twice", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw, m.fd)
		unmaps(c, base, size, 0)
		return judge(s, c, unmapMessage(base, size, 0), servedOrRefused)
	})),
	choice(onMemory("two ranges and a hole", "one DMA_UNMAP, as QEMU sends for pages of an IOMMU; is a range free then?", func(s *session, c *client.Client, m memory) finding {
		maps(c, base, size, 0, rw, m.fd)
		maps(c, base+2*size, size, size, rw, m.fd)
		a, b := ask(c, unmapMessage(base, 4*size, 0)), ask(c, mapMessage(base+2*size, size, 0, rw, m.fd))
		if servedOrRefused(s, a) != "" || b.kind != a.kind {
			return fail("%v, and %v to another mapping there", a, b)
		}
		return pass("%v, and %v to another mapping there", a, b)
	})),
	onMemory("map again", "map, unmap, map elsewhere in the file, 20 times", func(s *session, c *client.Client, m memory) finding {
		for i := range uint64(20) {
			maps(c, base, size, i%4*size, rw, m.fd)
			unmaps(c, base, size, 0)
		}
		return pass("accepted")
	}),
	wrongUnmap("the first half", "half of a range", unmapMessage(base, size/2, 0), missing),
	wrongUnmap("the second half", "half of a range", unmapMessage(base+size/2, size/2, 0), missing),
	choice(wrongUnmap("more than the range", "a page too much", unmapMessage(base, size+page, 0), servedOrRefused)),
	choice(wrongUnmap("elsewhere", "nothing is there", unmapMessage(base+64*size, size, 0), servedOrRefused)),
	wrongUnmap("size 0", "size 0", unmapMessage(base, 0, 0), isRefused),
	onMemory("all", "UNMAP_ALL of three ranges", func(s *session, c *client.Client, m memory) finding {
		for i := range uint64(3) {
			maps(c, base+2*i*size, size, i*size, rw, m.fd)
		}
		unmaps(c, 0, 0, wire.UnmapAll)
		if m.mapped() {
			return fail("still mapped")
		}
		return judge(s, c, unmapMessage(base, size, 0), servedOrRefused)
	}),
	onMemory("all of nothing", "UNMAP_ALL with nothing mapped", func(s *session, c *client.Client, m memory) finding {
		unmaps(c, 0, 0, wire.UnmapAll)
		return pass("accepted")
	}),
	wrongUnmap("all, with an address", "UNMAP_ALL, address not 0", unmapMessage(base, 0, wire.UnmapAll), isRefused),
	wrongUnmap("all, with a size", "UNMAP_ALL, size not 0", unmapMessage(0, size, wire.UnmapAll), isRefused),
	wrongUnmap("unknown flag", "flag 4", unmapMessage(base, size, 4), isRefused),
	choice(wrongUnmap("dirty bitmap and all", "flags 3", unmapMessage(0, 0, 3), isRefused)),
	choice(wrongUnmap("dirty bitmap", "flag 1, dropped from the specification, with no bitmap", unmapMessage(base, size, wire.UnmapGetDirty), isRefused)),
	wrongUnmap("argsz 23", "argsz 23", command(wire.DMAUnmap, wire.Append(nil, wire.DMAUnmapRequest{Argsz: 23, Addr: base, Size: size})), isRefused),
	wrongUnmap("payload of 16 bytes", "payload cut", cut(unmapMessage(base, size, 0), 16), isRefused),
}
