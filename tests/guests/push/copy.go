package push

// Engine is an engine that copies.
type Engine int

// Engines that copy.
const (
	M2MF Engine = iota // of the graphics engine
	CE0
	CE1
)

// CopyEngines are all of them.
var CopyEngines = []Engine{M2MF, CE0, CE1}

var engines = [...]struct {
	name string
	Object
}{
	M2MF: {"M2MF", Object{ClassM2MF, UnitGR, 2}},
	CE0:  {"CE0", Object{ClassCE0, UnitCE0, 4}},
	CE1:  {"CE1", Object{ClassCE1, UnitCE1, 5}},
}

// String names the engine.
func (e Engine) String() string { return engines[e].name }

// Object is the engine's class at its subchannel.
func (e Engine) Object() Object { return engines[e].Object }

// Bind gives engines their subchannels.
func (b *Buffer) Bind(list ...Engine) *Buffer {
	for _, e := range list {
		b.SetObject(e.Object())
	}
	return b
}

// NonStall raises the event of the engine that owns e's subchannel.
func (b *Buffer) NonStall(e Engine) *Buffer { return b.Inc(e.Object().Subchan, HostNonStall, 0) }

// Limits of one launch of Copy, in bytes and lines.
const (
	copyLine  = 4096
	copyLines = MaxM2MFLines
)

// Copy copies n bytes from src to dst, in lines as the kernel does, then the rest.
func (b *Buffer) Copy(e Engine, dst, src, n uint64) *Buffer {
	for n > 0 {
		line, lines := uint64(copyLine), min(n/copyLine, copyLines)
		if lines == 0 {
			line, lines = n, 1
		}
		b.CopyLines(e, Surface{VA: dst, Pitch: uint32(line)}, Surface{VA: src, Pitch: uint32(line)}, uint32(line), uint32(lines))
		moved := line * lines
		dst, src, n = dst+moved, src+moved, n-moved
	}
	return b
}

// CopyLines copies a rectangle.
func (b *Buffer) CopyLines(e Engine, dst, src Surface, lineBytes, lines uint32) *Buffer {
	if e == M2MF {
		b.M2MFCopy(e.Object().Subchan, src, dst, lineBytes, lines, 0)
	} else {
		b.CECopy(e.Object().Subchan, src, dst, lineBytes, lines, 0, nil)
	}
	return b
}

// Inline writes words to dst through M2MF.
func (b *Buffer) Inline(dst uint64, words ...uint32) *Buffer {
	for len(words) > 0 {
		n := min(len(words), maxInline)
		bytes := uint32(n * 4)
		b.M2MFInline(M2MF.Object().Subchan, Surface{VA: dst, Pitch: bytes}, bytes, 1, 0, words[:n])
		dst, words = dst+uint64(bytes), words[n:]
	}
	return b
}
