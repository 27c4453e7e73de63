package simd

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

// Special registers by number, see package interp.
const (
	srTID   = 0x21 // X, then Y and Z
	srCTAID = 0x25
	srNTID  = 0x29
	srGrid  = 0x2d
)

func init() {
	plans[isa.MovSpecial] = func(o *operation) bool {
		switch n := o.Src[0].Reg; {
		case n >= srTID && n < srTID+3:
			o.run = runThread
		case n >= srCTAID && n < srCTAID+3, n >= srNTID && n < srNTID+3, n >= srGrid && n < srGrid+3:
			o.run = runPlace
		}
		return o.run != nil
	}
}

// runThread writes the lanes' places in the block.
func runThread(x *Executor, o *operation) bool {
	size := &x.launch.Block
	first := uint32(x.warp * len(row{}))
	at := [3]uint32{first % size[0], first / size[0] % size[1], first / (size[0] * size[1])}
	n := o.Src[0].Reg - srTID
	d := x.result(o.dst, 0)
	for i := range d {
		d[i] = at[n]
		if at[0]++; at[0] == size[0] {
			at[0] = 0
			if at[1]++; at[1] == size[1] {
				at[1] = 0
				at[2]++
			}
		}
	}
	x.merge(o.dst, d)
	return true
}

// runPlace writes the block's place, or the size of the block or grid.
func runPlace(x *Executor, o *operation) bool {
	var v uint32
	switch n := o.Src[0].Reg; {
	case n < srNTID:
		v = x.block.ID[n-srCTAID]
	case n < srGrid:
		v = x.launch.Block[n-srNTID]
	default:
		v = x.launch.Grid[n-srGrid]
	}
	d := x.result(o.dst, 0)
	fill(d, v)
	x.merge(o.dst, d)
	return true
}
