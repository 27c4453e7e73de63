package neighbours

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mapped = "lazy incremental all off"

// shown is how much memory the nuisance shows in its windows: as many pages as may
// have aliases (limits.map-aliases); those beyond would not move.
const shown = 4 << 20

// storm rewrites page tables, invalidates and submits, and does not wait.
type storm struct {
	*rig.Guest
	ch    *guest.Channel
	b     *guest.Buffer
	round uint64
}

const stormVA = 0x1000_0000

// inRAM has a channel whose submissions cost few traps.
var inRAM = guest.ChannelConfig{RingRAM: true, PushRAM: true}

func newStorm(t *testing.T, g *rig.Guest) *storm {
	s := &storm{Guest: g, ch: g.Channel(1, inRAM)}
	var err error
	s.b, err = g.AllocVRAM(shadowpt.BigPage)
	require.NoError(t, errors.Join(err, s.write(), s.Space.Invalidate(), s.ch.Finish()))
	return s
}

// write writes all entries of a table.
func (s *storm) write() error {
	s.round++
	return s.Space.Put(stormVA, shadowpt.SmallEntries*shadowpt.SmallPage, false, func(i uint64) uint64 {
		return shadowpt.PTE{Valid: true, Addr: s.b.Addr + (i+s.round)%32*shadowpt.SmallPage}.Encode()
	})
}

func (s *storm) do() error {
	return errors.Join(s.write(), s.Raw().Invalidate(uint32(s.Space.Directory()>>12<<4), 1<<31|1), s.ch.Submit(0))
}

// TestTableWorkIsBounded: the table work done for a guest that writes tables, invalidates
// and submits without waiting is at most its rate (limits.table-rate), plus a burst of four
// times its table memory, plus one scan.
func TestTableWorkIsBounded(t *testing.T) {
	const rate, scan = 1 << 20, 4 << 20
	s := newStreet(t, mapped, func(o *aggregator.Options) { o.TableRate = rate })
	storm := newStorm(t, s.nuisance)
	stats := s.nuisance.GPU.Stats()
	begin := time.Now() // before and after the counts: a busy machine has more time, not more work
	work, rewritten, scans := stats.Shadow.TableWork.Load(), stats.Shadow.EntriesRewritten.Load(), stats.Shadow.Scans.Load()
	invalidates := stats.Invalidates.Load()
	s.beside(t, func() error {
		for stats.Shadow.ThrottleTime.Load() == 0 || stats.Shadow.TableWork.Load()-work < 4*tableMemory {
			if err := storm.do(); err != nil || time.Since(begin) > patience {
				return err
			}
		}
		return nil
	})
	work, rewritten, scans = stats.Shadow.TableWork.Load()-work, stats.Shadow.EntriesRewritten.Load()-rewritten, stats.Shadow.Scans.Load()-scans
	require.NotZero(t, stats.Shadow.ThrottleTime.Load(), "it was never held back")
	require.LessOrEqual(t, work, uint64(rate*time.Since(begin).Seconds())+4*tableMemory+scan)
	require.Greater(t, work, rewritten*8*4, "translating an entry costs more than reading it")
	require.LessOrEqual(t, scans, stats.Invalidates.Load()-invalidates+1)
}

// TestDoorbellsAreCounted: a doorbell without new work is one doorbell, with a scheduler
// and without, and also if each has to flush as many aliases as there may be.
func TestDoorbellsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name, options string
		aliases       bool
	}{
		{"plain", mapped, false},
		{"scheduled", "lazy incremental all credit", false},
		{"with aliases", mapped, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const rounds, each = 20, 64
			s := newStreet(t, c.options, nil)
			g := s.nuisance
			if c.aliases {
				b, err := g.AllocVRAM(shown)
				require.NoError(t, err)
				_, err = b.BAR1()
				require.NoError(t, err)
				_, _, err = b.BAR3()
				require.NoError(t, err)
			}
			ch := g.Channel(1, inRAM)
			require.NoError(t, ch.Finish())
			clear(ch.Ring().Data) // entries without words
			put, entries := ch.GPGet(), uint32(len(ch.Ring().Data)/gf100.GPEntrySize)
			stats := s.nuisance.GPU.Stats()
			before := stats.Doorbells.Load()
			s.beside(t, func() error {
				for range rounds {
					for range each {
						put = (put + 1) % entries
						if err := g.Raw().Post(1, ch.DoorbellOffset(), binary.LittleEndian.AppendUint32(nil, put)); err != nil {
							return err
						}
					}
					g.Raw().Reg(0) // after all of them
				}
				return nil
			})
			require.Equal(t, uint64(rounds*each), stats.Doorbells.Load()-before)
		})
	}
}
