package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guests/push"
)

// Subchannels, as Mesa's nvc0 uses 0 to 3 and 7.
const (
	subchan3D      push.Subchan = 0
	subchanCompute push.Subchan = 1
	subchanM2MF    push.Subchan = 2
	subchan2D      push.Subchan = 3
	subchanCE0     push.Subchan = 4
	subchanCE1     push.Subchan = 5
	subchanEmpty   push.Subchan = 6 // nothing is ever bound here
	subchanSW      push.Subchan = 7
)

// object is a class at its subchannel.
type object struct {
	class   uint32
	engine  push.Engine
	subchan push.Subchan
}

var (
	objectM2MF    = object{push.ClassM2MF, push.EngineGR, subchanM2MF}
	object2D      = object{push.ClassTwoD, push.EngineGR, subchan2D}
	object3D      = object{push.Class3D, push.EngineGR, subchan3D}
	objectCompute = object{push.ClassCompute, push.EngineGR, subchanCompute}
	objectCE0     = object{push.ClassCE0, push.EngineCE0, subchanCE0}
	objectCE1     = object{push.ClassCE1, push.EngineCE1, subchanCE1}
	objectSW      = object{push.ClassSW, push.EngineSW, subchanSW}
)

// engine is something that copies.
type engine struct {
	name     string
	object   object
	maxLines uint32
	ce       bool
}

var engines = []engine{
	{"m2mf", objectM2MF, push.MaxM2MFLines, false},
	{"ce0", objectCE0, push.MaxCELines, true},
	{"ce1", objectCE1, push.MaxCELines, true},
}

// engineOf finds an engine by name; "" is M2MF.
func engineOf(name string) (engine, error) {
	if name == "" {
		name = "m2mf"
	}
	for _, e := range engines {
		if e.name == name {
			return e, nil
		}
	}
	return engine{}, fmt.Errorf("engine %q: want m2mf, ce0 or ce1", name)
}

// copyRect emits one launch without completion.
func (e engine) copyRect(b *push.Buffer, src, dst push.Surface, lineBytes, lines uint32) {
	if e.ce {
		b.CECopy(e.object.subchan, src, dst, lineBytes, lines, 0, nil)
		return
	}
	b.M2MFCopy(e.object.subchan, src, dst, lineBytes, lines, push.LaunchFlush)
}

// lineBytes is the line that nouveau and linear copies here use.
const lineBytes = 4096

// copyLinear emits the launches for n bytes.
func (e engine) copyLinear(b *push.Buffer, src, dst, n uint64) {
	for n > 0 {
		width, lines := uint32(lineBytes), uint32(min(n/lineBytes, uint64(e.maxLines)))
		if lines == 0 {
			width, lines = uint32(n), 1
		}
		e.copyRect(b, push.Surface{VA: src, Pitch: lineBytes}, push.Surface{VA: dst, Pitch: lineBytes}, width, lines)
		done := uint64(width) * uint64(lines)
		src, dst, n = src+done, dst+done, n-done
	}
}
