package lab

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilence: a console that goes on is waited for, long beyond what it may be silent; one
// that falls silent, and one that never ends, are not.
func TestSilence(t *testing.T) {
	const most = time.Minute
	for _, c := range []struct {
		name  string
		lines int           // that come
		every time.Duration // so often
		after time.Duration // it is told
		want  string
	}{
		{"nothing at all", 0, 0, most, "not up after 1m0s, and its console has said nothing for 1m0s"},
		{"slowly, then nothing", 8, 50 * time.Second, 8*50*time.Second + most, "not up after 7m40s, and its console has said nothing for 1m0s"},
		{"for ever", 21, 30 * time.Second, mostSilences*most + 30*time.Second, "not up after 10m30s, although its console goes on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				console := newJournal[ConsoleLine]()
				go func() {
					for range c.lines {
						time.Sleep(c.every)
						console.add(ConsoleLine{Text: "more"})
					}
				}()
				began := time.Now()
				err := silence(t.Context(), console, most)
				require.ErrorContains(t, err, c.want)
				require.Equal(t, c.after, time.Since(began))
			})
		})
	}
}

// TestSilenceEnds: who has what it waited for, or lost the guest, is told nothing.
func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, silence(ctx, newJournal[ConsoleLine](), time.Minute))
		gone := newJournal[ConsoleLine]()
		gone.close(errGone)
		require.NoError(t, silence(t.Context(), gone, time.Minute))
	})
}

// TestBusy: only a machine that has too much to do is told of.
func TestBusy(t *testing.T) {
	require.Empty(t, busy(0))
	require.Empty(t, busy(1))
	require.Contains(t, busy(9999), "; this machine has a load of 9999.0 on ")
}
