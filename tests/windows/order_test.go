package windows

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// aliased is a driver with one page in two BARs, so that one of them is an alias.
func aliased(t *testing.T, s *side) (d *driver, at3, at1 uint64) {
	d = drive(t, s)
	at1 = pollSize
	d.show(d.bar3, 0, dataAt, 1, true)
	d.show(d.bar1, at1/page, dataAt, 1, true)
	d.away()
	require.NotZero(t, s.stats.Aliases.Load())
	return d, 0, at1
}

// TestRowBarriers: at an access of each row that is a barrier, a write to an alias is in the
// page. No other row's access flushes.
func TestRowBarriers(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d, at3, at1 := aliased(t, s)
		n := uint32(0)
		orders := func(what string, want bool, access func()) {
			t.Helper()
			n++
			now := binary.LittleEndian.AppendUint32(nil, n)
			copy(d.direct(1, at1+64, 4), now)
			before := s.stats.Barriers.Load()
			access()
			if !want {
				require.Equal(t, before, s.stats.Barriers.Load(), "%s: no barrier", what)
				return
			}
			require.Greater(t, s.stats.Barriers.Load(), before, what)
			require.Equal(t, now, d.read(3, at3+64, 4), what)
		}
		none, all := 0, 0
		for _, b := range s.blocks {
			all += len(b.Regs)
			for _, r := range b.Regs {
				orders("read of "+r.Name, r.Barrier&mmio.BarrierRead != 0, func() { d.rd(uint64(r.Offset &^ 3)) })
				if r.Barrier&mmio.BarrierWrite != 0 {
					v := d.rd(uint64(r.Offset))
					orders("write of "+r.Name, true, func() { d.wr(uint64(r.Offset), v) })
				}
				if r.Barrier == 0 {
					none++
				}
			}
		}
		require.Greater(t, none, all*3/4)
		for range 1000 {
			orders("a scratch register", false, func() { d.wr(0x14fc, n) })
		}
		orders("a flush", true, d.barrier)
		if _, whole := s.function.(*passthrough.Function); whole { // a virtual GPU has no channel yet
			orders("a doorbell", true, func() { d.WriteBAR(1, gf100.USERDGPPut, make([]byte, 4)) })
			orders("a store after the poll area", false, func() { d.WriteBAR(1, pollSize, make([]byte, 4)) })
		}
	})
}

// listener is a host that is told of interrupts.
type listener func(level bool)

func (on listener) Interrupt(line mmio.Line) { on(line.Level) }

// TestInterruptIsBarrier: at an interrupt, every alias has all earlier writes.
func TestInterruptIsBarrier(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d, at3, at1 := aliased(t, s)
		interrupts := 0
		on := listener(func(level bool) {
			if level {
				interrupts++
				require.True(t, bytes.HasPrefix(d.direct(3, at3, page), []byte("written")))
			}
		})
		switch f := s.function.(type) {
		case serve.VGPU:
			f.AttachHost(on)
			defer f.AttachHost(nil)
		case *passthrough.Function:
			f.AttachHost(on)
			defer f.DetachHost()
		}
		if s.format == shadowpt.Fermi {
			d.wr(0x140, 3) // enables it, as a boot of GSP does
		}
		copy(d.direct(1, at1, page), "written")
		d.interrupt()
		require.Equal(t, 1, interrupts)
	})
}

// TestInvalidateAll: an invalidate of all directories concerns each window, and one of another
// directory none.
func TestInvalidateAll(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d := drive(t, s)
		for all, scans := range map[bool]uint64{false: 0, true: 2} {
			d.name(&bar{}) // none
			before := s.stats.Scans.Load()
			d.invalidate(all)
			require.Equal(t, scans, s.stats.Scans.Load()-before, "%t", all)
		}
	})
}
