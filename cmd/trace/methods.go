package trace

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// A call is a write of a method.
type call struct {
	subchannel   uint8
	class        uint16 // 0 if the recording does not have its SET_OBJECT
	method, data uint32
}

// setObject binds a class to a subchannel.
const setObject = 0

// pushbuffer takes apart what one channel was given. Its headers have the same form on every chip.
type pushbuffer struct {
	chip    string
	classes [8]uint16 // by subchannel
	h       gf100.Header
	left    uint16 // words that follow the header

	entries, words uint32 // of the submission and of the entry, that are not here yet

	region [2]uint32 // of programs: the upper and the lower half of its address
	start  uint32    // of the program that the next launch starts
}

// program notes where programs are, and returns where the one is that a method starts.
func (p *pushbuffer) program(c call) (va uint64, starts bool) {
	if c.class != 0x90c0 {
		return 0, false
	}
	switch c.method {
	case 0x1608, 0x160c: // SET_PROGRAM_REGION_A, _B
		p.region[c.method>>2&1] = c.data
	case 0x3b4: // SET_CTA_PROGRAM_START
		p.start = c.data
	case 0x368: // LAUNCH
		return (uint64(p.region[0]&0xff)<<32 | uint64(p.region[1])) + uint64(p.start), true
	}
	return 0, false
}

// maxCode bounds what a recording has of one program, in bytes. It ends with the first instruction that ends all lanes.
const maxCode = 16 << 10

const exit = 0x80000000_00001de7

// Programs finds the programs that one GPU's channels start, for whoever records.
type Programs struct {
	by   map[uint16]*pushbuffer
	seen map[uint64]uint32 // checksums by address
}

// Of appends the code that an event of a submission starts, unless it is in the recording already. read reads it.
func (p *Programs) Of(list []trace.Event, e trace.Event, read func(channel uint16, va uint64, p []byte) bool) []trace.Event {
	if p.by[e.Channel] == nil {
		if p.by == nil || len(p.by) > 1<<8 {
			p.by = make(map[uint16]*pushbuffer)
		}
		p.by[e.Channel] = new(pushbuffer)
	}
	b := p.by[e.Channel]
	for _, c := range b.calls(&e) {
		if va, starts := b.program(c); starts {
			list = p.code(list, e, va, read)
		}
	}
	return list
}

// Program reads the code of a program, up to its first instruction that ends all lanes.
func Program(va uint64, read func(va uint64, p []byte) bool) (code []byte) {
	for block := make([]byte, 128); len(code) < maxCode && read(va+uint64(len(code)), block); {
		code = append(code, block...)
		if i := endOf(block); i >= 0 {
			return code[:len(code)-len(block)+i]
		}
	}
	return code
}

func (p *Programs) code(list []trace.Event, e trace.Event, va uint64, read func(uint16, uint64, []byte) bool) []trace.Event {
	code := Program(va, func(va uint64, p []byte) bool { return read(e.Channel, va, p) })
	sum := crc32.ChecksumIEEE(code)
	if old, had := p.seen[va]; had && old == sum {
		return list
	}
	if p.seen == nil || len(p.seen) > 1<<12 {
		p.seen = make(map[uint64]uint32)
	}
	p.seen[va] = sum
	for i := 0; i+8 <= len(code); i += 8 {
		list = append(list, trace.Event{At: e.At, GPU: e.GPU, Channel: e.Channel, Kind: trace.Code, Addr: va + uint64(i), Value: binary.LittleEndian.Uint64(code[i:]), Size: 8})
	}
	return list
}

// endOf returns where the program ends in a block of its code, -1 if it does not.
func endOf(block []byte) int {
	for i := 0; i < len(block); i += 8 {
		if binary.LittleEndian.Uint64(block[i:]) == exit {
			return i + 8
		}
	}
	return -1
}

// word takes the next word. It returns false for one that is no method's data.
func (p *pushbuffer) word(w uint32) (c call, ok bool) {
	if p.left == 0 {
		p.h = gf100.DecodeHeader(w)
		switch p.h.Kind {
		case gf100.HeaderImmediate:
			return p.call(uint32(p.h.Data)), true
		case gf100.HeaderIncreasing, gf100.HeaderNonIncreasing, gf100.HeaderIncreaseOnce:
			p.left = p.h.Count
		}
		return c, false
	}
	c = p.call(w)
	p.left--
	switch p.h.Kind {
	case gf100.HeaderIncreaseOnce:
		p.h.Kind = gf100.HeaderNonIncreasing
		p.h.Method += 4
	case gf100.HeaderIncreasing:
		p.h.Method += 4
	}
	return c, true
}

func (p *pushbuffer) call(data uint32) call {
	c := call{p.h.Subchannel & 7, 0, uint32(p.h.Method), data}
	if c.method == setObject {
		p.classes[c.subchannel] = uint16(data)
	}
	c.class = p.classes[c.subchannel]
	return c
}

// name names a method as NVIDIA's headers do.
func (p *pushbuffer) name(c call) string {
	if name := soft.HostMethodName(p.chip == "gh100", c.method); name != "" {
		return name
	}
	if class := engine.ClassOf(c.class); class != nil {
		return class.Name + "." + class.MethodName(c.method)
	}
	return fmt.Sprintf("class %04x.%04x", c.class, c.method)
}

// text is a line for the programmer.
func (p *pushbuffer) text(c call) string {
	text := fmt.Sprintf("subchannel %d  %s = %08x", c.subchannel, p.name(c), c.data)
	if class := engine.ClassOf(c.class); c.method == setObject && class != nil {
		text += " " + class.Name
	}
	return text
}

// pushbuffers are those of all channels of a recording.
type pushbuffers map[[2]uint16]*pushbuffer

// of returns that of an event's channel.
func (p pushbuffers) of(f *File, e *trace.Event) *pushbuffer {
	key := [2]uint16{uint16(e.GPU), e.Channel}
	if p[key] == nil {
		p[key] = &pushbuffer{chip: f.GPUs[e.GPU].Chip}
	}
	return p[key]
}

// calls returns the methods of an event, with the channel's pushbuffer: of a Words event, since others have none. It must
// see all events of submissions, which say where a pushbuffer begins.
func (p pushbuffers) calls(f *File, e *trace.Event) (b *pushbuffer, list []call) {
	if e.Kind != trace.Submit && e.Kind != trace.Entry && e.Kind != trace.Words {
		return nil, nil
	}
	b = p.of(f, e)
	return b, b.calls(e)
}

// Methods names the methods of one channel of a gf100.
type Methods struct{ of pushbuffer }

// Lines takes the next words of its pushbuffers, and returns a line for each method.
func (m *Methods) Lines(words []byte) (lines []string) {
	for ; len(words) >= 4; words = words[4:] {
		if c, ok := m.of.word(binary.LittleEndian.Uint32(words)); ok {
			lines = append(lines, m.of.text(c))
		}
	}
	return lines
}

// calls returns the methods of a Submit, Entry or Words event; the first two have none. A recording has the first words of a long submission only: what follows the cut
// begins with a header again.
func (p *pushbuffer) calls(e *trace.Event) (list []call) {
	if e.Kind != trace.Words && p.words > 0 || e.Kind == trace.Submit && p.entries > 0 {
		p.left = 0
	}
	switch e.Kind {
	case trace.Submit:
		p.words, p.entries = 0, 0
		if from, put := uint32(e.Value), uint32(e.Value>>32); from < put { // else the ring's size is not known
			p.entries = put - from
		}
		return nil
	case trace.Entry:
		_, p.words = trace.EntryOf(e.Value)
		p.entries -= min(p.entries, 1)
		return nil
	}
	p.words -= min(p.words, uint32(e.Size/4))
	for at := 0; at+4 <= int(min(e.Size, 8)); at += 4 {
		if c, ok := p.word(uint32(e.Value >> (8 * at))); ok {
			list = append(list, c)
		}
	}
	return list
}
