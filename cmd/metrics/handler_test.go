package metrics_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/metrics"
)

// TestEagerReaders: however many ask however often, the counters are read twice a second at most, also while
// that fails. The failure is said to whoever asks, and once to the log.
func TestEagerReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, broken := 0, false
		var log bytes.Buffer
		h := metrics.Handler(func() (api.Report, error) {
			reads++
			if broken {
				return api.Report{}, errors.New("no numbers today")
			}
			return full()
		}, "1.2", slog.New(slog.NewTextHandler(&log, nil)))
		ask := func() *httptest.ResponseRecorder {
			r := httptest.NewRecorder()
			h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return r
		}
		first := ask()
		require.Equal(t, http.StatusOK, first.Code)
		require.Contains(t, first.Header().Get("Content-Type"), "text/plain; version=0.0.4")
		require.Contains(t, first.Body.String(), `umbra_build_info{version="1.2"} 1`)
		for range 100 {
			require.Equal(t, first.Body.String(), ask().Body.String())
		}
		require.Equal(t, 1, reads)
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { ask() })
		}
		all.Wait()
		require.Equal(t, 2, reads)

		broken = true
		time.Sleep(time.Second)
		failed := ask()
		require.Equal(t, http.StatusInternalServerError, failed.Code)
		require.Contains(t, failed.Body.String(), "no numbers today")
		for range 100 {
			require.Equal(t, failed.Body.String(), ask().Body.String())
		}
		require.Equal(t, 3, reads)
		require.Equal(t, 1, strings.Count(log.String(), "no numbers today"))
		broken = false
		time.Sleep(time.Second)
		require.Equal(t, http.StatusOK, ask().Code)
	})
}
