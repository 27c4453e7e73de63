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

// broke counts a broken rule, and logs the first time.
func (v *VGPU) broke(r Rule, format string, args ...any) {
	v.card.BrokeRule(r)
	if !v.logged[r] {
		v.logged[r] = true
		v.log(format, args...)
	}
}

// boot starts GSP. One that cannot start reports a failed boot.
func (v *VGPU) boot(params uint64) {
	if v.resetting {
		return
	}
	if err := v.gsp.Boot(params); err != nil {
		v.broke(RuleBoot, "the driver's GSP does not boot: %v", err)
		v.fail()
	}
}

// kick lets GSP take calls.
func (v *VGPU) kick() {
	if err := v.gsp.Kick(); err != nil {
		v.broke(RuleQueues, "the driver's GSP stops, for it cannot use its queues: %v", err)
		v.fail()
	}
}

func (v *VGPU) fail() {
	v.gsp.Reset()
	v.face.FailGSP()
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
