package trace

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullRing: a ring never grows. What finds it full is counted where it is missing, and nothing is lost twice.
func TestFullRing(t *testing.T) {
	ready := make(chan struct{}, 1)
	r := New(3, time.Now(), 8, ready)
	for round := range 3 {
		for i := range 11 {
			r.Note(Event{Kind: Write, Addr: uint64(i)})
		}
		list := r.Take(nil)
		require.Len(t, list, 9, "round %d", round)
		for i, e := range list[:8] {
			require.Equal(t, uint64(i), e.Addr)
			require.Equal(t, uint8(3), e.GPU)
		}
		require.Equal(t, Lost, list[8].Kind)
		require.Equal(t, uint64(3), list[8].Value)
		require.Len(t, r.ring, 8)
		require.NotEmpty(t, ready)
		<-ready
	}
	require.Empty(t, r.Take(nil))
	(*Recorder)(nil).Note(Event{})
}

// TestEvents: an event is the same after it was in a file, and an access of any size is there byte for byte.
func TestEvents(t *testing.T) {
	e := Event{At: 1, Addr: 2 << 40, Value: 3 << 50, Took: 4 << 20, Channel: 5 << 8, Kind: Fault, Unit: 7, Size: 8, GPU: 9}
	b := e.Append(nil)
	require.Len(t, b, EventSize)
	var got Event
	got.Parse(b)
	require.Equal(t, e, got)

	s := Stop{Kind: 9, Reason: 2, Write: true, Program: true, VA: 1 << 39, Class: 0x90c0, Method: 0x2700, Data: 1 << 31}
	e = s.Event(6, 1)
	require.Equal(t, s, e.Stop())

	r, data := New(0, time.Now(), 100, nil), []byte("nineteen bytes long")
	r.Access(Write, 1, 0x10, data, time.Now())
	var back []byte
	for _, e := range r.Take(nil) {
		require.Equal(t, uint64(0x10+len(back)), e.Addr)
		for i := range e.Size {
			back = append(back, byte(e.Value>>(8*i)))
		}
	}
	require.True(t, bytes.Equal(data, back))
}
