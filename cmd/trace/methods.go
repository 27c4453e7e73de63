package trace

import (
	"fmt"

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

// of returns that of an event's channel. An entry begins a new one, but for its classes.
func (p pushbuffers) of(f *File, e *trace.Event) *pushbuffer {
	key := [2]uint16{uint16(e.GPU), e.Channel}
	if p[key] == nil {
		p[key] = &pushbuffer{chip: f.GPUs[e.GPU].Chip}
	}
	return p[key]
}

// calls returns the methods of a Words event.
func (p pushbuffers) calls(f *File, e *trace.Event) (b *pushbuffer, list []call) {
	b = p.of(f, e)
	for at := 0; at+4 <= int(min(e.Size, 8)); at += 4 {
		if c, ok := b.word(uint32(e.Value >> (8 * at))); ok {
			list = append(list, c)
		}
	}
	return b, list
}
