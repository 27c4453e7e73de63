package guest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// pbdmaErrors waits until a PBDMA has reported something.
func pbdmaErrors(t *testing.T, g *guest.Guest) (es []guest.PBDMAError) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(es) == 0 && time.Now().Before(end); {
		_, err := g.AwaitInterrupt(time.Second)
		require.NoError(t, err)
		for _, e := range g.Events() {
			if e.PBDMA != nil {
				es = append(es, *e.PBDMA)
			}
		}
	}
	require.NotEmpty(t, es, "no PBDMA reported anything")
	return es
}

func TestPBDMAErrors(t *testing.T) {
	const softwareClass = 0x1f<<16 | 0x906e
	for name, c := range map[string]struct {
		words  []uint32
		status uint32
		method uint32
		data   uint32
	}{
		"host method that is none": {(&guest.Push{}).Inc(0, 0xfc, 0x1234).Words, gf100.PBDMAIntrMethod, 0xfc, 0x1234},
		"semaphore operation":      {(&guest.Push{}).Semaphore(srcVA, 0, 0).Words, gf100.PBDMAIntrSemaphore, 0x1c, 0},
		"software method": {
			(&guest.Push{}).Inc(7, push.HostSetObject, softwareClass).Inc(7, 0x500, 0x77).Words,
			gf100.PBDMAIntrEmptySubch, 0x500, 0x77,
		},
		"bad header": {[]uint32{0xdead0001}, gf100.PBDMAIntrPBEntry, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := newBoard(t).attach(t, guest.Config{})
			s, ch := channel(t, g, 9)
			buffer(t, g, s, srcVA, 4096, false, guest.Small)
			require.NoError(t, ch.Finish())
			require.NoError(t, ch.Submit(c.words...))
			e := pbdmaErrors(t, g)[0]
			require.Equal(t, c.status, e.Status)
			require.Equal(t, 9, e.Channel)
			if c.method != 0 {
				require.Equal(t, c.method, e.Method)
				require.Equal(t, c.data, e.Data)
			}
			require.NoError(t, ch.Finish(), "the channel continues after the skipped method")
		})
	}
}

func TestReset(t *testing.T) {
	for _, irq := range []guest.Interrupts{guest.MSI, guest.INTx, guest.None} {
		b := newBoard(t)
		g := b.attach(t, guest.Config{Interrupts: irq})
		for range 5 {
			s, ch := channel(t, g, 1)
			buffer(t, g, s, srcVA, 4096, true, guest.Small)
			dst := buffer(t, g, s, dstVA, 4096, false, guest.Small)
			require.NoError(t, ch.Copy(guest.M2MF, dstVA, srcVA, 4096))
			require.NoError(t, ch.Finish())
			require.Equal(t, noise(srcVA>>12, 4096), contents(t, dst))
			require.NoError(t, ch.Copy(guest.CE0, 0x7000_0000, srcVA, 4096)) // a fault on the way
			addr := dst.Addr
			require.NoError(t, g.Reset())
			got := make([]byte, 4096)
			require.NoError(t, g.Raw().VRAM(addr, got))
			require.Equal(t, make([]byte, 4096), got, "a reset leaves nothing in VRAM")
		}
	}
}

// The machine dies in the middle of copies; the next one attaches and works.
func TestReattach(t *testing.T) {
	b := newBoard(t)
	for range 5 {
		g, err := guest.Attach(ctx, b.socket, guest.Config{})
		require.NoError(t, err)
		s, ch := channel(t, g, 1)
		buffer(t, g, s, srcVA, 1<<20, true, guest.Small)
		buffer(t, g, s, dstVA, 1<<20, true, guest.Small)
		for range 30 {
			require.NoError(t, ch.Copy(guest.CE1, dstVA, srcVA, 1<<20))
		}
		require.NoError(t, g.Close())
		require.NoError(t, oneCopy(b.socket))
	}
}

func TestShutdown(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	_, ch := channel(t, g, 1)
	require.NoError(t, ch.Finish())
	require.NoError(t, g.Shutdown())
	require.NoError(t, g.Reset())
	_, ch = channel(t, g, 1)
	require.NoError(t, ch.Finish())
}

// A channel that waits for a semaphore can be preempted and resumed.
func TestPreempt(t *testing.T) {
	g := newBoard(t).attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	sem := buffer(t, g, s, srcVA, 4096, true, guest.Small)
	clear(sem.Data)
	var p guest.Push
	require.NoError(t, ch.Submit(p.Semaphore(srcVA, 1, guest.SemAcquire).Words...))
	f, err := ch.Fence()
	require.NoError(t, err)
	require.NoError(t, ch.Preempt())
	require.NoError(t, ch.Stop())
	sem.Data[0] = 1
	done, err := f.Done()
	require.NoError(t, err)
	require.False(t, done, "a stopped channel went on")
	require.NoError(t, ch.Start())
	require.NoError(t, ch.Finish())
}
