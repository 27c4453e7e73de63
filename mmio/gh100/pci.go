package gh100

import "github.com/umbra-gpu/umbra/mmio/pci"

// Devices of pci.VendorID.
const (
	DeviceH100 = 0x2331 // H100 PCIe
	DeviceH200 = 0x2335
)

// BAR3Size is what drivers expect: they use the first half, and leave the second to GSP.
const BAR3Size = 32 << 20

// NewConfigSpace builds the configuration space, which BAR0 does not show.
func NewConfigSpace(opts pci.Options) (*pci.ConfigSpace, error) {
	return pci.NewConfigSpace(pci.Chip{
		Defaults: pci.Options{BAR1: 256 << 20, BAR3: BAR3Size, Device: DeviceH100, Subsystem: 0x1626},
		Revision: Boot0 & 0xff, BAR0: SpaceSize,
	}, opts)
}
