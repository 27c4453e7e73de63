package engine

// Meter ends a step in time. Calls charge to it what they do, and the meter looks at the clock
// after each grain of that: a look at every access would cost as much as the access.
//
// Every kind of bounded work uses it alike. It charges each piece, stops at the first point at
// which it can after Over, answers Busy, and goes on in the next step. A step always does at
// least a grain of work.
type Meter struct {
	// Clock returns nanoseconds. Without a clock a step does not end.
	Clock func() uint64

	end  uint64
	left int64 // cost until the next look at the clock
	over bool
}

// Costs are in bytes of a copy, some 0.1 ns each. They are what the work takes in the worst of
// usual cases, memory that the process touches for the first time, divided by 32: a grain of
// them takes less than 1 ms.
const (
	meterGrain = 128 << 10

	CostWord   = 256  // a pushbuffer word
	CostLookup = 1024 // a look-up of memory, which then may be touched for the first time
	CostWalk   = 4096 // a walk of page tables

	costLaunch = 1024
	lineCost   = 256 // a short line, or a cell
)

// Begin begins a step that is to end at a time of the clock.
func (m *Meter) Begin(end uint64) { m.end, m.left, m.over = end, meterGrain, false }

// Charge adds work that was done.
func (m *Meter) Charge(cost int64) {
	if m.left -= cost; m.left < 0 {
		m.look()
	}
}

func (m *Meter) look() {
	m.left = meterGrain
	m.over = m.over || m.Clock != nil && m.Clock() >= m.end
}

// Over reports whether the step's time is used up.
func (m *Meter) Over() bool { return m.over }

// Left returns the nanoseconds until the step is to end.
func (m *Meter) Left() uint64 {
	if m.Clock == nil {
		return 1 << 30
	}
	if now := m.Clock(); now < m.end {
		return m.end - now
	}
	return 0
}
