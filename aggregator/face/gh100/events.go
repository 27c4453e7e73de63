package gh100

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/report"
	device "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
)

// Completed implements report.Receiver.
func (f *Face) Completed(set card.EngineSet) {
	var reported card.EngineSet
	for i, e := range engines {
		if to := runlistLead(i); set>>e&1 != 0 && reported>>to&1 == 0 {
			reported |= 1 << to
			f.to.Completed(to)
		}
	}
}

// faultKinds are the numbers of GSP's events, by what reports a fault.
var faultKinds = map[card.Source]uint32{card.MMU: gsp.ErrorMMU, card.Reader: gsp.ErrorPBDMA, card.Unit: gsp.ErrorGraphics}

// Failed implements report.Receiver. The channel has ended, whatever stopped it: its driver frees it.
func (f *Face) Failed(slot uint32, e report.Error) {
	x := device.Failure{Kind: faultKinds[e.Kind.From()], Text: e.Text}
	if x.Kind == gsp.ErrorMMU {
		x.Addr, x.Access = e.VA, uint32(e.Reason) // the chip has the same numbers (NV_PFAULT_FAULT_TYPE)
	}
	if x.Text == "" {
		x.Text = describe(&e.Fault)
	}
	f.fail(slot, x, func(s *Slot) bool { return s.Instance == e.Place })
}

// describe says for people what a fault is that the card has no words for.
func describe(f *card.Fault) string {
	if f.Kind.From() != card.MMU {
		return fmt.Sprintf("%v: subchannel %d, class %04x, method %#x, data %#x", f.Kind, f.Subchannel, f.Class, f.Method, f.Data)
	}
	access := "read"
	if f.Write {
		access = "write"
	}
	return fmt.Sprintf("%v: %s at %#x", f.Kind, access, f.VA)
}

// Refused implements report.Receiver.
func (f *Face) Refused(slot uint32) {
	f.fail(slot, device.Failure{
		Kind: gsp.ErrorPBDMA,
		Text: "the channel was refused: its USERD is outside of VRAM, or the GPU has no more channels or memory for page tables",
	}, func(*Slot) bool { return true })
}

// fail notes that the channel of a slot has ended, if it is the one meant, and reports it.
func (f *Face) fail(slot uint32, x device.Failure, meant func(*Slot) bool) {
	report := false
	f.locked(func(s *FaceState) {
		c := &s.Slots[slot]
		if report = c.Opened && meant(c); report {
			x.Channel, c.Failed, f.reporting = c.ID, true, true
		}
	})
	if !report {
		return
	}
	defer func() {
		f.locked(func(*FaceState) { f.reporting = false })
		f.to.Done() // Settled has changed
	}()
	f.to.Failed(x)
}

// Done implements report.Receiver.
func (f *Face) Done(report.Notes) { f.to.Done() }
