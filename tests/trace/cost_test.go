package trace

import (
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/metrics"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// scrape reads a server's numbers as Prometheus does, ten times a second, until the function that it returns.
func scrape(t *testing.T, s *serve.Server) (end func() error) {
	h := metrics.Handler(s.Report, "test", slog.New(slog.DiscardHandler))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			select {
			case <-stop:
				return
			case <-every.C:
			}
		}
	}()
	return func() error { close(stop); <-done; return nil }
}

// TestTrapCosts: what reading the numbers ten times a second, and recording everything, add to a trap: the medians of rounds in
// which each has its turn. docs/bench.md has what it prints.
func TestTrapCosts(t *testing.T) {
	scale.ReleaseOnly(t)
	const rounds, each = 31, 300 * time.Millisecond
	s, socket := start(t, "")
	c, err := client.Dial(socket, nil)
	require.NoError(t, err)
	defer c.Close()
	d, p := s.Endpoints()[0].Device, make([]byte, 4)
	accesses := map[string]func(){
		"by a client":   func() { _, _ = c.Read32(vfiouser.RegionBAR0, 0) },
		"in the server": func() { _ = d.ReadRegion(vfiouser.RegionBAR0, 0, p) },
	}
	turns := map[string]func() (end func() error){
		"alone":    func() func() error { return func() error { return nil } },
		"scraped":  func() func() error { return scrape(t, s) },
		"recorded": func() func() error { return begin(t, s, api.TraceRequest{}, io.Discard) },
	}
	for where, access := range accesses {
		times, ratios := make(map[string][]float64), make(map[string][]float64)
		for round := range rounds {
			for name, turn := range turns {
				end := turn()
				n, began := 0, time.Now()
				for ; time.Since(began) < each; n += 100 {
					for range 100 {
						access()
					}
				}
				times[name] = append(times[name], float64(time.Since(began))/float64(n))
				_ = end() // a recording ends with its context's error
			}
			for name := range turns {
				ratios[name] = append(ratios[name], times[name][round]/times["alone"][round])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(turns)) {
			t.Logf("a trapped read %s, %s: %.0f ns, ratio %.3f (quartiles %.3f and %.3f)", where, name,
				quartile(times[name], 2), quartile(ratios[name], 2), quartile(ratios[name], 1), quartile(ratios[name], 3))
		}
		if where == "in the server" { // sockets depend on what else the machine does
			require.Less(t, quartile(ratios["scraped"], 2), 1.1)
		}
	}
}

func quartile(v []float64, n int) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)*n/4]
}
