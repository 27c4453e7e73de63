package guest_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// buffer makes a mapped buffer full of noise.
func buffer(t testing.TB, g *guest.Guest, s *guest.Space, va, n uint64, ram bool, f guest.Flags) *guest.Buffer {
	t.Helper()
	alloc := g.AllocVRAM
	if ram {
		alloc = g.AllocRAM
	}
	b, err := alloc(n)
	require.NoError(t, err)
	require.NoError(t, b.Write(0, noise(va>>12, n)))
	require.NoError(t, s.Map(va, b, f))
	return b
}

func TestCopiesBetweenAllMemories(t *testing.T) {
	for _, ram := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		for _, e := range guest.CopyEngines {
			t.Run(fmt.Sprintf("%v, RAM source %t, RAM destination %t", e, ram[0], ram[1]), func(t *testing.T) {
				g := newBoard(t).attach(t, guest.Config{})
				s, ch := channel(t, g, 1)
				const n = 3*4096 + 77
				src := buffer(t, g, s, srcVA, 4*4096, ram[0], guest.Small)
				dst := buffer(t, g, s, dstVA, 4*4096, ram[1], guest.Small)
				want := append(contents(t, src)[5:5+n], contents(t, dst)[n:]...)
				require.NoError(t, ch.Copy(e, dstVA, srcVA+5, n))
				require.NoError(t, ch.Finish())
				require.Equal(t, want, contents(t, dst))
			})
		}
	}
}

func TestLargePages(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	src := buffer(t, g, s, srcVA, shadowpt.BigPage, false, guest.Big)
	dst := buffer(t, g, s, dstVA, 2*shadowpt.BigPage, false, guest.Big)
	want := append(contents(t, dst)[:shadowpt.BigPage-100], contents(t, src)...)
	require.NoError(t, ch.Copy(guest.CE1, dstVA+shadowpt.BigPage-100, srcVA, shadowpt.BigPage))
	require.NoError(t, ch.Finish())
	require.Equal(t, want, contents(t, dst)[:len(want)])
}

// The control: a card whose engines do nothing fails every data check, and still
// answers every fence.
func TestNothingIsCopiedWithoutEngines(t *testing.T) {
	g := newBoard(t, func(c *soft.Config) { c.DisableEngines = true }).attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	src := buffer(t, g, s, srcVA, 8192, true, guest.Small)
	dst := buffer(t, g, s, dstVA, 8192, false, guest.Small)
	for _, e := range guest.CopyEngines {
		before := contents(t, dst)
		require.NoError(t, ch.Copy(e, dstVA, srcVA, src.Size))
		require.NoError(t, ch.Finish())
		require.Equal(t, before, contents(t, dst))
		require.NotEqual(t, contents(t, src), contents(t, dst))
	}
}

func TestWaysToWait(t *testing.T) {
	for name, cfg := range map[string]guest.Config{
		"MSI": {}, "INTx": {Interrupts: guest.INTx}, "registers": {Interrupts: guest.None},
		"MSI, multi": {Access: guest.Multi}, "MSI, replied": {Access: guest.Replied},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			g := b.attach(t, cfg)
			s, ch := channel(t, g, 1)
			buffer(t, g, s, srcVA, 1<<20, true, guest.Small)
			buffer(t, g, s, dstVA, 1<<20, true, guest.Small)
			for i := range 20 {
				require.NoError(t, ch.Copy(guest.CopyEngines[i%3], dstVA, srcVA, 1<<20))
				f, err := ch.Fence()
				require.NoError(t, err)
				wait := g.Wait
				if i%4 == 3 {
					wait = g.Poll
				}
				require.NoError(t, wait(f))
			}
			heard := 0
			for _, e := range g.Events() {
				if e.NonStall {
					heard++
				}
			}
			if cfg.Interrupts != guest.None {
				require.NotZero(t, heard, "every wait was lucky: nothing came by interrupt")
				require.NotZero(t, b.card.Stats().Interrupts.Load())
			}
		})
	}
}

func TestChannelsAndSpaces(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	var spaces [3]*guest.Space
	for i := range spaces {
		s, err := g.NewSpace()
		require.NoError(t, err)
		spaces[i] = s
		// The same address is other memory in each space.
		buffer(t, g, s, srcVA, 4096, i == 1, guest.Small)
		buffer(t, g, s, dstVA, 4096, i != 1, guest.Small)
	}
	var chans []*guest.Channel
	for i := range 24 {
		s := spaces[i%3]
		if i%2 == 1 {
			s = s.View(shadowpt.VASize - 1)
		}
		ch, err := g.NewChannelWith(i*5, s, guest.ChannelConfig{RingRAM: i%4 == 0, PushRAM: i%5 == 0})
		require.NoError(t, err)
		chans = append(chans, ch)
	}
	for i, ch := range chans {
		require.NoError(t, ch.Copy(guest.CopyEngines[i%3], dstVA+uint64(i)*128, srcVA+uint64(i)*128, 128))
	}
	for _, ch := range chans {
		require.NoError(t, ch.Finish())
	}
	for i, ch := range chans {
		dst, err := g.AllocRAM(4096)
		require.NoError(t, err)
		require.NoError(t, spaces[i%3].Map(0x3000_0000, dst, guest.Small))
		require.NoError(t, ch.Copy(guest.CE0, 0x3000_0000, dstVA, 4096))
		require.NoError(t, ch.Finish())
		at := i * 128
		require.Equal(t, noise(srcVA>>12, 4096)[at:at+128], dst.Data[at:at+128], "channel %d", ch.ID)
		require.NoError(t, dst.Free())
	}
	for _, ch := range chans {
		require.NoError(t, ch.Close())
	}
}

// A view with a limit sees the directory only so far.
func TestViewHasItsOwnLimit(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	buffer(t, g, s, srcVA, 4096, false, guest.Small)
	buffer(t, g, s, 0xff_f000_0000, 4096, false, guest.Small)
	require.NoError(t, ch.Copy(guest.CE0, 0xff_f000_0000, srcVA, 4096))
	require.NoError(t, ch.Finish())
	short, err := g.NewChannel(2, s.View(0xff_efff_ffff))
	require.NoError(t, err)
	require.NoError(t, short.Copy(guest.CE0, 0xff_f000_0000, srcVA, 4096))
	var stopped *guest.ChannelError
	require.ErrorAs(t, short.Finish(), &stopped)
	require.Equal(t, shadowpt.VMLimitExceeded, stopped.Fault.Reason)
}

// A channel waits for another's semaphore, and for the processor's.
func TestSemaphoresBetweenChannels(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, a := channel(t, g, 1)
	b, err := g.NewChannel(2, s)
	require.NoError(t, err)
	sem := buffer(t, g, s, srcVA, 4096, true, guest.Small)
	clear(sem.Data)
	var p guest.Push
	require.NoError(t, a.Submit(p.Semaphore(srcVA, 1, guest.SemAcquireGE|guest.SemSwitch).Semaphore(srcVA+16, 7, guest.SemRelease|guest.SemOneWord).Words...))
	fa, err := a.Fence()
	require.NoError(t, err)
	var q guest.Push
	require.NoError(t, b.Submit(q.Semaphore(srcVA+16, 7, guest.SemAcquire|guest.SemSwitch).Words...))
	fb, err := b.Fence()
	require.NoError(t, err)
	done, err := fb.Done()
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, sem.Write(0, []byte{1}))
	require.NoError(t, g.Wait(fb))
	require.NoError(t, g.Wait(fa))
	require.Equal(t, byte(7), sem.Data[16])
}

// The ring and the pushbuffer go round many times.
func TestRingWraps(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, err := g.NewSpace()
	require.NoError(t, err)
	ch, err := g.NewChannelWith(127, s, guest.ChannelConfig{RingLog2: 3, Push: 4096})
	require.NoError(t, err)
	dst := buffer(t, g, s, dstVA, 4096, true, guest.Small)
	for i := range 200 {
		var p guest.Push
		require.NoError(t, ch.Submit(p.Inline(dstVA+uint64(i)*4, uint32(i)*0x01010101).Words...))
	}
	require.NoError(t, ch.Finish())
	for i := range 200 {
		require.Equal(t, byte(i), dst.Data[i*4])
	}
}

// Pages move under a channel: what was unmapped is not written, what was mapped
// anew is.
func TestRemap(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	src := buffer(t, g, s, srcVA, 4096, true, guest.Small)
	first := buffer(t, g, s, dstVA, 4096, false, guest.Small)
	second := buffer(t, g, s, dstVA, 4096, false, guest.Small)
	before := contents(t, first)
	require.NoError(t, ch.Copy(guest.CE0, dstVA, srcVA, 4096))
	require.NoError(t, ch.Finish())
	require.Equal(t, before, contents(t, first))
	require.Equal(t, src.Data, contents(t, second))
	require.NoError(t, s.Unmap(dstVA, 4096, guest.Small))
	require.NoError(t, ch.Copy(guest.CE0, dstVA, srcVA, 4096))
	var stopped *guest.ChannelError
	require.ErrorAs(t, ch.Finish(), &stopped)
	require.Equal(t, uint64(dstVA), stopped.Fault.VA)
	require.Equal(t, shadowpt.PageNotPresent, stopped.Fault.Reason)
	require.True(t, stopped.Fault.Write)
}

// Dozens of guests, each with its card, in one process; nothing is left behind.
func TestManyGuestsLeaveNothing(t *testing.T) {
	fds := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(e)
	}
	round := func() {
		t.Run("round", func(t *testing.T) {
			var wg sync.WaitGroup
			errs := make(chan error, 24)
			for range 24 {
				b := newBoard(t)
				wg.Go(func() { errs <- oneCopy(b.socket) })
			}
			wg.Wait()
			for range 24 {
				require.NoError(t, <-errs)
			}
		})
	}
	round()
	before := fds()
	round()
	require.LessOrEqual(t, fds(), before)
}

// oneCopy is the shortest life of a guest: a channel and one verified copy.
func oneCopy(socket string) (err error) {
	g, err := guest.Attach(ctx, socket, guest.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	s, err := g.NewSpace()
	if err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err != nil {
		return err
	}
	src, err1 := g.AllocRAM(4096)
	dst, err2 := g.AllocVRAM(4096)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	want := noise(9, 4096)
	got := make([]byte, 4096)
	err = errors.Join(src.Write(0, want), s.Map(srcVA, src, 0), s.Map(dstVA, dst, 0),
		ch.Copy(guest.CE0, dstVA, srcVA, 4096), ch.Finish(), dst.Read(0, got))
	if err == nil && string(got) != string(want) {
		err = errors.New("the copy is not what was copied")
	}
	return err
}

func BenchmarkGuestLife(b *testing.B) {
	board := newBoard(b)
	for b.Loop() {
		require.NoError(b, oneCopy(board.socket))
	}
}
