package isolation

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// loud is a GH100 that says when it logs something.
type loud struct {
	serve.GH100
	says func()
}

func (l loud) New(vram uint64, cull card.Culling, log func(string, ...any)) (serve.Shown, error) {
	return l.GH100.New(vram, cull, func(format string, args ...any) { l.says(); log(format, args...) })
}

// TestPanicsStayWithTheirGuest: a panic of the server in a trap of a guest, or in a step of its
// channel on the card, quarantines that guest, whose neighbour copies on. The next client of the GPU
// finds it in order. Package aggregator tests the other goroutines.
func TestPanicsStayWithTheirGuest(t *testing.T) {
	for _, c := range []struct {
		where string
		chip  rig.Chip
	}{{"a step of its channel", rig.Fermi}, {"a step of its channel", rig.Hopper}, {"REGION_READ", rig.Fermi}, {"REGION_WRITE", rig.Hopper}} {
		where, chip := c.where, c.chip
		t.Run(chip.Device.Name()+" "+where, func(t *testing.T) {
			var armed atomic.Bool
			plant := func(here string) {
				if here == where && armed.CompareAndSwap(true, false) {
					panic("planted")
				}
			}
			s := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 10 << 30,
				Watch: func(uint32, shadowpt.Target, uint64, int, bool) { plant("a step of its channel") },
			}})
			for i := range 2 {
				switch where {
				case "REGION_WRITE":
					chip.Device = loud{says: func() { plant(where) }}
				case "REGION_READ":
					chip.Device = serve.GF100{Temperature: func() int { plant(where); return 45 }}
				}
				s.AddChip(chip, aggregator.GuestConfig{Name: fmt.Sprint("guest", i)})
			}
			a, err := copier(chip, s.GPUs[0], 0)
			require.NoError(t, err)
			b, err := copier(chip, s.GPUs[1], 1)
			require.NoError(t, err)
			defer b.Close()
			armed.Store(true)
			switch where {
			case "REGION_WRITE":
				require.NoError(t, a.Raw().SetReg(0xbb0090, 77)) // nobody's token
			case "REGION_READ":
				for _, reg := range registers() {
					if a.Raw().Reg(reg); !armed.Load() {
						break // the sensor's
					}
				}
			default:
				require.NoError(t, a.Ch.Copy(a.Via, a.Src, 4096))
			}
			reason := s.GPUs[0].Guest.QuarantineReason
			require.Eventually(t, func() bool { return reason() != "" }, wait, tick)
			require.Contains(t, reason(), "the server failed in "+where+": planted, at fault_test.go:")
			require.NoError(t, b.Copy())
			require.Empty(t, s.GPUs[1].Guest.QuarantineReason())
			_ = a.Close()
			a, err = copier(chip, s.GPUs[0], 0)
			require.NoError(t, err)
			defer a.Close()
			require.NoError(t, a.Copy())
		})
	}
}
