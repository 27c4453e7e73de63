package gh100

import (
	"slices"

	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
)

// gspHost is what GSP asks: the card, and the registers for itself.
type gspHost struct {
	Card
	v *VGPU
}

// Announce implements gsp.Host.
func (h *gspHost) Announce() { h.v.face.RaiseGSP() }

// Unload implements gsp.Host.
func (h *gspHost) Unload() { h.v.face.HaltGSP() }

// Errors counts what a guest's driver does against the protocols.
type Errors struct {
	Boots  uint64 `json:"boots"`  // of GSP with arguments that it cannot use
	Queues uint64 `json:"queues"` // that GSP stopped for
	Tokens uint64 `json:"tokens"` // of doorbells that no channel has
}

// count counts an error, and logs the first of its kind.
func (v *VGPU) count(r Rule, n *uint64, format string, args ...any) {
	v.card.BrokeRule(r)
	if *n++; *n == 1 {
		v.log(format, args...)
	}
}

// boot starts GSP. One that cannot start reports a failed boot.
func (v *VGPU) boot(params uint64) {
	if v.resetting {
		return
	}
	if err := v.gsp.Boot(params); err != nil {
		v.count(RuleGSP, &v.errors.Boots, "the driver's GSP does not boot: %v", err)
		v.fail()
	}
}

// kick lets GSP take calls.
func (v *VGPU) kick() {
	if err := v.gsp.Kick(); err != nil {
		v.count(RuleGSP, &v.errors.Queues, "the driver's GSP stops, for it cannot use its queues: %v", err)
		v.fail()
	}
}

func (v *VGPU) fail() {
	v.gsp.Reset()
	v.face.FailGSP()
}

// Errors returns what was counted.
func (v *VGPU) Errors() Errors {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	return v.errors
}

// Unsupported lists the calls, controls and classes that the emulation lacks, in the order in which the
// driver used them. What came after the list was full is one entry, of kind "other".
func (v *VGPU) Unsupported() []gsp.Unsupported {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	list := slices.Clone(v.gsp.Unsupported)
	if others := v.gsp.UnsupportedOthers; others > 0 {
		list = append(list, gsp.Unsupported{Kind: "other", Count: others})
	}
	return list
}

// Completed implements Events.
func (v *VGPU) Completed(engine int) { v.Event(func() { v.face.Completed(engine) }) }

// Failed implements Events. The line for the log comes first: the other event makes the driver give the
// channel up.
func (v *VGPU) Failed(f Failure) {
	v.Event(func() {
		if f.Text != "" {
			v.gsp.LogError(f.Channel, f.Kind, f.Text)
		}
		v.gsp.Failed(f.Channel, f.Kind, f.Addr, f.Access)
	})
}

// Done implements Events: GSP may go on with a call whose reply it holds.
func (v *VGPU) Done() {
	v.Event(func() {
		if v.gsp.Held != nil {
			v.kick()
		}
	})
}
