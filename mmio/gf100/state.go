package gf100

import (
	"fmt"
	"slices"
)

// FaceStateVersion is the version of FaceState that this package writes and
// reads.
const FaceStateVersion = 2

// FaceState is a face's state besides its space's registers. With the states of the space
// and the configuration space it is the whole state of this package.
type FaceState struct {
	Version int `json:"version"`
	// Time is PTIMER's value in nanoseconds; a face that takes over the state continues
	// from it, independent of its own clock.
	Time   uint64 `json:"time_ns"`
	Alarm  uint64 `json:"alarm_ns"` // PTIMER's value at which the alarm goes off
	Armed  bool   `json:"armed"`
	PFIFO  bool   `json:"pfifo"`  // the level of the owner's PFIFO
	Line   bool   `json:"line"`   // the line at the last Settle
	Resend bool   `json:"resend"` // a leaf was re-enabled since
	CRTC   []byte `json:"crtc"`   // the VGA CRTC registers
	// Falcons are the controllers: PMU, FECS, the copy engines, the video
	// engines, then GPCCS of each GPC.
	Falcons []FalconState `json:"falcons"`
}

// falcons returns the controllers in the order of FaceState.
func (f *Face) falcons() []*falcon {
	out := []*falcon{f.pmu.falcon, f.fecs.falcon, f.ces.falcons[0], f.ces.falcons[1]}
	out = append(out, f.video...)
	return append(out, f.fecs.gpccs...)
}

// State returns a copy of the face's state.
func (f *Face) State() FaceState {
	st := FaceState{
		Version: FaceStateVersion,
		Time:    f.timer.clock() + f.timer.offset, Alarm: f.timer.due, Armed: f.timer.armed,
		PFIFO: f.tree.fifo, Line: f.tree.last, Resend: f.tree.again,
		CRTC: slices.Clone(f.vga.crtc[:]),
	}
	for _, c := range f.falcons() {
		s := c.FalconState
		s.Code, s.Data, s.Tags = slices.Clone(s.Code), slices.Clone(s.Data), slices.Clone(s.Tags)
		st.Falcons = append(st.Falcons, s)
	}
	return st
}

// SetState takes a state over. It refuses, before it changes anything, one of
// another version or of another board. A saved state is not trusted: values are
// cut to the bits that exist.
func (f *Face) SetState(st FaceState) error {
	if st.Version != FaceStateVersion {
		return fmt.Errorf("gf100: face state has version %d; this program reads version %d", st.Version, FaceStateVersion)
	}
	cs := f.falcons()
	if len(st.Falcons) != len(cs) {
		return fmt.Errorf("gf100: face state has %d controllers, this board has %d", len(st.Falcons), len(cs))
	}
	if len(st.CRTC) != len(f.vga.crtc) {
		return fmt.Errorf("gf100: face state has %d CRTC registers, this board has %d", len(st.CRTC), len(f.vga.crtc))
	}
	for i, c := range cs {
		s := &st.Falcons[i]
		if len(s.Code) != len(c.Code) || len(s.Data) != len(c.Data) || len(s.Tags) != len(c.Tags) {
			return fmt.Errorf("gf100: face state: controller %d has %d bytes of code and %d of data, this board's has %d and %d",
				i, len(s.Code), len(s.Data), len(c.Code), len(c.Data))
		}
	}
	f.timer.offset = st.Time - f.timer.clock()
	f.timer.due, f.timer.armed = st.Alarm, st.Armed
	f.tree.fifo, f.tree.last, f.tree.again = st.PFIFO, st.Line, st.Resend
	copy(f.vga.crtc[:], st.CRTC)
	for i, c := range cs {
		c.take(st.Falcons[i])
	}
	return nil
}

// take copies a state of the controller's own sizes, and cuts its values to the bits that exist.
func (f *falcon) take(s FalconState) {
	copy(f.Code, s.Code)
	copy(f.Data, s.Data)
	for p, t := range s.Tags {
		f.Tags[p] = t & (tagValid | tagPage)
	}
	for p := range falconPorts {
		s.CodePort[p] &= portWritable
		s.DataPort[p] &= portWritable
	}
	s.Status, s.Mask, s.BootVec = s.Status&falconIntrAll, s.Mask&falconIntrAll, s.BootVec&bootvecBits
	s.Code, s.Data, s.Tags = f.Code, f.Data, f.Tags
	f.FalconState = s
}
