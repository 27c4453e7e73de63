package windows

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// driver is a guest of one GPU.
type driver struct {
	*side
	t    testing.TB
	bar3 *bar
	bar1 *bar
}

// drive resets a GPU and makes its BARs' tables.
func drive(t testing.TB, s *side) *driver {
	s.restart(t)
	bars := newBARs(pollSize / page)
	for _, b := range bars {
		s.build(b)
		s.turn(b, true)
	}
	return &driver{side: s, t: t, bar3: bars[0], bar1: bars[1]}
}

// show maps n pages of VRAM at places of a BAR, or takes them away.
func (d *driver) show(b *bar, at, addr uint64, n int, on bool) {
	d.enterAll(b, at, addr, n, on)
	d.effect(d.t, b)
}

// enterAll is show without an invalidate.
func (d *driver) enterAll(b *bar, at, addr uint64, n int, on bool) {
	for i := range uint64(n) {
		d.enter(b, at+i, shadowpt.PTE{Valid: on, Addr: addr + i*page})
	}
}

// away moves PRAMIN to where nothing of the test's is.
func (d *driver) away() { d.wr(d.window, 0x2000000>>16) }

// each runs a test on a GPU of each set-up.
func each(t *testing.T, o offer, f func(t *testing.T, s *side)) {
	for name, make := range setups {
		t.Run(name, func(t *testing.T) { f(t, make(t, o)) })
	}
}

// eachGF100 runs a test of what the other chip does not have.
func eachGF100(t *testing.T, o offer, f func(t *testing.T, s *side)) {
	each(t, o, func(t *testing.T, s *side) {
		if s.format == shadowpt.Fermi {
			f(t, s)
		}
	})
}

var secret = bytes.Repeat([]byte("not for everybody's eyes"), page)[:page]

// TestVacatedSlotsAreCleared: slots and files that lost their pages keep no data of them.
func TestVacatedSlotsAreCleared(t *testing.T) {
	zero := make([]byte, page)
	at3, at1 := uint64(3), uint64(pollSize/page)
	prepare := func(t *testing.T, s *side) *driver {
		d := drive(t, s)
		d.show(d.bar3, at3, dataAt, 1, true)
		d.show(d.bar1, at1, dataAt, 1, true)
		d.write(3, at3*page, secret)
		d.barrier()
		require.Equal(t, secret, d.read(1, at1*page, page))
		require.Equal(t, secret, d.peek(dataAt, page))
		return d
	}
	for name, f := range map[string]func(d *driver){
		"other page": func(d *driver) {
			d.show(d.bar3, at3, dataAt+page, 1, true)
			d.show(d.bar1, at1, dataAt+page, 1, true)
			d.away()
		},
		"no page": func(d *driver) {
			d.show(d.bar3, at3, dataAt, 1, false)
			d.show(d.bar1, at1, dataAt, 1, false)
			d.away()
		},
		"BARs off": func(d *driver) {
			d.turn(d.bar1, false)
			d.turn(d.bar3, false)
			d.away()
		},
		"reset": func(d *driver) { require.NoError(d.t, d.Reset()) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, everything, func(t *testing.T, s *side) {
				d := prepare(t, s)
				f(d)
				require.Equal(t, zero, d.read(3, at3*page, page))
				require.Equal(t, zero, d.read(1, at1*page, page))
				require.Equal(t, zero, d.read(0, pramin+dataAt%praminSize, page))
				if name == "reset" {
					require.Equal(t, zero, d.peek(dataAt, page), "memory after a reset")
					return
				}
				require.Equal(t, secret, d.peek(dataAt, page), "memory itself")
			})
		})
	}
}

// TestClientsDisconnect: a client that has disconnected and still has its old windows sees
// no later data, and the next client sees no earlier data.
func TestClientsDisconnect(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d := drive(t, s)
		d.show(d.bar3, 0, dataAt, 1, true)
		d.write(3, 0, secret)
		old := s.mapped
		s.mapped = nil
		require.NoError(t, s.maps.CloseWindows())
		stale := &side{mapped: old}
		zero := make([]byte, page)
		require.Equal(t, zero, stale.direct(3, 0, page), "the page has moved back to the card")

		s.attach(t)
		d.barrier()
		require.Equal(t, secret, d.read(3, 0, page), "the card's state is the next client's")
		d.write(3, 8, []byte("new"))
		copy(stale.direct(3, 0, page), "what the old client writes")
		d.barrier()
		require.Equal(t, append(append(append([]byte(nil), secret[:8]...), "new"...), secret[11:]...), d.read(3, 0, page))
		for _, m := range old {
			require.NoError(t, unix.Munmap(m.mem))
		}
	})
}

// TestSealed: a client can neither truncate its windows' files under the card nor unseal
// them. Its writes change only its own memory.
func TestSealed(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d := drive(t, s)
		d.show(d.bar3, 0, dataAt, 1, true)
		for _, r := range s.maps.Windows() {
			fd := int(r.File.Fd())
			require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM)
			require.ErrorIs(t, unix.Ftruncate(fd, 1<<40), unix.EPERM)
			_, err := unix.FcntlInt(r.File.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			require.ErrorIs(t, err, unix.EPERM)
			require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
		}
		d.write(3, 0, secret)
		d.barrier()
		require.Equal(t, secret, d.peek(dataAt, page))
	})
}

// TestNothingLeaks has clients come and go.
func TestNothingLeaks(t *testing.T) {
	count := func(dir string) int {
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(list)
	}
	mappings := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return bytes.Count(text, []byte("\n"))
	}
	each(t, everything, func(t *testing.T, s *side) {
		var files, maps int
		for i := range 20 {
			d := drive(t, s)
			for at := range uint64(40) {
				d.enter(d.bar3, at, shadowpt.PTE{Valid: true, Addr: dataAt + (at*7%40)*page})
			}
			d.effect(t, d.bar3)
			require.Greater(t, s.stats.Runs.Load(), int64(30))
			s.detach(t)
			if i == 4 {
				files, maps = count("/proc/self/fd"), mappings()
			}
			if i > 4 {
				require.LessOrEqual(t, count("/proc/self/fd"), files)
				require.LessOrEqual(t, mappings(), maps+8, "the process's own come and go")
			}
			for k := range aperture.Kind(aperture.Kinds) {
				require.Zero(t, s.stats.Resident[k].Load())
			}
			require.Zero(t, s.stats.Runs.Load())
			require.Zero(t, s.stats.Aliases.Load())
			s.attach(t)
		}
	})
}

// TestAliasesFollow: a processor that polls an alias, and only reads a register that is not a
// barrier, sees writes to the page's backing slot.
func TestAliasesFollow(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d := drive(t, s)
		at1 := uint64(pollSize)
		d.show(d.bar3, 0, dataAt, 1, true)
		d.show(d.bar1, at1/page, dataAt, 1, true)
		d.WriteBAR(3, 0, []byte("engine")) // trapped: straight to the backing slot
		require.Eventually(t, func() bool {
			d.rd(0x14fc)
			return bytes.HasPrefix(d.direct(1, at1, page), []byte("engine"))
		}, patience, time.Millisecond)
	})
}

// TestROM: the mapped ROM equals the trapped one. A guest's writes to it are visible only
// to that guest, until its next reset.
func TestROM(t *testing.T) {
	eachGF100(t, everything, func(t *testing.T, s *side) {
		const rom = 0x300000
		want := make([]byte, 4096)
		s.trapped(0, rom, want)
		require.Equal(t, []byte{0x55, 0xaa}, want[:2])
		require.Equal(t, want, s.direct(0, rom, len(want)))
		copy(s.direct(0, rom, len(want)), "scribble")
		again := make([]byte, 4096)
		s.trapped(0, rom, again)
		require.Equal(t, want, again)
		require.NoError(t, s.Reset())
		require.Equal(t, want, s.direct(0, rom, len(want)))
		copy(s.direct(0, rom, len(want)), "scribble")
		s.detach(t)
		s.attach(t)
		require.Equal(t, want, s.direct(0, rom, len(want)))
	})
}

// TestPollArea: doorbells stay trapped in the drivers' poll area; one in a mapped window
// has no effect, and is counted.
func TestPollArea(t *testing.T) {
	eachGF100(t, everything, func(t *testing.T, s *side) {
		require.Nil(t, s.direct(1, 0, 4))
		require.Nil(t, s.direct(1, pollSize-4, 4))
		require.NotNil(t, s.direct(1, pollSize, 4))
		s.wr(0x2254, 1<<28)
		require.Zero(t, s.stats.PollArea.Load())
		s.wr(0x2254, 1<<28|1)
		require.EqualValues(t, 1, s.stats.PollArea[aperture.BAR1].Load())
	})
}
