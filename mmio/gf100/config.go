package gf100

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// Identity of the PCI function: a Quadro 6000.
const (
	VendorID    = pci.VendorID
	DeviceID    = 0x06d8
	SubsystemID = 0x076f
)

// NewConfigSpace builds the configuration space. The same bytes appear in BAR0 at 088000.
func NewConfigSpace(opts pci.Options) (*pci.ConfigSpace, error) {
	return pci.NewConfigSpace(pci.Chip{
		Defaults: pci.Options{BAR1: 128 << 20, BAR3: 64 << 20, Device: DeviceID, Subsystem: SubsystemID},
		Revision: 0xa3, BAR0: SpaceSize, BAR5: 128,
		// Seen through BAR0 as a rule.
		Own: []mmio.Reg{
			{Name: "NV_XVE_PRIV_MISC_1", Offset: 0x41c, Stub: true},
			{Name: "NV_XVE_CONFIG_LINK", Offset: 0x460, Reset: 0x2220, Stub: true},
			{Name: "NV_XVE_PRIV_INTR", Offset: 0x480, Access: mmio.W1C},
			{Name: "NV_XVE_PRIV_INTR_EN", Offset: 0x484},
			// A write here lets the function send its next message. The interrupt tree
			// sends one for each rising edge, armed or not, and needs no telling.
			{Name: "NV_XVE_CYA_2", Offset: 0x704, Stub: true},
		},
	}, opts)
}
