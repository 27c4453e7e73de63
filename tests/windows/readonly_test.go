package windows

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestReadOnlyPages: a page that no place shows to be written is seen as it is, also
// when it changes; what the guest stores there is undone and counted, and does not
// become the page's when the place may be written.
func TestReadOnlyPages(t *testing.T) {
	each(t, everything, func(t *testing.T, s *side) {
		d := drive(t, s)
		places := []struct {
			b   *bar
			at  uint64
			off uint64
		}{{d.bar3, 3, 3 * page}, {d.bar1, pollSize / page, pollSize}}
		enter := func(readOnly bool) {
			for _, p := range places {
				d.enter(p.b, p.at, shadowpt.PTE{Valid: true, ReadOnly: readOnly, Addr: dataAt})
			}
			for _, p := range places {
				d.invalidate(t, p.b)
			}
			d.away()
		}
		each := func(want []byte, what string) {
			t.Helper()
			for _, p := range places {
				require.Equal(t, want, d.read(p.b.index, p.off, page), "BAR%d: %s", p.b.index, what)
			}
		}
		d.poke(dataAt, secret)
		enter(true)
		each(secret, "shown")

		for _, p := range places {
			copy(d.direct(p.b.index, p.off, page), "scribble")
		}
		d.order()
		each(secret, "undone")
		require.GreaterOrEqual(t, s.stats.Undone.Load(), uint64(len("scribble")))
		require.Equal(t, secret, d.peek(dataAt, page), "the page itself")
		d.away()

		now := secret
		if c, ok := s.function.(*soft.Card); ok { // an engine, as it were
			now = bytes.Repeat([]byte("other bytes "), page)[:page]
			require.True(t, c.WriteVRAM(dataAt, now))
			d.order()
			each(now, "changed")
			require.True(t, c.WriteVRAM(dataAt, secret))
			fresh := func() bool { return bytes.Equal(secret, d.read(3, places[0].off, page)) }
			require.Eventually(t, fresh, patience, time.Millisecond, "nobody looked at it")
			require.True(t, c.WriteVRAM(dataAt, now))
		}
		for _, p := range places {
			copy(d.direct(p.b.index, p.off, page), "scribble")
		}
		enter(false)
		each(now, "writable")
		d.write(1, places[1].off, []byte("written"))
		d.order()
		want := append([]byte("written"), now[len("written"):]...)
		each(want, "written")
		enter(true)
		each(want, "read-only again")
		require.Equal(t, want, d.peek(dataAt, page))
	})
}
