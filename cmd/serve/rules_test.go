package serve

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
)

// TestRuleInterval: a guest that breaks a rule a thousand times a second makes one
// line of the log in each interval, which says how often it did; and the interval
// can be another one while the guest goes on.
func TestRuleInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		guest := new(aggregator.Guest)
		v := &VirtualSeat{Seat: &Seat{Name: "a", guest: guest}, logged: make(map[string]uint64)}
		s := &Shared{
			list: []*VirtualSeat{v}, log: slog.New(slog.NewTextHandler(&log, nil)),
			ruleTick: time.NewTicker(ruleInterval), endRules: make(chan struct{}),
		}
		s.rules.Go(s.watchRules)
		lines := 0
		// more lets d pass, the guest being at it, and says how many lines came.
		more := func(d time.Duration) int {
			time.Sleep(time.Millisecond / 4) // never at the moment of a look
			for range d / time.Millisecond {
				guest.Stats().BadWindow.Add(1)
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			before := lines
			lines = strings.Count(log.String(), "guest broke a rule")
			return lines - before
		}
		require.Equal(t, 10, more(10*time.Second), "one a second if nobody says so")
		s.SetRuleInterval(5 * time.Second)
		require.Equal(t, 12, more(time.Minute))
		require.Contains(t, log.String(), "rule=bad_window times=5000 swallowed=4999 in_all=70000")
		s.SetRuleInterval(10 * time.Millisecond)
		require.Equal(t, 100, more(time.Second))
		close(s.endRules)
		s.rules.Wait()
		s.SetRuleInterval(time.Second) // which nobody waits for any more
	})
}

// TestRuleIntervalWaitsForNobody: a log that stands still, as one on a full disk or a
// stopped terminal does, keeps nobody from changing the interval.
func TestRuleIntervalWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guest := new(aggregator.Guest)
		guest.Stats().BadWindow.Add(1)
		v := &VirtualSeat{Seat: &Seat{Name: "a", guest: guest}, logged: make(map[string]uint64)}
		log := stuck(make(chan struct{}))
		s := &Shared{
			list: []*VirtualSeat{v}, log: slog.New(slog.NewTextHandler(log, nil)),
			ruleTick: time.NewTicker(ruleInterval), endRules: make(chan struct{}),
		}
		s.rules.Go(s.watchRules)
		time.Sleep(2 * ruleInterval)
		synctest.Wait() // the goroutine writes its line
		s.SetRuleInterval(time.Millisecond)
		close(log)
		close(s.endRules)
		s.rules.Wait()
	})
}

// stuck takes nothing before it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}
