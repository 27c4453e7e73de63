package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// chip is the language of a family of chips. What the kernel is asked for is the same on all.
type chip struct {
	first, last uint64        // as nouveau numbers chips
	mover       push.Engine   // copies and stages where a command names no engine
	copiers     []push.Engine // the copy engines
	release     func(b *push.Buffer, va uint64, payload uint32) *push.Buffer
	offences    []offence
}

var chips = []chip{
	{0xc0, 0xdf, push.M2MF, []push.Engine{push.CE0, push.CE1}, (*push.Buffer).Release, offences},
	{0x180, 0x18f, push.HopperCopy, []push.Engine{push.HopperCopy}, (*push.Buffer).HopperRelease, hopperOffences},
}

// chipOf finds the row of a device's chip.
func chipOf(dev Device) (*chip, error) {
	id, err := dev.Chipset()
	if err != nil {
		return nil, err
	}
	for i := range chips {
		if c := &chips[i]; c.first <= id && id <= c.last {
			return c, nil
		}
	}
	return nil, fmt.Errorf("chip %#x: the guest program knows GF100 (0xc0) and GH100 (0x180)", id)
}
