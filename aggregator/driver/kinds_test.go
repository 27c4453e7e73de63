package driver_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// TestKindsTogether: guests of both kinds work on one card at once, and each gets its own data and events.
// Without engines the same programs end, and move nothing.
func TestKindsTogether(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := newRig(t, soft.Config{DisableEngines: off}, 0)
		before := r.gpu.FreeBytes()
		var clients []*client
		for range 2 {
			for _, k := range kinds {
				clients = append(clients, r.join(t, k, len(clients)))
			}
		}
		ids := make(map[uint32]bool)
		var wg sync.WaitGroup
		for i, c := range clients {
			require.False(t, ids[c.ch.ID()], "numbers of both kinds are one's own")
			ids[c.ch.ID()] = true
			c.start()
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				for range 20 {
					if c.work(rng) == off {
						t.Error("a copy is wrong, or one without engines right")
					}
				}
			})
		}
		wg.Wait()
		for _, c := range clients {
			c.eventually(func() bool { e, _ := c.events(); return e != 0 })
			require.Empty(t, c.faults)
			u := r.gpu.Meter().Use(c.ch.ID())
			require.EqualValues(t, 21, u.Ended)
			c.leave()
		}
		require.Equal(t, before, r.gpu.FreeBytes())
		r.close(t)
	}
}

// TestKindsStopAndGoOn: for any order of enables, stops and new channels for a saved state, work is done if
// the channel may run, and none otherwise. A new channel has the classes and values of the one before.
func TestKindsStopAndGoOn(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 0)
		defer r.close(t)
		rapid.Check(t, func(t *rapid.T) {
			c := r.join(t, k, 3)
			c.ch.Enable()
			n, done, on := uint32(0), uint32(0), false // releases, those that were done; whether the channel may run
			first := c.copies(4, 1).Words
			c.submit(new(push.Buffer).Bind(k.copy).Raw(first...))
			for range rapid.IntRange(4, 16).Draw(t, "steps") {
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0:
					c.ch.Enable()
					require.True(t, c.share.Commit())
					on = true
				case 1:
					c.ch.Disable()
					on = on && r.gpu.Preempt(c.ch) && false
				case 2:
					c.stop()
					s := c.ch.State()
					require.Equal(t, s.GPGet, c.ch.Progress().GPGet)
					r.gpu.Poll()
					put := c.put
					c.free()
					c.open(s, false)
					c.put, on = put, false
					c.ch.Doorbell(put)
				default:
					n++
					c.gpu.WriteVRAM(c.run.Addr+2*page, binary.LittleEndian.AppendUint32(nil, n))
					c.submit(k.release(new(push.Buffer).Raw(first[len(first)-2:]...), k.data+2*page, n)) // with the addresses of the first
				}
				if on {
					c.eventually(func() bool { return c.word(2) == n && c.ch.Quiet() })
					require.Equal(t, n, c.word(1))
					require.Equal(t, c.put, c.ch.Progress().GPGet)
					done = n
				} else {
					require.Equal(t, []any{false, done}, []any{c.ch.Running(), c.word(2)})
				}
			}
			_, faults := c.events()
			require.Empty(t, faults)
			c.leave()
		})
	})
}

// TestKindsFault: a fault stops its channel, is told once with address and engine, and others go on. A
// page of drivers is reached by a privileged channel of a card that knows such.
func TestKindsFault(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 0)
		c := r.join(t, k, 1)
		var others []*client
		for _, k := range kinds {
			others = append(others, r.join(t, k, 2+len(others)))
		}
		c.start()
		c.submit(k.release(c.copies(4*page, 1), k.data+2*page, 1)) // to a page beyond its data
		c.eventually(func() bool { _, f := c.events(); return len(f) > 0 })
		require.Equal(t, card.Fault{Engine: card.Copy0, VA: k.data + 4*page, Write: true, Reason: shadowpt.PageNotPresent}, func() card.Fault { f := c.faults[0]; f.Code = 0; return f }())
		c.stop()
		r.gpu.Poll()
		require.Len(t, c.faults, 1)
		require.Zero(t, c.word(2))
		for _, o := range others {
			o.start()
			require.True(t, o.work(rand.New(rand.NewPCG(1, 1))))
			o.leave()
		}
		c.free()
		c.remap(k.data, 2, 0)
		c.remap(k.data, 2, shadowpt.Mapped|shadowpt.Supervisor)
		for _, privileged := range []bool{true, false} {
			c.open(card.State{}, privileged)
			c.start()
			c.submit(k.release(k.release(new(push.Buffer), k.data, 5), k.data+2*page, 6))
			reaches := privileged && k.class == 0xc86f
			c.eventually(func() bool { _, f := c.events(); return c.word(2) == 6 || len(f) > 1 })
			require.Equal(t, reaches, c.word(2) == 6)
			c.stop()
			c.free()
			r.gpu.WriteVRAM(c.run.Addr+4*page, make([]byte, 4))
			c.faults = c.faults[:1]
		}
		r.close(t)
	})
}

// TestKindsInvalidate: an invalidate makes a changed entry valid, and waits for steps of its own share only.
func TestKindsInvalidate(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 20*time.Millisecond)
		defer r.close(t)
		c, neighbour := r.join(t, k, 1), r.join(t, kinds["906f"], 2)
		c.start()
		c.submit(k.release(new(push.Buffer), k.data, 1))
		c.eventually(func() bool { return c.word(0) == 1 })
		c.remap(k.data, 2, 0)
		c.remap(k.data, 6, shadowpt.Mapped)
		require.True(t, c.share.Invalidate(c.space))
		c.submit(k.release(new(push.Buffer), k.data, 2))
		c.eventually(func() bool { return c.word(4) == 2 })
		require.EqualValues(t, 1, c.word(0))

		hold := func(id uint32, begin func()) (let func()) { // in a step
			held, free := make(chan bool), make(chan bool)
			var once sync.Once
			f := func(channel uint32) {
				if channel == id {
					once.Do(func() { close(held); <-free })
				}
			}
			r.watch.Store(&f)
			begin()
			<-held
			return sync.OnceFunc(func() {
				r.watch.Store(nil)
				close(free)
			})
		}
		let := hold(neighbour.ch.ID(), neighbour.start)
		defer let()
		require.True(t, c.share.Invalidate(c.space))
		let()
		let = hold(c.ch.ID(), func() { c.submit(k.release(new(push.Buffer), k.data, 3)) })
		ended := c.share.Invalidate(c.space)
		left, inTime := c.ch.Stop(true)
		let()
		require.False(t, ended || left || inTime)
		c.eventually(func() bool { return !c.ch.Running() })
		require.True(t, c.share.Invalidate(c.space))
	})
}

// TestEndlessEvents: a channel whose events never end keeps nobody who polls the card.
func TestEndlessEvents(t *testing.T) {
	r := newRig(t, soft.Config{}, 0)
	defer r.close(t)
	c := r.join(t, kinds["c86f"], 1)
	c.again.Store(true)
	c.ch.(card.ChannelEvents).Completed(1)
	polled := make(chan bool)
	go func() {
		defer close(polled)
		r.gpu.Poll()
	}()
	select {
	case <-polled:
	case <-time.After(patience):
		t.Error("it polls for ever")
	}
	c.again.Store(false)
	<-polled
}

// TestReset: whoever has a described channel learns that a reset of the card, or its end, ended it.
func TestReset(t *testing.T) {
	for name, end := range map[string]func(*rig) error{"reset": func(r *rig) error { return r.card.Reset() }, "close": func(r *rig) error { return r.card.Close() }} {
		r := newRig(t, soft.Config{}, 0)
		c := r.join(t, kinds["c86f"], 1)
		c.start()
		c.submit(c.copies(8, 1<<32-1))
		c.eventually(c.ch.Running)
		require.NoError(t, end(r))
		c.eventually(func() bool { _, f := c.events(); return len(f) == 1 && f[0].Kind == card.Broken })
		require.True(t, c.ch.Quiet())
		left, inTime := c.ch.Stop(true)
		require.True(t, left && inTime)
		c.ch.Unbind()
		r.gpu.Close()
		if name == "reset" {
			require.NoError(t, r.card.Close())
		}
	}
}

// TestOtherClass: a card that takes no channels by description has none of another class, and says so.
func TestOtherClass(t *testing.T) {
	r := newRig(t, soft.Config{}, 0)
	defer r.close(t)
	for class, want := range map[uint16]string{0xc76f: "class c76f", 0xc86f: "20 KiB for page tables: one address space needs 24 KiB"} {
		_, err := r.gpu.NewShare(card.ShareConfig{Class: class, Guaranteed: 1, Tables: 20 << 10})
		require.ErrorContains(t, err, want)
	}
	plain, err := driver.New(struct{ card.Registers }{r.card}, driver.Options{})
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.NewShare(card.ShareConfig{Class: 0xc86f, Guaranteed: 1, Tables: tables})
	require.ErrorContains(t, err, "class c86f")
}

// TestNumbersAreOneTable: what shares of one kind were promised, those of the other cannot take.
func TestNumbersAreOneTable(t *testing.T) {
	r := newRig(t, soft.Config{}, 0)
	defer r.close(t)
	fill := func(c *client) (n int) {
		for ; ; n++ {
			if _, err := c.share.NewChannel(card.ChannelConfig{Space: c.space}, c); err != nil {
				require.ErrorIs(t, err, card.ErrChannels)
				return n
			}
		}
	}
	a, b := r.join(t, kinds["c86f"], 1), r.join(t, kinds["906f"], 2)
	last, err := r.gpu.NewShare(card.ShareConfig{Number: 3, Class: 0xc86f, Guaranteed: 5, Tables: tables})
	require.NoError(t, err)
	require.Equal(t, gf100.Channels-2-5, fill(b))
	require.Zero(t, fill(a))
	a.share = last
	require.Equal(t, 5, fill(a))
}
