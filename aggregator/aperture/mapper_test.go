package aperture

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// fakeCard is an owner whose memory has no tables.
type fakeCard struct {
	*fakecard.Memory
	refuse bool // to move pages
}

func (c *fakeCard) ReadTable(shadowpt.Target, uint64, []byte) bool { return false }
func (c *fakeCard) SameTable(shadowpt.Target, uint64, []byte) bool { return false }
func (c *fakeCard) Quiesce(do func())                              { do() }
func (c *fakeCard) Direct(uint64, bool)                            {}

func (c *fakeCard) Relocate(r card.Relocation) (uint64, error) {
	if c.refuse {
		return 0, fmt.Errorf("refused")
	}
	return c.Memory.Relocate(r)
}

const (
	testPages  = 64 // of VRAM
	testWindow = 32 // pages of BAR1, and of BAR3
	testPoll   = 4  // pages of BAR1 that have the doorbells
)

// newTestMapper makes windows into memory in which each page begins with its number plus one.
func newTestMapper(t require.TestingT, l Limits) (*Mapper, *fakeCard) {
	c := &fakeCard{Memory: fakecard.NewMemory(testPages << pageShift)}
	for n := range uint64(testPages) {
		c.Write(n<<pageShift, le.AppendUint32(nil, uint32(n)+1))
	}
	s := New(c, new(Stats))
	require.NoError(t, s.Open(Config{
		Map: MapBAR1 | MapBAR3 | MapPRAMIN, Format: shadowpt.Fermi, BAR0: 16 << 20, BAR1: testWindow << pageShift, BAR3: testWindow << pageShift,
		VRAM: testPages << pageShift, Poll: testPoll << pageShift, Limits: l,
	}))
	return s, c
}

func closed(t require.TestingT, s *Mapper) {
	_, err := s.Close()
	require.NoError(t, err)
	require.NoError(t, s.Free())
}

// TestMoveKeepsStores: a page moves from one slot to another while a processor stores through each
// slot that shows it on, at each step of the move. No store is lost.
func TestMoveKeepsStores(t *testing.T) {
	for upgrade := range 2 {
		for at := range 8 {
			t.Run(fmt.Sprint(upgrade, " ", at), func(t *testing.T) {
				s, c := newTestMapper(t, Limits{})
				defer closed(t, s)
				bar3, bar1 := s.base[BAR3], s.base[BAR1]+testPoll
				on := []slot{bar1, bar1 + 7, s.base[PRAMIN] + 3}
				for _, at := range on {
					s.show(at, shows(5))
				}
				if upgrade == 0 { // the backing slot loses the page
					s.show(bar3, shows(5))
					on = append(on, bar3+9)
					s.show(bar3+9, shows(5))
				}
				s.update(100)
				steps := 0
				s.step = func() {
					if steps++; steps != at {
						return
					}
					for i, to := range on {
						binary.LittleEndian.PutUint32(s.bytes(to)[64+4*i:], uint32(100+i))
					}
				}
				if upgrade == 0 {
					s.show(s.Pages[5].Backing, nothing)
				} else {
					s.show(bar3, shows(5))
				}
				s.update(100)
				if at == 0 {
					require.Greater(t, steps, 2)
				}
				s.MemoryBarrier()
				got := make([]byte, pageSize)
				c.Read(5<<pageShift, got)
				for i, slot := range on {
					if at > 0 && at <= steps {
						require.EqualValues(t, 100+i, binary.LittleEndian.Uint32(got[64+4*i:]), "stored to slot %d", i)
					}
					require.Equal(t, got, s.bytes(slot), "slot %d", i)
				}
			})
		}
	}
}

// TestLimitsHold: for any slots and limits, and also while the card refuses to move pages, runs and
// aliases stay within their limits. Each slot is a backing slot, an alias, or cleared. No slot has
// a page that it does not show once the queue is empty, and no page loses a byte.
func TestLimitsHold(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{
			Runs: rapid.IntRange(1, 9).Draw(t, "runs"), Moves: rapid.IntRange(1, 40).Draw(t, "moves"),
			Aliases: rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "aliases"),
		}
		s, c := newTestMapper(t, l)
		want := make([]uint32, testPages)
		for n := range want {
			want[n] = uint32(n) + 1
		}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			c.refuse = rapid.IntRange(0, 9).Draw(t, "refuse") == 0
			at := rapid.IntRange(testPoll, len(s.Slots)-1).Draw(t, "slot")
			step := rapid.IntRange(1, 3).Draw(t, "step")
			first := rapid.IntRange(-20, testPages-1).Draw(t, "page")
			n := rapid.SampledFrom([]int{1, 1, 8, 32}).Draw(t, "slots")
			for i := 0; i < n && at+i < len(s.Slots); i += step {
				if k, n := s.kind(slot(at + i)); k == BAR1 && n < testPoll {
					continue
				}
				e := nothing
				if first >= 0 {
					e = shows(uint32(first+i) % testPages)
				}
				s.show(slot(at+i), e)
			}
			moved := s.stats.PagesMoved.Load()
			s.update(l.Moves)
			if s.stats.RunsRefused.Load() == 0 {
				require.LessOrEqual(t, s.stats.PagesMoved.Load()-moved, uint64(2*l.Moves))
			}
			checkLimits(t, s)
			if rapid.Bool().Draw(t, "drain") {
				c.refuse = false
				for tries := 0; s.Pending(); tries++ {
					require.Less(t, tries, 1000)
					s.Access()
					checkLimits(t, s)
				}
			}
			refused += int(s.stats.RunsRefused.Load())
			for range rapid.IntRange(0, 4).Draw(t, "stores") {
				i := rand.IntN(len(s.Slots))
				if e := s.Slots[i].Shows; e != nothing && (s.Slots[i].Resident != nothing || s.Slots[i].MergeBase != nil) && s.backing(uint32(e-1)) != inCard {
					if r := s.Slots[i].Resident; r != nothing && r != e {
						continue // not there yet
					}
					want[e-1] = rand.Uint32()
					set(s.bytes(slot(i)), 0, want[e-1])
					s.MemoryBarrier()
				}
			}
			for n, v := range want {
				var b [4]byte
				c.Read(uint64(n)<<pageShift, b[:])
				require.Equal(t, v, le.Uint32(b[:]), "page %d", n)
			}
		}
		c.refuse = true
		if s.stats.Resident[BAR3].Load()+s.stats.Resident[BAR1].Load()+s.stats.Resident[PRAMIN].Load() > 0 {
			_, err := s.Close()
			require.ErrorContains(t, err, "still where the last client had them mapped")
			require.Error(t, s.Free())
			s.Block(BAR3, true, shadowpt.Space{})
			require.Zero(t, s.stats.Scans.Load(), "nothing moves into windows that are being closed")
		}
		c.refuse = false
		closed(t, s)
		for n, v := range want {
			require.Equal(t, v, le.Uint32(c.Bytes[n<<pageShift:]), "page %d", n)
		}
	})
	require.NotZero(t, refused)
}

// checkLimits checks what is true after each register access.
func checkLimits(t require.TestingT, s *Mapper) {
	runs, aliases := int64(0), 0
	for n := range uint32(testPages) {
		runs += s.runStarts(n)
	}
	require.Equal(t, runs, s.stats.Runs.Load())
	require.LessOrEqual(t, runs, int64(s.cfg.Runs))
	zero := make([]byte, pageSize)
	for i := range s.Slots {
		st, at := &s.Slots[i], slot(i)
		switch {
		case st.MergeBase != nil:
			aliases++
			require.Equal(t, nothing, st.Resident)
			p := s.Pages[uint32(st.Shows-1)]
			require.Contains(t, p.Aliases, at)
			require.NotEqual(t, inCard, p.Backing)
			require.Equal(t, s.bytes(at), s.bytes(p.Backing))
		case st.Resident != nothing:
			require.Equal(t, at, s.resident(at).Backing)
			if !s.Pending() && s.stats.MovesRefused.Load() == 0 {
				require.Equal(t, st.Shows, st.Resident)
			}
		default:
			require.Equal(t, zero, s.bytes(at), "slot %d", i)
		}
	}
	require.EqualValues(t, aliases, s.stats.Aliases.Load())
	require.LessOrEqual(t, aliases, s.cfg.Aliases)
	checkState(t, s)
}

// checkState checks that MapperState is data, and that the rest of a Mapper follows from it.
func checkState(t require.TestingT, s *Mapper) {
	text, err := json.Marshal(s.MapperState)
	require.NoError(t, err)
	var copied MapperState
	require.NoError(t, json.Unmarshal(text, &copied))
	require.Equal(t, s.MapperState, copied)
	queued, aliased := 0, 0
	for n, p := range s.Pages {
		require.Equal(t, n, p.N)
		if p.Queued {
			queued++
			require.Contains(t, s.queue, p)
		}
		if len(p.Aliases) > 0 {
			aliased++
			require.Contains(t, s.aliased, p)
		}
	}
	require.Len(t, s.queue, queued)
	require.Len(t, s.aliased, aliased)
	require.Empty(t, s.vacated)
}
