package vfiouser_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// answering has c answer the server's requests while fn runs on another goroutine.
func answering(t *testing.T, c *client.Client, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	for i := uint32(0); ; i++ {
		select {
		case <-done:
			return
		default:
			require.NoError(t, c.Write32(0, 0, i))
			v, err := c.Read32(0, 0)
			require.NoError(t, err)
			require.Equal(t, i, v)
		}
	}
}

// TestMessageDMA: memory without a descriptor is read and written by message, while the client's own
// commands continue, and no message is longer than the client takes.
func TestMessageDMA(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: patience})
	c := r.dial(&client.Options{Capabilities: `{"capabilities":{"max_data_xfer_size":1024}}`})
	ram := alloc(t, 1<<20)
	require.NoError(t, c.MapNoFD(0x100000, ram, 0, 1<<20, client.ReadWrite))
	for i := range ram.Data[:4096] {
		ram.Data[i] = byte(i ^ i>>9)
	}
	h, ctx := r.dev.Host(), context.Background()
	require.ErrorIs(t, h.DMARead(ctx, 0x1ffffe, make([]byte, 4)), vfiouser.ErrNotMapped)
	c.OnDMA(func(cmd wire.Command, addr uint64, n int) error {
		if addr == 0x101800 {
			return syscall.EFAULT
		}
		return nil
	})
	answering(t, c, func() {
		assert.ErrorIs(t, h.DMAWrite(ctx, 0x101800, make([]byte, 4)), syscall.EFAULT)
		got := make([]byte, 2500)
		assert.NoError(t, h.DMARead(ctx, 0x100008, got))
		assert.Equal(t, ram.Data[8:2508], got)
	})
	require.EqualValues(t, 3, r.srv.Stats().Commands[wire.DMARead].Messages)
	var wg sync.WaitGroup
	for k := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(100) {
				addr := 0x110000 + k*0x20000 + i*512
				p, q := bytes.Repeat([]byte{byte(k + 4*i)}, 512), make([]byte, 512)
				assert.NoError(t, h.DMAWrite(ctx, addr, p))
				assert.NoError(t, h.DMARead(ctx, addr, q))
				assert.Equal(t, p, q, "%#x", addr)
			}
		})
	}
	answering(t, c, wg.Wait)
	c.Close()

	c = r.dial(&client.Options{Capabilities: `{"capabilities":{"max_data_xfer_size":0}}`})
	require.NoError(t, c.MapNoFD(0, ram, 0, 1<<16, client.ReadWrite))
	require.ErrorIs(t, r.dev.Host().DMARead(ctx, 0, make([]byte, 4)), vfiouser.ErrNoMessageDMA)
}

// TestNoMessageDMAInHandler: a handler that asks for DMA by message is refused immediately.
// The client waits for that handler, holding a lock that it needs to answer (QEMU's big
// lock), so the request could only time out.
func TestNoMessageDMAInHandler(t *testing.T) {
	d := newDevice(t)
	c := newRig(t, d, vfiouser.Options{DMATimeout: time.Second}).dial(nil)
	require.NoError(t, c.MapNoFD(0, alloc(t, 4096), 0, 4096, client.ReadWrite))
	h, errs := d.Host(), make(chan error, 1)
	d.locked(func() {
		d.onRead = func(int, uint64, []byte) error {
			errs <- h.DMARead(context.Background(), 0, make([]byte, 4))
			return nil
		}
	})
	_, err := c.Read32(0, 0)
	require.NoError(t, err)
	require.ErrorIs(t, <-errs, vfiouser.ErrInHandler)
}

// TestLateDMAAnswer: an answer that comes after its time leaves the caller's buffer alone, and the stream
// continues. The same answer again is refused.
func TestLateDMAAnswer(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: 50 * time.Millisecond})
	c := r.dial(nil)
	require.NoError(t, c.MapNoFD(0, alloc(t, 4096), 0, 4096, client.ReadWrite))
	into := make([]byte, 4)
	require.ErrorIs(t, r.dev.Host().DMARead(t.Context(), 0, into), vfiouser.ErrDMATimeout)
	m, err := c.RecvAny()
	require.NoError(t, err)
	late := message(wire.DMARead, wire.TypeReply, append(wire.Append(nil, wire.DMAAccess{Addr: 0, Count: 4}), 1, 2, 3, 4))
	le.PutUint16(late, m.ID)
	require.NoError(t, c.Send(late))
	_, err = c.Info()
	require.NoError(t, err)
	require.Equal(t, make([]byte, 4), into, "the buffer was the caller's again")
	require.NoError(t, c.Send(late))
	m, err = c.RecvAny()
	require.NoError(t, err)
	require.Equal(t, syscall.EINVAL, syscall.Errno(m.Errno))
}

// TestDMAAnswers: an answer is held against the request, in the forms that QEMU's versions send.
func TestDMAAnswers(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: patience})
	c := r.dial(nil)
	require.NoError(t, c.MapNoFD(0x1000, alloc(t, 4096), 0, 4096, client.ReadWrite))
	h := r.dev.Host()
	u32count := func(addr uint64, n uint32) []byte { return le.AppendUint32(le.AppendUint64(nil, addr), n) }
	good := wire.Append(nil, wire.DMAAccess{Addr: 0x1000, Count: 4})
	tests := []struct {
		name    string
		write   bool
		payload []byte
		flags   uint32
		errno   uint32
		want    error
	}{
		{"read", false, append(good[:16:16], "data"...), 0, 0, nil},
		{"read, QEMU 10", false, append(u32count(0x1000, 4), "data"...), 0, 0, nil},
		{"read, one byte short", false, append(good[:16:16], "dat"...), 0, 0, vfiouser.ErrDMAReply},
		{"read, bare header", false, nil, 0, 0, vfiouser.ErrDMAReply},
		{"read, other address", false, append(wire.Append(nil, wire.DMAAccess{Addr: 0x2000, Count: 4}), "data"...), 0, 0, vfiouser.ErrDMAReply},
		{"read, too long", false, make([]byte, 100000), 0, 0, vfiouser.ErrDMAReply},
		{"read, error", false, nil, wire.Error, uint32(syscall.EPERM), syscall.EPERM},
		{"read, error 0", false, nil, wire.Error, 0, syscall.EINVAL},
		{"read, error 5000", false, nil, wire.Error, 5000, syscall.EINVAL},
		{"write", true, good, 0, 0, nil},
		{"write, QEMU 10", true, nil, 0, 0, nil},
		{"write, other count", true, u32count(0x1000, 3), 0, 0, vfiouser.ErrDMAReply},
	}
	// asked has the device ask, and returns what it is asked for, and the outcome.
	asked := func(p []byte, write bool) (client.Message, <-chan error) {
		done, do := make(chan error, 1), h.DMARead
		if write {
			do = h.DMAWrite
		}
		go func() { done <- do(context.Background(), 0x1000, p) }()
		m, err := c.RecvAny()
		require.NoError(t, err)
		return m, done
	}
	answer := func(cmd wire.Command, id uint16, flags, errno uint32, payload []byte) {
		require.NoError(t, c.Send(wire.Message(wire.Header{ID: id, Command: cmd, Flags: wire.TypeReply | flags, Errno: errno}, payload)))
	}
	for _, tt := range tests {
		p := []byte("xxxx")
		m, done := asked(p, tt.write)
		require.Equal(t, good, m.Payload[:16])
		require.Len(t, m.Payload, map[bool]int{false: 16, true: 20}[tt.write])
		answer(m.Command, m.ID, tt.flags, tt.errno, tt.payload)
		require.ErrorIs(t, <-done, tt.want, tt.name)
		if tt.want == nil && !tt.write {
			require.Equal(t, "data", string(p), tt.name)
		}
	}
	p := make([]byte, 4)
	m, done := asked(p, false)
	answer(wire.DMAWrite, m.ID, 0, 0, good) // an answer to another command
	refused, err := c.RecvAny()
	require.NoError(t, err)
	require.Equal(t, syscall.EINVAL, syscall.Errno(refused.Errno))
	answer(wire.DMARead, m.ID, 0, 0, append(good[:16:16], "data"...))
	require.NoError(t, <-done)
	require.Equal(t, "data", string(p))

	_, done = asked(p, false)
	c.Close()
	require.ErrorIs(t, <-done, vfiouser.ErrDetached)
	require.ErrorIs(t, h.DMARead(context.Background(), 0x1000, p), vfiouser.ErrDetached)
	eventually(t, "the memory is taken back", func() bool { return len(h.Memory().Ranges()) == 0 })
	h.Trigger(0, 0)
}

// TestDMAToUnresponsiveClient: a client that neither reads nor answers costs each caller its
// timeout. The bound leaves time for a busy machine.
func TestDMAToUnresponsiveClient(t *testing.T) {
	const timeout, bound = 400 * time.Millisecond, 10 * 400 * time.Millisecond
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: timeout})
	c := r.dial(nil)
	require.NoError(t, c.MapNoFD(0, alloc(t, 1<<20), 0, 1<<20, client.ReadWrite))
	h := r.dev.Host()
	var wg sync.WaitGroup
	begin := time.Now()
	for range 8 {
		wg.Go(func() {
			if err := h.DMAWrite(context.Background(), 0, make([]byte, 1<<20)); err == nil {
				t.Error("no caller took the data")
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	require.GreaterOrEqual(t, took, timeout)
	require.Less(t, took, bound)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, h.DMARead(ctx, 0, make([]byte, 4)))
}

func alloc(t testing.TB, n int) *client.Memory {
	t.Helper()
	m, err := client.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// TestDMAMapErrors: the conformance suite and TestMapAgainstTwin have the other errors.
func TestDMAMapErrors(t *testing.T) {
	r, c := served(t)
	ram := alloc(t, 0x1000)
	for q, fds := range map[wire.DMAMapRequest][]int{
		{Argsz: 32, Flags: 3 | wire.DMAUseMmap, Size: 0x1000}:                           nil,
		{Argsz: 32, Flags: 3 | wire.DMAUseMmap | wire.DMAUseFileIO, Size: 0x1000}:       {ram.FD},
		{Argsz: 32, Flags: 3, Size: 0x1000, Offset: ^uint64(0xfff)}:                     {ram.FD},
		{Argsz: 32, Flags: 3 | wire.DMAUseFileIO, Size: 0x1000, Offset: ^uint64(0xfff)}: {ram.FD},
	} {
		_, err := c.Call(wire.DMAMap, wire.Append(nil, q), fds...)
		require.Equal(t, syscall.EINVAL, err, "%+v", q)
	}
	require.NoError(t, c.MapNoFD(^uint64(0xfff), ram, 0, 0x1000, client.ReadWrite), "the last page")
	m := r.dev.Host().Memory()
	require.Len(t, m.Ranges(), 1)
	require.ErrorIs(t, m.Copy(^uint64(0), make([]byte, 32), false), vfiouser.ErrNotMapped, "a copy that wraps")
}

// lines is a log that a test reads while the server writes it.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(string(l.text), text)
}

// TestMemoryThatIsNotShared: a client that keeps its memory private is logged once, with
// the remedy; one that keeps only firmware and device memory private is not.
func TestMemoryThatIsNotShared(t *testing.T) {
	ram := alloc(t, 64<<20)
	for _, shared := range []bool{false, true} {
		log := new(lines)
		r := newRig(t, newDevice(t), vfiouser.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		c := r.dial(nil)
		main := c.MapNoFD
		if shared {
			main = c.Map
		}
		require.NoError(t, main(0, ram, 0, 0xa0000, client.ReadWrite))
		require.NoError(t, c.MapNoFD(0xc0000, ram, 0, 0x20000, client.Readable)) // ROMs
		require.NoError(t, c.MapNoFD(0xffe0_0000, ram, 0, 2<<20, client.Readable))
		require.Zero(t, log.count("share=on"))
		require.NoError(t, main(0x100000, ram, 0x100000, 4<<20, client.ReadWrite))
		require.NoError(t, main(0x1_0000_0000, ram, 0x800000, 4<<20, client.ReadWrite))
		require.NoError(t, c.MapNoFD(0xfd00_0000, ram, 0, 16<<20, client.ReadWrite)) // a display's
		want := map[bool]int{false: 1}[shared]
		require.Equal(t, want, log.count("memory-backend-memfd,id=mem,size=SIZE,share=on"), "shared: %t", shared)
	}
}
