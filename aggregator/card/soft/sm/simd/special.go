package simd

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	plans[isa.MovSpecial] = func(o *operation) bool {
		switch n := o.Src[0].Reg; {
		case n >= isa.SRTID && n < isa.SRTIDX+3:
			o.run = runThread
		case n >= isa.SRCTAIDX && n < isa.SRCTAIDX+3, n >= isa.SRNTIDX && n < isa.SRNTIDX+3, n >= isa.SRNCTAIDX && n < isa.SRNCTAIDX+3:
			o.run = runPlace
		}
		return o.run != nil
	}
}

// runThread writes the lanes' places in the block: a coordinate, or all.
func runThread(x *Executor, o *operation) bool {
	size := &x.launch.Block
	first := uint32(x.warp * len(row{}))
	at := [3]uint32{first % size[0], first / size[0] % size[1], first / (size[0] * size[1])}
	n := int(o.Src[0].Reg) - isa.SRTIDX
	d := x.result(o.dst, 0)
	for i := range d {
		if n < 0 {
			d[i] = at[0] | at[1]<<16 | at[2]<<26
		} else {
			d[i] = at[n]
		}
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
	case n < isa.SRNTIDX:
		v = x.block.ID[n-isa.SRCTAIDX]
	case n < isa.SRNCTAIDX:
		v = x.launch.Block[n-isa.SRNTIDX]
	default:
		v = x.launch.Grid[n-isa.SRNCTAIDX]
	}
	d := x.result(o.dst, 0)
	fill(d, v)
	x.merge(o.dst, d)
	return true
}
