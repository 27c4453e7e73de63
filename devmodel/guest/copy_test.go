package guest_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
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

// A view with a limit sees the directory only so far.
func TestViewLimit(t *testing.T) {
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

// Dozens of guests, each with its card, in one process leak nothing.
func TestManyGuestsLeakNothing(t *testing.T) {
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
