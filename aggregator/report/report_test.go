package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// failing panics at a failure.
type failing chan Notes

func (failing) Completed(card.EngineSet) {}
func (failing) Failed(uint32, Error)     { panic("planted") }
func (failing) Refused(uint32)           {}
func (f failing) Done(n Notes)           { f <- n }
func (failing) Quarantine(string)        {}

// TestDoneAfterPanic: a guest that waits for an operation learns that it ended, even if a report before it
// panics.
func TestDoneAfterPanic(t *testing.T) {
	f := make(failing, 1)
	r := New(f, f)
	r.note(func(s *Undelivered) { *s = Undelivered{Done: true, Notes: 5, Errors: make([]ChannelError, 1)} })
	require.Eventually(t, r.Idle, time.Minute, time.Millisecond)
	r.Close()
	require.Len(t, f, 1)
	require.EqualValues(t, 5, <-f)
}
