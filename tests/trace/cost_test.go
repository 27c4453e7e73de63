package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/metrics"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// onlookers ask a server, until the context ends, for what a guest should not notice.
var onlookers = []struct {
	name string
	look func(ctx context.Context, o *office) error
}{
	{"alone", func(context.Context, *office) error { return nil }},
	{"alone again", func(context.Context, *office) error { return nil }},
	{"/metrics every 100 ms", every(100*time.Millisecond, func(ctx context.Context, o *office) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://umbra/metrics", nil)
		if err != nil {
			return err
		}
		return o.send(r)
	})},
	{"all recorded", func(ctx context.Context, o *office) error { return o.Trace(ctx, api.TraceRequest{}, io.Discard) }},
	{"recorded on a full disk", every(10*time.Millisecond, func(ctx context.Context, o *office) error {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer full.Close()
		if err := o.Trace(ctx, api.TraceRequest{}, full); err == nil {
			return errors.New("a full disk took a recording")
		}
		return nil
	})},
	{"1000 idle connections", func(ctx context.Context, o *office) error {
		for range 1000 {
			conn, err := net.Dial("unix", o.path)
			if err != nil {
				return err
			}
			defer conn.Close()
		}
		<-ctx.Done()
		return nil
	}},
	{"bodies of 100 MB", every(10*time.Millisecond, func(ctx context.Context, o *office) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://umbra/v1/gpus", io.LimitReader(endless{}, 100_000_000))
		if err != nil {
			return err
		}
		return o.send(r)
	})},
}

// endless is what never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// office is a server with its control socket.
type office struct {
	*serve.Server
	path string
	http http.Client
}

// send sends a request. What the server answers is its business, and that it closes the connection of what is too long.
func (o *office) send(r *http.Request) error {
	resp, err := o.http.Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func every(pause time.Duration, do func(context.Context, *office) error) func(context.Context, *office) error {
	return func(ctx context.Context, o *office) error {
		for ticks := time.NewTicker(pause); ; {
			if err := do(ctx, o); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticks.C:
			}
		}
	}
}

func openOffice(b *testing.B) (o *office, socket string) {
	s, socket := start(b, "")
	o = &office{Server: s, path: filepath.Join(b.TempDir(), "control")}
	l, err := net.Listen("unix", o.path)
	require.NoError(b, err)
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error)
	go func() { served <- api.Serve(ctx, l, api.Handler(s, metrics.Handler(s.Report, "test", log)), log) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-served)
	})
	var d net.Dialer
	o.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", o.path)
	}}
	b.Cleanup(o.http.CloseIdleConnections)
	return o, socket
}

// BenchmarkLooking measures what a guest notices of those who look: the time of a trapped read each 200 us by a client, and of
// reads without a pause in the server. Each has its turn in every round. Quantiles are of the reads of all rounds, and stand beside
// those of a guest alone. docs/bench.md has what it prints.
func BenchmarkLooking(b *testing.B) {
	const turn, pause = 250 * time.Millisecond, 200 * time.Microsecond
	o, socket := openOffice(b)
	c, err := client.Dial(socket, nil)
	require.NoError(b, err)
	defer c.Close()
	device, word := o.Endpoints()[0].Device, make([]byte, 4)
	reads, inside := make([][]time.Duration, len(onlookers)), make([][]float64, len(onlookers))
	for b.Loop() {
		for i, on := range onlookers {
			ctx, cancel := context.WithCancel(b.Context())
			looked := make(chan error, 1)
			go func() { looked <- on.look(ctx, o) }()
			time.Sleep(turn / 10)
			for began := time.Now(); time.Since(began) < turn; time.Sleep(pause) {
				at := time.Now()
				_, err := c.Read32(vfiouser.RegionBAR0, 0)
				reads[i] = append(reads[i], time.Since(at))
				require.NoError(b, err)
			}
			const n = 50_000
			began := time.Now()
			for range n {
				require.NoError(b, device.ReadRegion(vfiouser.RegionBAR0, 0, word))
			}
			inside[i] = append(inside[i], float64(time.Since(began))/n)
			cancel()
			if err := <-looked; !errors.Is(err, context.Canceled) { // so ends a recording
				require.NoError(b, err)
			}
		}
	}
	var table strings.Builder
	alone, aloneInside := slices.Sorted(slices.Values(reads[0])), quartile(inside[0], 2)
	for i, on := range onlookers {
		slices.Sort(reads[i])
		fmt.Fprintf(&table, "%-24s", on.name)
		for _, percent := range []int{50, 99} {
			mine, theirs := reads[i][len(reads[i])*percent/100], alone[len(alone)*percent/100]
			fmt.Fprintf(&table, "  p%d %7v (%.3f)", percent, mine.Round(100*time.Nanosecond), float64(mine)/float64(theirs))
		}
		fmt.Fprintf(&table, "  in the server %.0f ns (%.3f)\n", quartile(inside[i], 2), quartile(inside[i], 2)/aloneInside)
	}
	b.Logf("%d reads in each\n%s", len(reads[0]), table.String())
}

func quartile(v []float64, n int) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)*n/4]
}
