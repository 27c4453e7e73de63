package gh100

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gh100"
)

// State is all that a virtual GPU knows. The card has a state of its own.
type State struct {
	Version   int             `json:"version"`
	Registers mmio.State      `json:"registers"`
	Units     gh100.FaceState `json:"units"`
	PCI       mmio.State      `json:"pci"`
	GSP       gsp.State       `json:"gsp"`
	Logged    [Rules]bool     `json:"logged"` // rules that were broken
}

// StateVersion is the version of State that this package writes and reads.
const StateVersion = 1

// State returns a copy of the state, between two accesses.
func (v *VGPU) State() State {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	return State{
		Version: StateVersion, Registers: v.Space.State(), Units: v.face.State(), PCI: v.PCI.State(), GSP: v.gsp.State(), Logged: v.logged,
	}
}

// SetState takes a state over, of a virtual GPU of the same Config. The card has what the state has. After
// an error the virtual GPU has to be reset.
func (v *VGPU) SetState(st State) error {
	if st.Version != StateVersion {
		return fmt.Errorf("devmodel/gh100: state has version %d; this program reads version %d", st.Version, StateVersion)
	}
	v.Mu.Lock()
	defer v.Mu.Unlock()
	g, err := gsp.New(v.gspConfig, &v.gspHost, &v.gspHost, &st.GSP)
	if err != nil {
		return err
	}
	if err := v.Space.SetState(st.Registers); err != nil {
		return err
	}
	if err := v.PCI.SetState(st.PCI); err != nil {
		return err
	}
	if err := v.face.SetState(st.Units); err != nil {
		return err
	}
	v.gsp, v.logged = g, st.Logged
	v.card.PointPRAMIN(v.pramin())
	v.Report()
	return nil
}
