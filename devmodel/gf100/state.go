package gf100

import "github.com/umbra-gpu/umbra/mmio/gf100"

// State is what a virtual GPU knows besides its registers, its units (gf100.FaceState) and its
// configuration space: the errors of its channels, of which the registers show one at a time.
type State struct {
	ShownErrors [gf100.PBDMAs]ShownError
	Errors      []gf100.PBDMAError // not shown by a PBDMA yet; at most one per channel
	Faults      []ChannelFault     // waiting for their slot; at most one per channel
	// An engine shows a refused method until the guest resumes it; the others wait.
	ShownRefusals [gf100.Engines]ShownRefusal
	Refusals      []Refusal // at most one per channel
}

// ShownError is the error that a PBDMA shows.
type ShownError struct {
	Valid bool
	Skip  bool // the driver skips the method
	gf100.PBDMAError
}

// ChannelFault is an MMU fault of a channel.
type ChannelFault struct {
	Channel uint8
	gf100.MMUFault
}

// ShownRefusal is the channel whose refused method an engine shows.
type ShownRefusal struct {
	Valid   bool
	Channel uint8
}

// Refusal is a method that an engine refused.
type Refusal struct {
	Engine  int
	Channel uint8
	Graph   gf100.GraphTrap // of the graphics engine
	Copy    gf100.CopyTrap  // of a copy engine
}
