package trace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// TestCutEntry: after an entry that was cut, words are headers again; after a whole one, data may go on in the next entry.
func TestCutEntry(t *testing.T) {
	const (
		header = 1<<29 | 4<<16 | 1<<13 | 0x110/4 // four methods from 0x110 of subchannel 1
		other  = 1<<29 | 1<<16 | 1<<13 | 0x200/4
	)
	entry := func(words uint64) trace.Event { return trace.Event{Kind: trace.Entry, Value: words << 42} }
	data := func(a, b uint64) trace.Event { return trace.Event{Kind: trace.Words, Value: b<<32 | a, Size: 8} }
	submit := trace.Event{Kind: trace.Submit, Value: 2 << 32} // two entries
	for name, c := range map[string]struct {
		events []trace.Event
		want   []uint32 // methods
	}{
		"whole":            {[]trace.Event{submit, entry(2), data(header, 1), entry(4), data(2, 3), data(4, other)}, []uint32{0x110, 0x114, 0x118, 0x11c}},
		"words missing":    {[]trace.Event{submit, entry(5), data(header, 1), entry(2), data(other, 7)}, []uint32{0x110, 0x200}},
		"entries missing":  {[]trace.Event{submit, entry(2), data(header, 1), submit, entry(2), data(other, 7)}, []uint32{0x110, 0x200}},
		"last one missing": {[]trace.Event{submit, entry(2), data(header, 1), entry(9), submit, entry(2), data(other, 7)}, []uint32{0x110, 0x200}},
	} {
		var p pushbuffer
		var got []uint32
		for _, e := range c.events {
			for _, call := range p.calls(&e) {
				got = append(got, call.method)
			}
		}
		require.Equal(t, c.want, got, name)
	}
}
