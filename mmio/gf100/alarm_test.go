package gf100

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type handTimer struct {
	set   bool
	after time.Duration
	sets  int
}

func (t *handTimer) Reset(d time.Duration) bool {
	was := t.set
	t.set, t.after = true, d
	t.sets++
	return was
}

func (t *handTimer) Stop() bool {
	was := t.set
	t.set = false
	return was
}

// TestAlarmFollowsTheTimer sets PTIMER's alarm as a driver does, and checks the timer's
// setting.
func TestAlarmFollowsTheTimer(t *testing.T) {
	b := newBench(t, FaceConfig{})
	timer := handTimer{set: true}
	var a Alarm
	a.Init(&timer)
	require.False(t, timer.set)
	a.Follow(b.face)
	require.Zero(t, timer.sets, "no alarm is set")

	b.now = 1 << 33
	b.Write32(regAlarmIntrEn, 1)
	b.Write32(regAlarm, uint32(b.now)+3200)
	a.Follow(b.face)
	require.True(t, timer.set)
	at, _ := b.face.NextAlarm()
	require.Equal(t, time.Duration(at-b.now), timer.after)
	a.Follow(b.face)
	require.Equal(t, 1, timer.sets, "it is set to that already")
	b.Write32(regAlarm, uint32(b.now)+6400)
	a.Follow(b.face)
	require.Equal(t, 2, timer.sets)

	b.now += 64000
	require.True(t, a.Fired())
	b.face.Settle()
	a.Follow(b.face)
	require.Equal(t, 2, timer.sets, "an alarm goes off once")
	require.Equal(t, uint32(1), b.Read32(regAlarmIntr))

	b.Write32(regAlarm, uint32(b.now)+3200)
	a.Follow(b.face)
	require.Equal(t, 3, timer.sets)
	b.Write32(regAlarmIntrEn, 0)
	a.Follow(b.face)
	require.False(t, timer.set)
	b.Write32(regAlarmIntrEn, 1)
	a.Close()
	a.Follow(b.face)
	require.False(t, timer.set)
	require.False(t, a.Fired())
}

// TestPinReportsChanges: a state that the host knows is not reported again.
func TestPinReportsChanges(t *testing.T) {
	b := newBench(t, FaceConfig{})
	c, err := NewConfigSpace(ConfigOptions{})
	require.NoError(t, err)
	b.Write32(0x140, 1)
	var p Pin
	settle := func(fifo bool) (Line, bool) { return p.Settle(b.face, c, fifo) }
	_, changed := settle(false)
	require.False(t, changed)
	l, changed := settle(true)
	require.True(t, changed)
	require.Equal(t, Line{Level: true, Edge: true}, l)
	_, changed = settle(true)
	require.False(t, changed)
	p.Forget()
	l, changed = settle(true)
	require.True(t, changed)
	require.Equal(t, Line{Level: true}, l)
	c.Write(4, []byte{0, 4}) // interrupt disable
	l, changed = settle(true)
	require.True(t, changed)
	require.True(t, l.Disabled)
	l, changed = settle(false)
	require.True(t, changed)
	require.Equal(t, Line{Disabled: true}, l)
}
