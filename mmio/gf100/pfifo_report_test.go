package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio"
)

type fifoBench struct {
	*mmio.Space
	FIFOReport
}

func newFIFOBench(t require.TestingT) *fifoBench {
	b := &fifoBench{}
	var bind mmio.Bindings
	b.Bind(&bind)
	bound := map[string]bool{
		"NV_PFIFO_INTR_0": true, "NV_PFIFO_INTR_EN_0": true, "NV_PFIFO_INTR_PBDMA_ID": true, "NV_PFIFO_ENG_EVENT": true,
		"NV_PFIFO_ENG_EVENT_STATUS": true, "NV_PFIFO_INTR_RUNLIST": true, "NV_PPBDMA_INTR_EN_0": true,
	}
	blocks := []mmio.Block{pfifo, pccsr, ppbdma}
	for _, blk := range blocks {
		for _, r := range blk.Regs {
			if r.Effect != "" && !bound[r.Name] {
				bind.OnWrite(r.Name, func(int, mmio.Write) {})
			}
		}
	}
	s, err := mmio.New(SpaceSize, blocks, nil, &bind)
	require.NoError(t, err)
	b.Attach(s)
	b.Space = s
	return b
}

// For any reports and acknowledgements, the levels of 002100 follow its sub-registers, and
// a fault slot keeps its first fault.
func TestFIFOReport(t *testing.T) {
	b := newFIFOBench(t)
	rapid.Check(t, func(t *rapid.T) {
		b.FIFOReport.Reset()
		b.Write32(0x2140, ^uint32(0))
		faults := map[uint32]MMUFault{}
		var events uint32
		var pbdma [PBDMAs]uint32
		runlist := false
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			i := rapid.Uint32Range(0, PBDMAs-1).Draw(t, "PBDMA")
			unit := rapid.Uint32Range(0, FaultUnits+3).Draw(t, "unit")
			bits := rapid.Uint32Range(0, 1<<engEvents-1).Draw(t, "engines")
			switch rapid.SampledFrom([]string{"fault", "free", "events", "answer", "list", "listed", "hold", "go on"}).Draw(t, "operation") {
			case "fault":
				f := MMUFault{Unit: uint8(unit), Inst: uint64(rapid.Uint16().Draw(t, "inst")) << 12, VA: rapid.Uint64Range(0, 1<<40-1).Draw(t, "va"), Info: 1}
				_, taken := faults[unit]
				require.Equal(t, !taken && unit < FaultUnits, b.Fault(f))
				if !taken && unit < FaultUnits {
					faults[unit] = f
				}
			case "free":
				b.Write32(0x259c, 1<<unit)
				if unit < FaultUnits {
					delete(faults, unit)
				}
			case "events":
				b.EngineEvents(bits)
				events |= bits
			case "answer":
				b.Write32(0x25a8+i*4, 1)
				events &^= 1 << i
			case "list":
				b.RunlistDone()
				runlist = true
			case "listed":
				b.Write32(0x2a00, 1<<28)
				runlist = false
			case "hold":
				b.Hold(PBDMAError{PBDMA: uint8(i), Channel: 9, Intr: PBDMAIntrMethod, Method: 0x20100, Data: bits})
				b.Write32(0x4010c+i*0x2000, PBDMAIntrMethod)
				pbdma[i] = bits + 1
			case "go on":
				b.Write32(0x40108+i*0x2000, PBDMAIntrMethod)
				pbdma[i] = 0
			}
			var slots, readers uint32
			for unit, f := range faults {
				slots |= 1 << unit
				at := 0x2800 + unit*0x10
				require.Equal(t, f, MMUFault{
					Unit: uint8(unit), Inst: uint64(b.Read32(at)) << 12,
					VA: uint64(b.Read32(at+8))<<32 | uint64(b.Read32(at+4)), Info: b.Read32(at + 12),
				})
			}
			for i, held := range pbdma {
				if held != 0 {
					readers |= 1 << i
					require.Equal(t, held-1, b.Read32(0x400c4+uint32(i)*0x2000))
				}
			}
			want := uint32(0)
			for _, l := range []struct {
				on  bool
				bit uint32
			}{{slots != 0, 1 << 28}, {readers != 0, 1 << 29}, {runlist, 1 << 30}, {events != 0, 1 << 31}} {
				if l.on {
					want |= l.bit
				}
			}
			require.Equal(t, [4]uint32{want, slots, readers, events}, [4]uint32{
				b.Read32(0x2100), b.Read32(0x259c), b.Read32(0x25a0), b.Read32(0x25a4),
			})
			require.Equal(t, want != 0, b.Level())
			b.Write32(0x2140, 0)
			require.False(t, b.Level(), "nothing is enabled")
			b.Write32(0x2140, ^uint32(0))
		}
		b.FIFOReport.Reset()
		require.False(t, b.Level())
		require.Equal(t, uint32(1<<PBDMAs-1), b.Read32(0x2204))
	})
}
