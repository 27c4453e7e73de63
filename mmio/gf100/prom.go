package gf100

import "github.com/umbra-gpu/umbra/mmio"

// promSize is the window on the board's ROM.
const promSize = 0x100000

// promWindow shows the ROM, padded with ones. Writes have no effect, as on a board whose
// ROM is not in programming mode.
func promWindow(rom []byte) mmio.Window {
	return mmio.Window{
		Read: func(off uint32, p []byte) {
			n := 0
			if int(off) < len(rom) {
				n = copy(p, rom[off:])
			}
			for i := n; i < len(p); i++ {
				p[i] = 0xff
			}
		},
		Write: func(uint32, []byte) {},
	}
}
