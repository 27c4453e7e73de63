package nvrm_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/fakerm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

const page = 4096

// open opens a client with a space and n bytes of memory.
func open(t *testing.T, n int) (*fakerm.Driver, *nvrm.Client, *nvrm.Space, *nvrm.Memory, []byte) {
	d := new(fakerm.Driver)
	c, err := nvrm.Open(d, 0, false)
	require.NoError(t, err)
	s, err := c.NewSpace()
	require.NoError(t, err)
	view, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
	require.NoError(t, err)
	m, err := c.Register(view)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(c.Close(), unix.Munmap(view))) })
	return d, c, s, m, view
}

// TestEachCallFails: an error of any call is returned, and names what was tried; the client's end frees all.
func TestEachCallFails(t *testing.T) {
	for n, failed := 1, true; failed; n++ {
		d := &fakerm.Driver{Fail: map[int]uint32{n: nvrm.StatusForbidden}}
		err := func() error {
			c, err := nvrm.Open(d, 0, false)
			if err != nil {
				return err
			}
			defer func() { require.NoError(t, c.Close()) }()
			s, err := c.NewSpace()
			if err != nil {
				return err
			}
			view, err := unix.Mmap(-1, 0, 16*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
			require.NoError(t, err)
			defer unix.Munmap(view)
			m, err := c.Register(view)
			if err != nil {
				return err
			}
			before := d.Stats().Objects
			ch, err := c.NewChannel(nvrm.ChannelConfig{Space: s, Engine: nvrm.Graphics, Entries: 16, Own: m, USERD: page, Classes: []uint32{0xcb97, 0xc8b5}, Slice: 1})
			if err != nil {
				require.Equal(t, before, d.Stats().Objects, "half a channel is left")
				return err
			}
			e, err := c.Listen()
			if err != nil {
				return err
			}
			defer e.Close()
			return c.FreeChannel(ch)
		}()
		if failed = err != nil; failed {
			require.Regexp(t, "^(make|have|open|register|reserve|list|number|ask|free|schedule|set|listen|arm) ", err.Error())
		} else {
			require.Greater(t, n, 20)
		}
		require.Zero(t, d.Stats().Objects)
	}
}

// TestCrowd: a client that finds the driver's stock of memory for page tables empty tries again.
func TestCrowd(t *testing.T) {
	d, c, s, m, _ := open(t, 2*page)
	tried := 0
	d.Refuse = func() uint32 {
		if tried++; tried < 3 {
			return nvrm.StatusNoMemory
		}
		return 0
	}
	require.NoError(t, c.Map(s, m, nvrm.Map{VA: 1 << 20, Size: page, Page: page}))
	cfg := nvrm.ChannelConfig{Space: s, Engine: nvrm.Graphics, Entries: 16, Own: m, USERD: page, Classes: []uint32{0xcb97, 0xc8b5}}
	_, err := c.NewChannel(cfg)
	require.NoError(t, err)
	whole := d.Stats().Calls
	d.Fail = map[int]uint32{whole + 4: nvrm.StatusNoMemory} // group, subcontext, channel, object
	_, err = c.NewChannel(cfg)
	require.NoError(t, err)
}

// TestHole: the driver keeps some addresses, and a map there is refused without a call.
func TestHole(t *testing.T) {
	d, c, s, m, _ := open(t, 2*page)
	calls := d.Stats().Calls
	for _, va := range []uint64{0, nvrm.LowFirst - page, nvrm.LowEnd - page, nvrm.HighFirst - page, nvrm.HighEnd, 1<<57 - page, 1<<64 - page} {
		require.True(t, nvrm.Is(c.Map(s, m, nvrm.Map{VA: va, Size: 2 * page, Page: page}), 0x1e), "%#x", va)
		require.Error(t, c.Unmap(s, m, va, 2*page))
	}
	require.Equal(t, calls, d.Stats().Calls)
}

// TestDepth: parts of parts of maps are counted.
func TestDepth(t *testing.T) {
	const first = 1 << 20
	d, c, s, m, _ := open(t, 16*page)
	require.NoError(t, c.Map(s, m, nvrm.Map{VA: first, Size: 16 * page, Page: page}))
	for i := range uint64(8) {
		require.NoError(t, c.Unmap(s, m, first+i*page, page))
	}
	require.Equal(t, 8, d.Stats().Depth)
	require.True(t, nvrm.Is(c.Free(m), nvrm.StatusInUse))
	require.NoError(t, c.Unmap(s, m, first+8*page, 8*page))
	require.True(t, nvrm.Is(c.Free(m), nvrm.StatusInUse), "the card may have translations")
	require.NoError(t, c.Invalidate(s))
	require.NoError(t, c.Free(m))
}

// TestNotices: a channel reports the end of its work by engine, and its own end.
func TestNotices(t *testing.T) {
	d, c, s, m, view := open(t, 2*page)
	e, err := c.Listen()
	require.NoError(t, err)
	defer e.Close()
	for engine, want := range map[int]nvrm.Notice{nvrm.Graphics: {Engine: nvrm.Graphics}, 4: {Engine: 4}} {
		require.NoError(t, e.Engine(engine))
		ch, err := c.NewChannel(nvrm.ChannelConfig{Space: s, Engine: engine, Entries: 16, Own: m, USERD: page})
		require.NoError(t, err)
		require.NoError(t, c.Enable(ch, false))
		require.Zero(t, d.Stats().Running)
		require.NoError(t, c.Enable(ch, true))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.OS().Fd()), Events: unix.POLLIN}}, int(time.Minute.Milliseconds()))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, c.Reset(ch))
		for _, want := range []nvrm.Notice{want, {Error: true, Engine: nvrm.Graphics}} {
			got, ok, err := e.Next()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, got)
		}
		_, ok, err := e.Next()
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, byte(43), view[nvrm.NotifierXid])
		f, err := c.Fault(ch)
		require.NoError(t, err)
		require.Equal(t, nvrm.Fault{VA: 0x7770000000, Type: 1, Text: "FAULT_PDE"}, f)
		require.NoError(t, c.FreeChannel(ch))
	}
}

func TestHostWithoutDriver(t *testing.T) {
	if _, err := os.Stat(nvrm.VersionFile); err == nil {
		t.Skip("this machine has the driver")
	}
	_, err := nvrm.Open(nvrm.Host{}, 0, false)
	require.ErrorContains(t, err, "remedy: modprobe nvidia")
}
