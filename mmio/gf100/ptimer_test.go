package gf100

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	regAlarmIntr   = 0x9100
	regAlarmIntrEn = 0x9140
	regTimeLow     = 0x9400
	regTimeHigh    = 0x9410
	regAlarm       = 0x9420
)

func (b *bench) time() uint64 {
	return uint64(b.Read32(regTimeHigh))<<32 | uint64(b.Read32(regTimeLow))
}

func TestTimer(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.now = 31
	require.Zero(t, b.time(), "PTIMER counts in steps of 32 ns")
	b.now = 5<<32 + 64
	require.Equal(t, b.now, b.time())
	b.Write32(regTimeHigh, 0x17)
	b.Write32(regTimeLow, 0x89abcde0)
	b.now += 320
	require.Equal(t, uint64(0x1789abcde0+320), b.time())
	b.Space.Reset()
	b.face.Reset()
	require.Equal(t, b.now&^31, b.time(), "a reset starts the clock where its source is")
}

// A driver takes PTIMER for dead if sixteen readings are equal.
func TestTimerMovesByDefault(t *testing.T) {
	f, err := NewFace(FaceConfig{})
	require.NoError(t, err)
	first := f.timer.now()
	require.Eventually(t, func() bool { return f.timer.now() != first }, time.Minute, time.Microsecond)
}

// handTimer records how an Alarm sets its timer.
type handTimer struct {
	set   bool
	after time.Duration
	sets  int
}

func (t *handTimer) Reset(d time.Duration) bool {
	t.set, t.after = true, d
	t.sets++
	return false
}

func (t *handTimer) Stop() bool { t.set = false; return false }

// TestAlarm sets PTIMER's alarm as a driver does: the timer is set to it, the interrupt comes when
// it is due, and once.
func TestAlarm(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x140, 1)
	b.now = 3<<32 + 4096
	timer := handTimer{set: true}
	var a Alarm
	a.Init(&timer)
	follow := func(sets int, set bool) {
		t.Helper()
		level, _ := b.face.Settle(b.face.tree.fifo)
		require.Equal(t, b.Read32(regAlarmIntr)&b.Read32(regAlarmIntrEn) != 0, level)
		a.Follow(b.face)
		require.Equal(t, sets, timer.sets)
		require.Equal(t, set, timer.set)
	}
	follow(0, false)
	b.Write32(regAlarm, 4096+1000)
	follow(0, false) // an alarm without an enabled interrupt needs no timer
	b.Write32(regAlarmIntrEn, 1)
	follow(1, true)
	require.GreaterOrEqual(t, timer.after, time.Duration(1000))
	require.Less(t, timer.after, time.Duration(1000+32))
	follow(1, true) // it is set to that already
	b.Write32(regAlarm, 4096+2000)
	follow(2, true)

	b.now += uint64(timer.after) - 1
	follow(2, true)
	require.Zero(t, b.Read32(regAlarmIntr))
	b.now++
	require.True(t, a.Fired())
	timer.set = false
	follow(2, false) // an alarm goes off once
	require.Equal(t, uint32(1), b.Read32(regAlarmIntr))
	require.Equal(t, uint32(intrPTIMER), b.Read32(0x100))
	b.Write32(regAlarmIntr, 1)
	follow(2, false)

	b.Write32(regAlarm, uint32(b.now)+3200)
	follow(3, true)
	b.Write32(regAlarmIntrEn, 0)
	follow(3, false)
	b.Write32(regAlarmIntrEn, 1)
	a.Close()
	follow(3, false)
	require.False(t, a.Fired())
}

// An alarm goes off at the first step at which the low half of the time has reached it, also if that
// is after the next wrap, and also if a driver sets the time's high half before.
func TestAlarmProperty(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x140, 1)
	b.Write32(regAlarmIntrEn, 1)
	rapid.Check(t, func(t *rapid.T) {
		b.face.Reset()
		b.now = rapid.Uint64Range(0, 1<<40).Draw(t, "now")
		b.Write32(regTimeLow, rapid.Uint32().Draw(t, "low"))
		ahead := rapid.OneOf(rapid.Uint32Range(1, 4000), rapid.Uint32Range(1, 1<<32-1)).Draw(t, "ahead")
		alarm, begin := uint32(b.time())+ahead, b.now
		b.Write32(regAlarm, alarm)
		b.Write32(regTimeHigh, rapid.Uint32Range(0, 0xff).Draw(t, "high"))
		at, armed := b.face.NextAlarm()
		require.True(t, armed)
		require.LessOrEqual(t, at-begin, uint64(ahead)+31)
		b.now = at - 1
		level, _ := b.face.Settle(b.face.tree.fifo)
		require.False(t, level, "early")
		b.now = at
		level, _ = b.face.Settle(b.face.tree.fifo)
		require.True(t, level)
		require.Less(t, uint32(b.time())-alarm, uint32(32), "a step late")
		b.Write32(regAlarmIntr, 1)
	})
}
