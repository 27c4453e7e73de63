package traps

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOverSocket: every kind of access is measured, on all transports of this build, and all
// accesses arrive, which Measure itself checks.
func TestOverSocket(t *testing.T) {
	o := Options{Transports: []string{serve.TransportNative}, Rounds: 3, Count: 100}
	if libvfiouser.Built {
		o.Transports = append(o.Transports, serve.TransportLibrary)
	}
	var progress strings.Builder
	o.Progress = &progress
	r, err := Measure(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Figures, len(socketKinds))
	for _, f := range r.Figures {
		require.Equal(t, Socket, f.Way)
		require.Len(t, f.NS, len(o.Transports))
		for _, s := range f.NS {
			require.Positive(t, s.Least)
			require.LessOrEqual(t, s.Least, s.Median)
			require.LessOrEqual(t, s.Median, s.Most)
		}
		require.Equal(t, libvfiouser.Built, f.Ratio != nil)
		require.Contains(t, progress.String(), f.Access)
	}
}

// TestWhatDoesNotArrive: accesses that the device has not seen are no figure.
func TestWhatDoesNotArrive(t *testing.T) {
	s, err := takeSeat(t.Context(), serve.TransportNative, t.TempDir()+"/s")
	require.NoError(t, err)
	defer s.close()
	fd, err := dial(s.path)
	require.NoError(t, err)
	defer unix.Close(fd)
	m := newMessages(8, true, 0)
	_, reads, writes, err := m.exchange(fd, 20)
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 24}, [2]int{reads, writes}, "whole batches")
	require.NoError(t, s.device.arrived(reads, writes))
	_, reads, writes, err = m.exchange(fd, 1)
	require.NoError(t, err)
	require.ErrorContains(t, s.device.arrived(reads, writes+1), "0 reads and 8 writes arrived at the device; 0 and 9 were made")
}

// TestRepliesThatLack: a reply that is shorter than is due, as a refusal is, or that does not come
// is an error.
func TestRepliesThatLack(t *testing.T) {
	near, far := pair(t)
	m := newMessages(1, false, 0)
	_, err := unix.Write(far, make([]byte, 16))
	require.NoError(t, err)
	require.NoError(t, unix.SetsockoptTimeval(near, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000}))
	_, _, _, err = m.exchange(near, 1)
	require.ErrorContains(t, err, "16 of 36 bytes of replies, and no more within")
	_, err = unix.Write(far, make([]byte, 20))
	require.NoError(t, err)
	require.NoError(t, unix.Shutdown(far, unix.SHUT_WR))
	_, _, _, err = m.exchange(near, 2)
	require.ErrorContains(t, err, "20 of 36 bytes of replies: unexpected EOF")
}

func pair(t *testing.T) (near, far int) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		unix.Close(p[0])
		unix.Close(p[1])
	})
	return p[0], p[1]
}

// TestEnds: a context that ends ends the measuring.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Measure(ctx, Options{Transports: []string{serve.TransportNative}, Rounds: 1, Count: 1})
	require.ErrorIs(t, err, context.Canceled)
}

// TestTurnsBeginWithEach: none is always measured behind the other, and ratios are of a round.
func TestTurnsBeginWithEach(t *testing.T) {
	var order []int
	o := Options{Transports: []string{"a", "b"}, Rounds: 3}
	f, err := o.figure(t.Context(), Socket, "read", func(i int) (float64, error) {
		order = append(order, i)
		return float64(len(order) + 10*i), nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 1, 0, 0, 1}, order)
	require.Equal(t, Spread{13.0 / 4, 16.0 / 5, 12.0}, *f.Ratio)
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{3, 1, 9}, spreadOf([]float64{9, 1, 2, 4}))
}

func TestText(t *testing.T) {
	r := Report{
		Rounds: 3, Count: 10, Machine: &Machine{"11.1.3", "tcg", "6.12.1"},
		Figures: []Figure{
			{Socket, "read", map[string]Spread{"a": {10, 9, 11}, "b": {20, 18, 22}}, &Spread{2, 1.5, 2.5}},
			{Guest, "write", map[string]Spread{"a": {30, 29, 31}, "b": {33, 30, 36}}, &Spread{1.1, 1, 1.25}},
		},
	}
	require.Equal(t, `median (least-most) of 3 rounds of 10 accesses, an access

over the bare socket
access  a, ns      b, ns       b / a
read    10 (9-11)  20 (18-22)  2.00 (1.50-2.50)

by a guest, through QEMU 11.1.3 with tcg, Linux 6.12.1
access  a, ns       b, ns       b / a
write   30 (29-31)  33 (30-36)  1.10 (1.00-1.25)
`, r.Text([]string{"a", "b"}))
	r.Figures, r.NoGuest = r.Figures[:1], "no QEMU"
	require.Contains(t, r.Text([]string{"a"}), "\nby a guest, through QEMU: not measured: no QEMU\n")
	require.NotContains(t, r.Text([]string{"a"}), "b / a\n\nby")
}
