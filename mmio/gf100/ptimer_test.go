package gf100

import (
	"testing"

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

func TestTimerRuns(t *testing.T) {
	b := newBench(t, FaceConfig{})
	require.Zero(t, b.time())
	b.now = 31
	require.Zero(t, b.time(), "PTIMER counts in steps of 32 ns")
	b.now = 5<<32 + 64
	require.Equal(t, uint64(5<<32+64), b.time())
}

func TestTimerIsSet(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.now = 1000 * 32
	b.Write32(regTimeHigh, 0x17)
	b.Write32(regTimeLow, 0x89abcde0)
	require.Equal(t, uint64(0x1789abcde0), b.time())
	b.now += 320
	require.Equal(t, uint64(0x1789abcde0+320), b.time())
	b.Space.Reset()
	b.face.Reset()
	require.Equal(t, b.now, b.time(), "a reset starts the clock where its source is")
}

func TestAlarm(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x140, 1)
	_, armed := b.face.NextAlarm()
	require.False(t, armed)

	b.now = 3<<32 + 4096
	b.Write32(regAlarm, 4096+1000)
	_, armed = b.face.NextAlarm()
	require.False(t, armed, "an alarm without an enabled interrupt needs no timer")
	b.Write32(regAlarmIntrEn, 1)
	at, armed := b.face.NextAlarm()
	require.True(t, armed)
	require.GreaterOrEqual(t, at, b.now+1000)
	require.Less(t, at, b.now+1000+32)

	b.now = at - 1
	level, _ := b.face.Settle()
	require.False(t, level)
	b.now = at
	level, edge := b.face.Settle()
	require.True(t, level)
	require.True(t, edge)
	require.Equal(t, uint32(1), b.Read32(regAlarmIntr))
	require.Equal(t, uint32(1<<20), b.Read32(0x100))
	_, armed = b.face.NextAlarm()
	require.False(t, armed, "an alarm goes off once")

	b.Write32(regAlarmIntr, 1)
	level, _ = b.face.Settle()
	require.False(t, level)
}

// An alarm whose low 32 bits have just passed fires when they match again, as the
// hardware's comparator does.
func TestAlarmInThePast(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.now = 1 << 33
	b.Write32(regAlarmIntrEn, 1)
	b.Write32(regAlarm, uint32(b.now)-32)
	at, armed := b.face.NextAlarm()
	require.True(t, armed)
	require.Equal(t, b.now+1<<32-32, at)

	// A driver that sets the time does not lose the alarm.
	b.Write32(regTimeHigh, 5)
	at, _ = b.face.NextAlarm()
	require.Equal(t, b.now+1<<32-32, at)
}

// The alarm's due time against stepping the comparator through every tick.
func TestAlarmProperty(t *testing.T) {
	b := newBench(t, FaceConfig{})
	rapid.Check(t, func(t *rapid.T) {
		b.now = rapid.Uint64Range(0, 1<<40).Draw(t, "now") &^ 31
		b.Write32(regTimeHigh, rapid.Uint32Range(0, 0xff).Draw(t, "high"))
		b.Write32(regTimeLow, rapid.Uint32().Draw(t, "low"))
		ahead := rapid.Uint32Range(0, 4000).Draw(t, "ahead")
		low := uint32(b.time()) + ahead
		b.Write32(regAlarmIntrEn, 1)
		b.Write32(regAlarm, low)
		at, armed := b.face.NextAlarm()
		if !armed {
			t.Fatal("not armed")
		}
		slow := b.now
		for b.now = slow; int32(uint32(b.time())-low) < 0; b.now++ {
		}
		if b.now > at || at-b.now >= 32 {
			t.Fatalf("due at %d, the comparator matched at %d", at, b.now)
		}
	})
}

// A driver takes PTIMER for dead if sixteen readings are equal.
func TestTimerMovesByDefault(t *testing.T) {
	f, err := NewFace(FaceConfig{})
	require.NoError(t, err)
	first := f.timer.now()
	for range 1 << 20 {
		if f.timer.now() != first {
			return
		}
	}
	t.Fatal("the default clock does not advance")
}
