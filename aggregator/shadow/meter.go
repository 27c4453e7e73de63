package shadow

import (
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// meter wraps the shadow builder's memory access. It counts work for the guest's rate limit
// and yields after each slice of work so that other guests can run.
type meter struct {
	guest Guest
	work  uint64        // in the unit below, since the guest was added
	next  uint64        // work at which the slice ends
	away  time.Duration // time given to others
	left  *uint64       // of the builder's Work
}

// The unit of work is one byte of Config.Rate, about a nanosecond of a server's processor. Work is
// counted by what is done, not by time: times vary, and neighbours would lengthen them. Examining one
// entry costs one unit.
const (
	bytesPerUnit   = 8   // of tables compared or read
	perLook        = 128 // least cost of looking at a page
	perChange      = 16  // for an entry that changed
	perTranslation = 128 // for translating an entry
	perPage        = 2   // for a page of a change that the card gets
	perCardChange  = 128 // for the change, which finds its tables and writes them

	slice = 64 << 10
)

func (m *meter) spend(n uint64) {
	if m.work += n; m.work >= m.next {
		m.next = m.work + slice
		m.yield()
	}
}

// yield lets other guests run. If a trap waits for the end of the round, it ends the work instead: what
// is left out then is built by the next update.
func (m *meter) yield() {
	if m.guest.Urgent() {
		*m.left = 0
		return
	}
	begin := time.Now()
	runtime.Gosched()
	m.away += time.Since(begin)
}

// ReadTable implements shadowpt.Guest.
func (m *meter) ReadTable(target shadowpt.Target, addr uint64, p []byte) bool {
	m.spend(uint64(len(p)) / bytesPerUnit)
	return m.guest.ReadTable(target, addr, p)
}

// SameTable implements shadowpt.Guest.
func (m *meter) SameTable(target shadowpt.Target, addr uint64, p []byte) bool {
	m.spend(max(uint64(len(p))/bytesPerUnit, perLook))
	return m.guest.SameTable(target, addr, p)
}

// SameTables implements shadowpt.Guest.
func (m *meter) SameTables(parts []shadowpt.Part) {
	n := uint64(0)
	for i := range parts {
		n += max(uint64(len(parts[i].Bytes))/bytesPerUnit, perLook)
	}
	m.spend(n)
	m.guest.SameTables(parts)
}

// Translate implements shadowpt.Guest.
func (m *meter) Translate(target shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	m.spend(perTranslation)
	return m.guest.Translate(target, addr, n, write)
}

// metered is a space of the card, for the shadow builder.
type metered struct {
	card.Space
	meter *meter
}

// Apply implements shadowpt.Card.
func (m metered) Apply(list []card.Change) (done int, err error) {
	for i := range list {
		m.meter.spend(perCardChange + perPage*list[i].Pages())
	}
	return m.Space.Apply(list)
}
