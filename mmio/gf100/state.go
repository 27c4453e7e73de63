package gf100

import "fmt"

// FaceStateVersion is the version of FaceState that this package writes and
// reads.
const FaceStateVersion = 1

// FaceState is a face's state besides its space's registers. With the states of the space
// and the configuration space it is the whole state of this package.
type FaceState struct {
	Version int `json:"version"`
	// Time is PTIMER's value in nanoseconds; a face that takes over the state continues
	// from it, independent of its own clock.
	Time  uint64 `json:"time_ns"`
	Alarm uint64 `json:"alarm_ns"` // PTIMER's value at which the alarm goes off
	Armed bool   `json:"armed"`
	// Reported are the levels of the owner's sources, as bits of NV_PMC_INTR.
	Reported uint32 `json:"reported"`
	Line     bool   `json:"line"`   // the line at the last Settle
	Resend   bool   `json:"resend"` // a leaf was re-enabled since
	CRTC     []byte `json:"crtc"`   // the VGA CRTC registers
	// Falcons are the controllers: PMU, FECS, the copy engines, the video
	// engines, then GPCCS of each GPC.
	Falcons []FalconState `json:"falcons"`
}

// FalconState is one controller.
type FalconState struct {
	Code     []byte    `json:"code"`
	Data     []byte    `json:"data"`
	Tags     []uint32  `json:"tags"` // per code page: bit 31 mapped, virtual page
	CodePort [4]uint32 `json:"code_port"`
	DataPort [4]uint32 `json:"data_port"`
	Status   uint32    `json:"status"`
	Mask     uint32    `json:"mask"`
	Route    uint32    `json:"route"`
	BootVec  uint32    `json:"boot_vector"`
	Running  bool      `json:"running"`
}

// falcons returns the controllers in the order of FaceState.
func (f *Face) falcons() []*falcon {
	out := []*falcon{f.pmu.falcon, f.fecs.falcon, f.ces.falcons[0], f.ces.falcons[1]}
	out = append(out, f.video.falcons...)
	return append(out, f.fecs.gpccs...)
}

// State returns a copy of the face's state.
func (f *Face) State() FaceState {
	st := FaceState{
		Version: FaceStateVersion,
		Time:    f.timer.clock() + f.timer.offset, Alarm: f.timer.due, Armed: f.timer.armed,
		Reported: f.tree.reported, Line: f.tree.last, Resend: f.tree.again,
		CRTC: append([]byte(nil), f.vga.crtc[:]...),
	}
	for _, c := range f.falcons() {
		st.Falcons = append(st.Falcons, FalconState{
			Code: append([]byte(nil), c.imem...), Data: append([]byte(nil), c.dmem...), Tags: append([]uint32(nil), c.tags...),
			CodePort: c.imemPort, DataPort: c.dmemPort,
			Status: c.stat, Mask: c.mask, Route: c.dest, BootVec: c.bootvec, Running: c.running,
		})
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
		if len(s.Code) != len(c.imem) || len(s.Data) != len(c.dmem) || len(s.Tags) != len(c.tags) {
			return fmt.Errorf("gf100: face state: controller %d has %d bytes of code and %d of data, this board's has %d and %d",
				i, len(s.Code), len(s.Data), len(c.imem), len(c.dmem))
		}
	}
	f.timer.offset = st.Time - f.timer.clock()
	f.timer.due, f.timer.armed = st.Alarm, st.Armed
	f.tree.reported, f.tree.last, f.tree.again = st.Reported, st.Line, st.Resend
	copy(f.vga.crtc[:], st.CRTC)
	for i, c := range cs {
		s := &st.Falcons[i]
		copy(c.imem, s.Code)
		copy(c.dmem, s.Data)
		for p, t := range s.Tags {
			c.tags[p] = t & (tagValid | tagPage)
		}
		for p := range falconPorts {
			c.imemPort[p], c.dmemPort[p] = s.CodePort[p]&portWritable, s.DataPort[p]&portWritable
		}
		c.stat, c.mask = s.Status&falconIntrAll, s.Mask&falconIntrAll
		c.dest, c.bootvec, c.running = s.Route, s.BootVec&bootvecBits, s.Running
	}
	return nil
}
