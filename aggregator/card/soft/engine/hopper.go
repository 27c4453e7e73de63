package engine

import (
	"encoding/binary"
	"fmt"
)

// Hopper is one channel's context on the engines of a GH100. It is plain data, as GR is.
type Hopper struct {
	Graphics HopperGraphics
	Copy     HopperCopy
}

// HopperGraphics is a context on the graphics engine of a GH100: it keeps the state of its
// classes, and carries out inline data and semaphores. A method that would draw or launch is
// refused, for no program of SM90 can be executed here.
//
// Macros are not executed. A driver calls some while it sets its context up, until the channel first
// releases a semaphore after one; those only set state, and pass. Others draw or launch, and are refused.
type HopperGraphics struct {
	Macros [2]uint64 // that passed, a bit each
	Set    bool      // the context is set up
	// Values is the last data of each method, by place in hopperGraphics and method / 4.
	Values [hopperClassCount][methodSlots]uint32
	Transfer
}

// hopperAction carries out a method of a GH100's graphics engine, which has been checked and
// stored. v are the values of its class.
type hopperAction func(h *HopperGraphics, env *Env, v *[methodSlots]uint32, c call) Outcome

const hopperClassCount = 4

// hopperGraphics are the classes of the graphics engine. Those of the 2D engine have the rows
// that a GF100 has, and count with them.
var hopperGraphics = [hopperClassCount]*Class{
	classes[placeCB97], classes[placeCBC0], classes[placeA140],
	newClass(place902d, 0x902d, KindHopperGraphics, "FERMI_TWOD_A", []string{"902d"}, cannot(cannot902d), hopperMacros),
}

// hopperPlace finds a class in hopperGraphics, -1 if it is none of them.
func hopperPlace(id uint16) int {
	for i, c := range hopperGraphics {
		if c.ID == id {
			return i
		}
	}
	return -1
}

// Method carries out one method write. method is in bytes.
func (h *HopperGraphics) Method(env *Env, class uint16, method, data uint32) Outcome {
	if h.Op.Kind != OpNone {
		return Busy
	}
	place := hopperPlace(class)
	if place < 0 {
		h.Refusal = Refusal{class, NoClass, method, data}
		return Illegal
	}
	c := hopperGraphics[place]
	row, reason := c.check(method, data)
	if reason != 0 {
		h.Refusal = Refusal{class, reason, method, data}
		env.Stats.class[c.place].Illegal.Add(1)
		return Illegal
	}
	env.Stats.class[c.place].Methods.Add(1)
	h.Values[place][method/4] = data
	if row.hopper == nil {
		return Done
	}
	return row.hopper(h, env, &h.Values[place], call{c, row, method, data})
}

// Inline carries out a run of writes to one method, see GR.Inline.
func (h *HopperGraphics) Inline(env *Env, class uint16, method uint32, data []byte) (int, Outcome) {
	place := hopperPlace(class)
	if method != hopperInlineData || place < 0 || hopperGraphics[place].lookup(method) == nil || h.Op.Kind != OpNone || len(data) < 4 {
		return 0, Done // one by one
	}
	c := hopperGraphics[place]
	n, o := h.load(env, c, data[:len(data)&^3])
	env.Stats.class[c.place].Methods.Add(uint64(n / 4))
	h.Values[place][method/4] = binary.LittleEndian.Uint32(data[n-4:])
	return n, o
}

// Methods of inline data and report semaphores, which the classes have at the same offsets.
const (
	hopperInlineData = 0x1b4
	hopperReduces    = 1 << 3 // of SET_REPORT_SEMAPHORE_D
)

var i2mDst = struct{ length, lines, upper, lower, pitch, block, width, height, layer, x, y, semaphore uint32 }{
	0x180 / 4, 0x184 / 4, 0x188 / 4, 0x18c / 4, 0x190 / 4, 0x194 / 4, 0x198 / 4, 0x19c / 4, 0x1a4 / 4, 0x1a8 / 4, 0x1ac / 4, 0x1dc / 4,
}

// Fields of LAUNCH_DMA of inline data.
const (
	i2mPitch     = 1 << 0
	i2mReduces   = 1 << 1
	i2mRelease   = 2 << 4
	i2mComplete  = 3 << 4
	i2mInterrupt = 3 << 8
	i2mOneWord   = 1 << 12
)

func validI2M(data uint32) bool {
	return data&i2mComplete <= i2mRelease && data>>8&3 <= 1 && data&i2mReduces == 0
}

// beginInline begins an upload, which ends one that has not got all its data.
func beginInline(h *HopperGraphics, env *Env, v *[methodSlots]uint32, c call) Outcome {
	env.launched(c.class.place)
	s := &i2mDst
	u := Upload{Open: true, Length: uint64(v[s.length]), Lines: uint64(v[s.lines])}
	va := wideAddress(v[s.upper], v[s.lower])
	if c.data&i2mPitch != 0 {
		u.Dst = Surface{VA: va, Stride: uint64(v[s.pitch])}
	} else {
		u.Dst = blockLinear(va, uint64(v[s.width]), uint64(v[s.height]), v[s.block]>>4&0xf, v[s.block]>>8&0xf, uint64(v[s.layer]))
		u.Dst.X, u.Dst.Y = uint64(v[s.x]), uint64(v[s.y])
	}
	if c.data&i2mComplete == i2mRelease {
		u.Release = newRelease(wideAddress(v[s.semaphore], v[s.semaphore+1]), c.data&i2mOneWord != 0, v[s.semaphore+2])
	}
	if c.data&i2mInterrupt != 0 {
		u.Events = 1 << EventInterrupt
	}
	h.Upload, h.Op = u, c.class.op(OpNone)
	if u.left() == 0 {
		return h.finishUpload(env)
	}
	return Done
}

// inlineWord is one word of inline data.
func inlineWord(h *HopperGraphics, env *Env, _ *[methodSlots]uint32, c call) Outcome {
	binary.LittleEndian.PutUint32(env.word[:], c.data)
	_, o := h.load(env, c.class, env.word[:])
	return o
}

// hopperReport releases a semaphore, or reports. Nothing is drawn, so every counter is zero.
func hopperReport(h *HopperGraphics, env *Env, v *[methodSlots]uint32, c call) Outcome {
	payload, alone := v[reportC], c.data&reportOneWord != 0
	switch op := c.data & reportOperation; {
	case c.data&hopperReduces != 0 || op != reportRelease && op != reportOnly:
		return refuseHopper(h, env, v, c)
	case op == reportOnly && (wideReports>>(c.data>>23&0x1f)&1 != 0 || alone && c.data&reportDword1 != 0):
		payload = 0
	}
	h.Op = c.class.op(OpRelease)
	h.Op.Release = newRelease(wideAddress(v[reportA], v[reportB]), alone, payload)
	if c.data&reportAwaken != 0 {
		h.Op.Events = 1 << EventAwaken
	}
	return h.work(env)
}

// refuseHopper refuses a method that this card cannot carry out, and counts it.
func refuseHopper(h *HopperGraphics, env *Env, _ *[methodSlots]uint32, c call) Outcome {
	env.Stats.notExecuted[c.row.trigger].Add(1)
	env.Stats.class[c.class.place].Illegal.Add(1)
	h.Refusal = Refusal{c.class.ID, NotCarriedOut, c.method, c.data}
	return Illegal
}

// mmeMacro is the method of the first macro's call; those of the others follow, 8 bytes apart.
const mmeMacro = 0x3800

// macroHopper passes the call of a macro that sets a context up, and refuses others.
func macroHopper(h *HopperGraphics, env *Env, v *[methodSlots]uint32, c call) Outcome {
	i := (c.method - mmeMacro) / 8
	word, bit := &h.Macros[i/64%2], uint64(1)<<(i%64)
	if !h.Set {
		*word |= bit
	}
	if *word&bit == 0 {
		return refuseHopper(h, env, v, c)
	}
	return passHopper(h, env, v, c)
}

// Released notes that the channel released a semaphore.
func (h *HopperGraphics) Released() { h.Set = h.Set || h.Macros != [2]uint64{} }

// passHopper counts a method that this card does not carry out, and that changes no memory.
func passHopper(_ *HopperGraphics, env *Env, _ *[methodSlots]uint32, c call) Outcome {
	env.Stats.notExecuted[c.row.trigger].Add(1)
	return Done
}

// wideAddress joins the halves of an address of 57 bits.
func wideAddress(upper, lower uint32) uint64 { return uint64(upper)<<32 | uint64(lower) }

// String says what was refused, for people.
func (r Refusal) String() string {
	name, why := fmt.Sprintf("method %04x", r.Method), "is none"
	c := ClassOf(r.Class)
	if c == nil {
		return fmt.Sprintf("class %04x: the card has no such class", r.Class)
	}
	if row := c.lookup(r.Method); row != nil {
		name = row.Name
	}
	switch r.Reason {
	case BadBitfield, BadEnum:
		why = "has illegal data"
	case NotCarriedOut:
		why = "is not carried out by the software card"
	}
	return fmt.Sprintf("class %04x: %s %s (data %08x)", r.Class, name, why, r.Data)
}
