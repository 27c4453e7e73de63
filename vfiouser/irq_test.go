package vfiouser_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

const (
	dataNone, dataBool, dataFD       = wire.IRQDataNone, wire.IRQDataBool, wire.IRQDataEventFD
	actMask, actUnmask, actTrigger   = wire.IRQActionMask, wire.IRQActionUnmask, wire.IRQActionTrigger
	irqINTx, irqMSI, irqMSIX, irqErr = vfiouser.IRQINTx, vfiouser.IRQMSI, vfiouser.IRQMSIX, vfiouser.IRQErr
)

func eventfd(t testing.TB) *client.EventFD {
	t.Helper()
	e, err := client.NewEventFD()
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func attach(t testing.TB, c *client.Client, index, start, n int) []*client.EventFD {
	t.Helper()
	es, err := c.AttachIRQs(index, start, n)
	for _, e := range es {
		t.Cleanup(func() { e.Close() })
	}
	require.NoError(t, err)
	return es
}

// TestMask: a masked vector keeps one trigger, which Clear, a reset and disabling take back. The device is
// notified of what is unmasked.
func TestMask(t *testing.T) {
	d := newDevice(t)
	c := newRig(t, d, vfiouser.Options{}).dial(nil)
	h := d.Host()
	es := attach(t, c, irqMSI, 0, 4)
	other := attach(t, c, irqMSIX, 0, 40)[39] // in messages of 16
	require.NoError(t, c.MaskIRQ(irqMSI, 0, 3))
	for i := range 4 {
		h.Trigger(irqMSI, i)
		h.Trigger(irqMSI, i)
	}
	d.locked(func() { d.unmasked = nil })
	require.NoError(t, c.SetIRQs(dataBool|actUnmask, irqMSI, 0, 4, []byte{0, 1, 0, 1}))
	for i, want := range []uint64{0, 1, 0, 2} {
		require.Equal(t, want, es[i].Count(), "pending once, for any count")
	}
	d.locked(func() { require.Equal(t, [][2]int{{irqMSI, 1}, {irqMSI, 3}}, d.unmasked) })
	h.Clear(irqMSI, 0)
	h.Clear(irqMSI, 99)
	h.Clear(9, 0)
	require.NoError(t, c.UnmaskIRQ(irqMSI, 0, 1))
	require.Zero(t, es[0].Count(), "taken back")
	require.NoError(t, c.Reset())
	require.NoError(t, c.UnmaskIRQ(irqMSI, 2, 1))
	require.Zero(t, es[2].Count(), "a device that was reset has nothing pending")

	require.NoError(t, c.MaskIRQ(irqMSI, 0, 1))
	h.Trigger(irqMSI, 0)
	require.NoError(t, c.DisableIRQ(irqMSI))
	es = attach(t, c, irqMSI, 0, 1)
	require.Zero(t, es[0].Count())
	h.Trigger(irqMSI, 0)
	require.EqualValues(t, 1, es[0].Count(), "disabling unmasks")
	h.Trigger(irqMSIX, 39)
	require.EqualValues(t, 1, other.Count(), "another index is disabled too")
}

// TestINTxAutomask: a level-triggered interrupt is masked by its own signal until the client
// is done with it.
func TestINTxAutomask(t *testing.T) {
	r, c := served(t)
	d := r.dev
	h := d.Host()
	e := attach(t, c, irqINTx, 0, 1)[0]
	h.Trigger(irqINTx, 0)
	h.Trigger(irqINTx, 0)
	require.EqualValues(t, 1, e.Count())
	require.NoError(t, c.UnmaskIRQ(irqINTx, 0, 1))
	require.EqualValues(t, 1, e.Count(), "still high: again immediately")
	h.Clear(irqINTx, 0)
	require.NoError(t, c.UnmaskIRQ(irqINTx, 0, 1))
	require.Zero(t, e.Count())
	d.locked(func() { require.Len(t, d.unmasked, 3) })

	// A line that went high before a listener was attached is reported when one is.
	require.NoError(t, c.DisableIRQ(irqINTx))
	h.Trigger(irqINTx, 0)
	d.locked(func() { d.onUnmask = func() { h.Trigger(irqINTx, 0) } })
	e = attach(t, c, irqINTx, 0, 1)[0]
	require.EqualValues(t, 1, e.Count())
}

// TestResample: an eventfd of the client unmasks, as KVM's resampling interrupt does, and the
// device is notified on the connection's thread. Another masks.
func TestResample(t *testing.T) {
	r, c := served(t)
	d := r.dev
	h := d.Host()
	e := attach(t, c, irqINTx, 0, 1)[0]
	resample, mask := eventfd(t), eventfd(t)
	require.NoError(t, c.ResampleIRQ(irqINTx, 0, resample))
	for i := range 50 {
		h.Trigger(irqINTx, 0)
		require.EqualValues(t, 1, e.Count())
		require.NoError(t, resample.Signal())
		eventually(t, "the device is notified", func() (told bool) {
			d.locked(func() { told = len(d.unmasked) == 2+i })
			return told
		})
		_, err := c.Info()
		require.NoError(t, err, "messages are served in parallel")
	}
	require.NoError(t, c.SetIRQs(dataFD|actMask, irqINTx, 0, 1, nil, mask.FD))
	require.NoError(t, mask.Signal())
	_, err := c.Info() // is served after what was signalled before
	require.NoError(t, err)
	h.Trigger(irqINTx, 0)
	require.Zero(t, e.Count())
	require.NoError(t, resample.Signal())
	_, err = e.Wait(patience)
	require.NoError(t, err)

	require.NoError(t, c.SetIRQs(dataFD|actUnmask, irqINTx, 0, 1, nil), "detach")
	require.NoError(t, c.SetIRQs(dataFD|actMask, irqINTx, 0, 1, nil), "detach")
	require.NoError(t, resample.Signal())
	_, err = c.Info()
	require.NoError(t, err)
	require.EqualValues(t, 1, resample.Count(), "still watched")

	// The server's end does not hang on a watched eventfd.
	require.NoError(t, c.ResampleIRQ(irqINTx, 0, resample))
	require.NoError(t, r.srv.Close())
}

// TestTriggerRaces triggers from many goroutines while the client attaches, masks, disables
// and leaves.
func TestTriggerRaces(t *testing.T) {
	r, c := served(t)
	h := r.dev.Host()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					h.Trigger(i%5, (i+k)%4)
				}
			}
		})
	}
	for range 50 {
		attach(t, c, irqMSI, 0, 4)
		require.NoError(t, c.MaskIRQ(irqMSI, 0, 2))
		require.NoError(t, c.UnmaskIRQ(irqMSI, 0, 2))
		require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 1, 2, nil))
		require.NoError(t, c.DisableIRQ(irqMSI))
	}
	c.Close()
	time.Sleep(time.Millisecond)
	close(stop)
	wg.Wait()
}
