package guest

// Engine is an engine that copies.
type Engine int

const (
	M2MF Engine = iota // of the graphics engine
	CE0
	CE1
)

// CopyEngines are all of them.
var CopyEngines = []Engine{M2MF, CE0, CE1}

var engineNames = [...]string{"M2MF", "CE0", "CE1"}

// String names the engine.
func (e Engine) String() string { return engineNames[e] }

// engineRows says how each engine is bound: its subchannel, and SET_OBJECT's data.
var engineRows = [...]struct{ subch, object uint32 }{
	M2MF: {2, 0<<16 | 0x9039},
	CE0:  {4, 4<<16 | 0x90b5},
	CE1:  {5, 5<<16 | 0x90b8},
}

// Push collects pushbuffer words. The zero value is ready.
type Push struct{ Words []uint32 }

// Host methods (NVIDIA cl906f.h).
const (
	HostSetObject    = 0x00
	HostNOP          = 0x08
	HostSemaphoreA   = 0x10
	HostNonStall     = 0x20
	HostMemOpA       = 0x28
	HostMemOpB       = 0x2c
	HostSetReference = 0x50
	HostYield        = 0x80
)

// Operations of SEMAPHORED.
const (
	SemAcquire   = 1
	SemRelease   = 2
	SemAcquireGE = 4
	SemOneWord   = 1 << 24
	SemSwitch    = 1 << 12
)

// Secondary operations of a header.
const (
	opInc    = 1
	opNonInc = 3
)

func header(op, subch, method uint32, n int) uint32 {
	return op<<29 | uint32(n)<<16 | subch<<13 | method>>2
}

// Inc writes data to method, method + 4, and so on.
func (p *Push) Inc(subch, method uint32, data ...uint32) *Push {
	p.Words = append(append(p.Words, header(opInc, subch, method, len(data))), data...)
	return p
}

// NonInc writes all data to one method.
func (p *Push) NonInc(subch, method uint32, data ...uint32) *Push {
	p.Words = append(append(p.Words, header(opNonInc, subch, method, len(data))), data...)
	return p
}

// Raw adds words as they are.
func (p *Push) Raw(words ...uint32) *Push {
	p.Words = append(p.Words, words...)
	return p
}

// Bind gives the copy engines their subchannels.
func (p *Push) Bind(engines ...Engine) *Push {
	for _, e := range engines {
		p.Inc(engineRows[e].subch, HostSetObject, engineRows[e].object)
	}
	return p
}

// Semaphore executes one of the Sem operations at va.
func (p *Push) Semaphore(va uint64, payload, op uint32) *Push {
	return p.Inc(0, HostSemaphoreA, uint32(va>>32), uint32(va), payload, op)
}

// NonStall raises the event of the engine that owns e's subchannel.
func (p *Push) NonStall(e Engine) *Push { return p.Inc(engineRows[e].subch, HostNonStall, 0) }

// M2MF methods (cl9039.h), and those of the copy engines' microcode.
const (
	m2mfOffsetOut = 0x238
	m2mfLaunch    = 0x300
	m2mfData      = 0x304
	m2mfOffsetIn  = 0x30c
	m2mfPitchOut  = 0x318
	ceExec        = 0x300
	ceAddress     = 0x30c

	launchInline = 0x111 // inline source, pitch source and destination
	launchPitch  = 0x110 // of either kind of engine: both sides linear
)

// Limits of one launch, in bytes and lines.
const (
	copyLine  = 4096
	copyLines = 2047
)

// Copy copies n bytes from src to dst, in lines as the kernel does, then the rest.
func (p *Push) Copy(e Engine, dst, src, n uint64) *Push {
	for n > 0 {
		line, lines := uint64(copyLine), min(n/copyLine, copyLines)
		if lines == 0 {
			line, lines = n, 1
		}
		p.CopyLines(e, Lines{VA: dst, Pitch: uint32(line)}, Lines{VA: src, Pitch: uint32(line)}, uint32(line), uint32(lines))
		moved := line * lines
		dst, src, n = dst+moved, src+moved, n-moved
	}
	return p
}

// Lines is one side of a copy: where it begins and the bytes from line to line.
type Lines struct {
	VA    uint64
	Pitch uint32
}

// CopyLines copies a rectangle.
func (p *Push) CopyLines(e Engine, dst, src Lines, width, lines uint32) *Push {
	sc := engineRows[e].subch
	if e == M2MF {
		p.Inc(sc, m2mfOffsetOut, uint32(dst.VA>>32), uint32(dst.VA))
		p.Inc(sc, m2mfOffsetIn, uint32(src.VA>>32), uint32(src.VA), src.Pitch, dst.Pitch, width, lines)
		return p.Inc(sc, m2mfLaunch, launchPitch)
	}
	p.Inc(sc, ceAddress, uint32(src.VA>>32), uint32(src.VA), uint32(dst.VA>>32), uint32(dst.VA), src.Pitch, dst.Pitch, width, lines)
	return p.Inc(sc, ceExec, launchPitch)
}

// maxInline is the limit of words per header here.
const maxInline = 2047

// Inline writes words to dst through M2MF.
func (p *Push) Inline(dst uint64, words ...uint32) *Push {
	sc := engineRows[M2MF].subch
	for len(words) > 0 {
		n := min(len(words), maxInline)
		p.Inc(sc, m2mfOffsetOut, uint32(dst>>32), uint32(dst))
		p.Inc(sc, m2mfPitchOut, uint32(n*4), uint32(n*4), 1)
		p.Inc(sc, m2mfLaunch, launchInline)
		p.NonInc(sc, m2mfData, words[:n]...)
		dst, words = dst+uint64(n*4), words[n:]
	}
	return p
}
