package gf100

import "github.com/umbra-gpu/umbra/mmio"

var ptimerBlock = mmio.Block{
	Name:   "PTIMER",
	Source: "envytools rnndb/bus/ptimer.xml; NVIDIA dev_timer.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PTIMER_PRI_TIMEOUT_SAVE_0", Offset: 0x9084},
		{Name: "NV_PTIMER_PRI_TIMEOUT_SAVE_1", Offset: 0x9088},
		{Name: "NV_PTIMER_INTR_0", Offset: 0x9100, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "ALARM", Hi: 0, Lo: 0, Access: mmio.W1C},
		}, Effect: "bit 0 becomes one when the time passes the alarm"},
		{Name: "NV_PTIMER_INTR_EN_0", Offset: 0x9140, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "ALARM", Hi: 0, Lo: 0},
		}},
		// The clock below counts nanoseconds and ignores the ratio: the driver's ratio
		// turns its 27 MHz into nanoseconds.
		{Name: "NV_PTIMER_NUMERATOR", Offset: 0x9200, Stub: true},
		{Name: "NV_PTIMER_DENOMINATOR", Offset: 0x9210, Stub: true},
		{Name: "NV_PTIMER_CLOCK_SOURCE", Offset: 0x9220, Stub: true},
		{Name: "NV_PTIMER_TIME_0", Policy: mmio.Refuse, Offset: 0x9400, Effect: "reads bits 31:0 of the running time; a write sets them"},
		{Name: "NV_PTIMER_TIME_1", Policy: mmio.Refuse, Offset: 0x9410, Effect: "reads bits 60:32 of the running time; a write sets them"},
		{Name: "NV_PTIMER_ALARM_0", Offset: 0x9420, Effect: "arms the alarm: the low 32 bits of the time at which it goes off"},
	},
}

// tickBits are the bits of the time that do not count: PTIMER advances in steps
// of 32 ns.
const tickBits = 32 - 1

// time1Bits are the bits of NV_PTIMER_TIME_1 that exist.
const time1Bits = 1<<29 - 1

// ptimer is the chip's clock. Time is in nanoseconds; time = clock + offset.
type ptimer struct {
	clock func() uint64

	offset uint64 // added to the clock, modulo 2^64
	due    uint64 // the time of the alarm
	armed  bool   // an alarm was written and has not fired

	intr, enable mmio.Cell
}

func (t *ptimer) bind(b *mmio.Bindings) {
	b.OnRead("NV_PTIMER_INTR_0", func(_ int, v uint32) uint32 { t.tick(); return t.intr.Get() })
	b.On("NV_PTIMER_TIME_0", mmio.Hooks{
		Read:  func(int, uint32) uint32 { return uint32(t.now()) },
		Write: func(_ int, w mmio.Write) { t.setTime(t.now()&^0xffffffff | uint64(w.New)) },
	})
	b.On("NV_PTIMER_TIME_1", mmio.Hooks{
		Read:  func(int, uint32) uint32 { return uint32(t.now() >> 32) },
		Write: func(_ int, w mmio.Write) { t.setTime(t.now()&0xffffffff | uint64(w.New&time1Bits)<<32) },
	})
	b.OnWrite("NV_PTIMER_ALARM_0", func(_ int, w mmio.Write) { t.arm(w.New) })
}

func (t *ptimer) attach(s *mmio.Space) {
	t.intr = s.Cell("NV_PTIMER_INTR_0", 0)
	t.enable = s.Cell("NV_PTIMER_INTR_EN_0", 0)
}

func (t *ptimer) reset() { t.offset, t.due, t.armed = 0, 0, false }

func (t *ptimer) now() uint64 { return (t.clock() + t.offset) &^ tickBits }

// setTime moves the clock. An armed alarm keeps its place in the 32-bit circle.
func (t *ptimer) setTime(v uint64) {
	t.tick()
	t.offset = v - t.clock()
	if t.armed {
		t.arm(uint32(t.due))
	}
}

// arm sets the alarm for the next time at which the low 32 bits of the time
// reach low: now, if they are equal, and after up to 4.29 s otherwise.
func (t *ptimer) arm(low uint32) {
	now := t.now()
	t.due = now + uint64(low-uint32(now))
	t.armed = true
}

func (t *ptimer) tick() {
	if t.armed && t.now() >= t.due {
		t.armed = false
		t.intr.Set(1)
	}
}

// next returns the clock value at which PTIMER shows the alarm as due; armed is
// false if the alarm is off or its interrupt disabled.
func (t *ptimer) next() (at uint64, armed bool) {
	if !t.armed || t.enable.Get()&1 == 0 {
		return 0, false
	}
	clock := t.clock()
	now, due := clock+t.offset, (t.due+tickBits)&^tickBits
	if due <= now {
		return clock, true
	}
	return clock + due - now, true
}

// TimeOffset returns what PTIMER adds to FaceConfig.Clock, modulo 2^64. It
// changes only when a driver sets the time.
func (f *Face) TimeOffset() uint64 { return f.timer.offset }
