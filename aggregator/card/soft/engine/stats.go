package engine

import "sync/atomic"

// ClassStats counts the work of one class. Every field only grows.
type ClassStats struct {
	Methods     atomic.Uint64 // method writes taken, inline words included
	Illegal     atomic.Uint64 // method writes refused
	Launches    atomic.Uint64 // copies, uploads and programs started
	Bytes       atomic.Uint64 // destination bytes written by copies and uploads
	Lines       atomic.Uint64 // lines of finished copies and uploads
	InlineWords atomic.Uint64 // words written out of the pushbuffer: uploads, constant buffers
	Semaphores  atomic.Uint64 // semaphores and reports released
	Interrupts  atomic.Uint64 // events asked for
	Faults      atomic.Uint64 // accesses refused by the address space
	Dropped     atomic.Uint64 // inline words with nowhere to go
	Flushes     atomic.Uint64 // cache flushes and performance-monitor triggers
}

// maxNotExecuted bounds the named triggers; building the tables checks it.
const maxNotExecuted = 128

// Stats counts operations of engines, by class. It may be read at any time.
type Stats struct {
	class       [classCount]ClassStats
	notExecuted [maxNotExecuted]atomic.Uint64
}

// Class returns the counters of a class, nil if there is no such class.
func (s *Stats) Class(id uint16) *ClassStats {
	if c := ClassOf(id); c != nil {
		return &s.class[c.place]
	}
	return nil
}

// Programs counts launches of programs, wherever they run.
func (s *Stats) Programs() uint64 { return s.class[place90c0].Launches.Load() }

// Work counts copies, uploads and programs of one owner of channels, by class. It may be read at
// any time.
type Work struct {
	class [classCount]struct{ launches, bytes atomic.Uint64 }
}

// Class returns how many copies, uploads and programs of a class were started, and the bytes that
// the first two wrote.
func (w *Work) Class(id uint16) (launches, bytes uint64) {
	c := ClassOf(id)
	if c == nil {
		return 0, 0
	}
	return w.class[c.place].launches.Load(), w.class[c.place].bytes.Load()
}

// NotExecuted is a trigger that was stored but not carried out.
type NotExecuted struct {
	Class uint16
	Name  string
	Count uint64
}

// NotExecuted lists the triggers that guests used and that nothing carried
// out, in the order of the tables.
func (s *Stats) NotExecuted() []NotExecuted {
	var list []NotExecuted
	for i, t := range triggers {
		if n := s.notExecuted[i].Load(); n > 0 {
			list = append(list, NotExecuted{Class: t.class, Name: t.name, Count: n})
		}
	}
	return list
}
