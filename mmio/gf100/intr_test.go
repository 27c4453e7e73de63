package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// slowLine recomputes PMC's line by reading registers one by one, as the
// hardware's description has it.
func slowLine(b *bench, pfifo bool) bool {
	var leaf uint32
	set := func(bit uint32, on bool) {
		if on {
			leaf |= 1 << bit
		}
	}
	set(8, pfifo)
	set(12, b.Read32(0x400100)&b.Read32(0x40013c) != 0)
	set(20, b.Read32(0x9100)&b.Read32(0x9140) != 0)
	set(21, b.Read32(0xe054)&b.Read32(0xe050) != 0 || b.Read32(0xe074)&b.Read32(0xe070) != 0 || b.Read32(0xe06c)&b.Read32(0xe068) != 0)
	pmuDest := b.Read32(0x10a01c)
	set(24, b.Read32(0x10a008)&b.Read32(0x10a018)&pmuDest&^(pmuDest>>16) != 0)
	set(26, b.Read32(0x610020)&b.Read32(0x610028) != 0 || b.Read32(0x610024)&b.Read32(0x61002c) != 0)
	set(28, b.Read32(0x1100)&b.Read32(0x1140) != 0)
	if got := b.Read32(0x100); got != leaf {
		panic("NV_PMC_INTR differs from its sources")
	}
	return leaf&b.Read32(0x640) != 0 && b.Read32(0x140)&1 != 0 || b.Read32(0x104)&b.Read32(0x644) != 0 && b.Read32(0x144)&1 != 0
}

// Any sequence of raising, acknowledging, masking and enabling: the line is what
// the registers say, and there is one edge for each rise and for each re-enabling
// of something pending.
func TestInterruptTreeProperty(t *testing.T) {
	b := newBench(t, FaceConfig{})
	status := map[string]func(bits uint32){
		"pgraph": func(v uint32) { b.Cell("NV_PGRAPH_INTR", 0).Set(v) },
		"pbus":   func(v uint32) { b.Cell("NV_PBUS_INTR_0", 0).Set(v) },
		"gpio":   func(v uint32) { b.Cell("NV_PNVIO_GPIO_INTR_1", 0).Set(v) },
		"aux":    func(v uint32) { b.Cell("NV_PNVIO_AUXCH_INTR", 0).Set(v) },
		"disp":   func(v uint32) { b.Cell("NV_PDISPLAY_INTR_1", 0).Set(v) },
		"pmu":    func(v uint32) { b.Write32(0x10a000, v) },
		"alarm":  func(uint32) { b.Write32(regAlarm, uint32(b.time())) },
	}
	acks := []uint32{0x400100, 0x1100, 0xe074, 0xe06c, 0x610024, 0x10a004, 0x9100}
	enables := []uint32{0x40013c, 0x1140, 0xe070, 0xe068, 0x61002c, 0x10a010, 0x10a014, 0x10a01c, 0x9140, 0x640, 0x644}
	rapid.Check(t, func(t *rapid.T) {
		b.Space.Reset()
		b.face.Reset()
		pfifo, was, again := false, false, false
		small := rapid.SampledFrom([]uint32{0, 1, 2, 0x40, 0xe0, 0xffff, 0x00e000e0, 0xffffffff})
		t.Repeat(map[string]func(*rapid.T){
			"raise": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"pgraph", "pbus", "gpio", "aux", "disp", "pmu", "alarm"}).Draw(t, "unit")
				status[name](small.Draw(t, "bits"))
			},
			"ack":    func(t *rapid.T) { b.Write32(rapid.SampledFrom(acks).Draw(t, "reg"), small.Draw(t, "bits")) },
			"enable": func(t *rapid.T) { b.Write32(rapid.SampledFrom(enables).Draw(t, "reg"), small.Draw(t, "bits")) },
			"pfifo": func(t *rapid.T) {
				pfifo = rapid.Bool().Draw(t, "level")
				b.face.tree.fifo = pfifo
			},
			"unarm": func(*rapid.T) { b.Write32(0x140, 0) },
			"rearm": func(*rapid.T) { b.Write32(0x140, 1); again = true },
			"": func(t *rapid.T) {
				want := slowLine(b, pfifo)
				level, edge := b.face.Settle(b.face.tree.fifo)
				if level != want {
					t.Fatalf("line is %v, the registers say %v", level, want)
				}
				if wantEdge := want && (!was || again); edge != wantEdge {
					t.Fatalf("edge is %v, want %v", edge, wantEdge)
				}
				was, again = want, false
			},
		})
	})
}

// IRQDEST's upper half keeps a controller's interrupt from the host.
func TestFalconRouting(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x10a000, 0x40)
	b.Write32(0x10a010, 0x40)
	for dest, want := range map[uint32]uint32{0: 0, 0x40: intrPMU, 0x00400040: 0, 0x00800040: intrPMU} {
		b.Write32(0x10a01c, dest)
		require.Equal(t, want, b.Read32(0x100), "%#x", dest)
	}
}

func TestSoftwareInterrupt(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x100, 1<<31)
	level, _ := b.face.Settle(b.face.tree.fifo)
	require.False(t, level)
	b.Write32(0x140, 2)
	level, edge := b.face.Settle(b.face.tree.fifo)
	require.True(t, level && edge)
	b.Write32(0x100, 0)
	level, _ = b.face.Settle(b.face.tree.fifo)
	require.False(t, level)
}

func TestSettleAllocatesNothing(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x140, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.face.tree.fifo = true
		b.face.Settle(b.face.tree.fifo)
		b.face.NextAlarm()
		b.Read32(0x100)
		b.Read32(regTimeLow)
	}))
}
