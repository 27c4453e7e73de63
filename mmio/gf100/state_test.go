package gf100

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A chip frozen in the middle of its work, written out, and taken over by another face
// continues as before.
func TestStateRoundTrip(t *testing.T) {
	p := newProbe(t, FaceConfig{})
	require.Empty(t, p.run())
	p.face.tree.fifo = true
	p.Write32(regAlarmIntrEn, 1)
	p.Write32(regAlarm, uint32(p.time())+5000)
	p.face.Settle(p.face.tree.fifo)
	p.Write32(0x4091c0, 1<<25|0x40)

	js, err := json.Marshal(p.face.State())
	require.NoError(t, err)
	var st FaceState
	require.NoError(t, json.Unmarshal(js, &st))

	q := newProbe(t, FaceConfig{})
	q.now = 1 << 45 // another machine, another clock
	require.NoError(t, q.SetState(p.Space.State()))
	require.NoError(t, q.face.SetState(st))
	require.Equal(t, p.face.State(), q.face.State())
	require.Equal(t, p.time(), q.time())
	require.Equal(t, p.Read32(0x4091c4), q.Read32(0x4091c4))
	require.Equal(t, p.Read32(0x100), q.Read32(0x100))
	atP, _ := p.face.NextAlarm()
	atQ, armed := q.face.NextAlarm()
	require.True(t, armed)
	require.Equal(t, atP-p.now, atQ-q.now)
	_, edge := q.face.Settle(q.face.tree.fifo)
	require.False(t, edge, "the line was up before")
	require.Equal(t, uint32(cpuSleeping), q.Read32(0x10a100), "the PMU runs")
}

func TestStateRefused(t *testing.T) {
	a := newBench(t, FaceConfig{})
	before := a.face.State()
	for want, change := range map[string]func(*FaceState){
		"version 9":                   func(s *FaceState) { s.Version = 9 },
		"has 2 controllers":           func(s *FaceState) { s.Falcons = s.Falcons[:2] },
		"has 3 CRTC registers":        func(s *FaceState) { s.CRTC = s.CRTC[:3] },
		"controller 1 has 5 bytes of": func(s *FaceState) { s.Falcons[1].Code = s.Falcons[1].Code[:5] },
		"controller 4 has":            func(s *FaceState) { s.Falcons[4].Data = make([]byte, 8) },
		"controller 0 has":            func(s *FaceState) { s.Falcons[0].Tags = nil },
	} {
		st := newBench(t, FaceConfig{}).face.State()
		change(&st)
		require.ErrorContains(t, a.face.SetState(st), want)
		require.Equal(t, before, a.face.State())
	}
	require.Error(t, newBench(t, FaceConfig{TPCs: []int{4}}).face.SetState(before), "another board")
}

// A saved state is not trusted: what it has beyond the registers' bits is cut.
func TestStateIsCut(t *testing.T) {
	a := newBench(t, FaceConfig{})
	st := a.face.State()
	const ones = ^uint32(0)
	c := &st.Falcons[0]
	c.Tags[0], c.CodePort[0], c.DataPort[0], c.Status, c.Mask, c.BootVec = ones, ones, ones, ones, ones, ones
	require.NoError(t, a.face.SetState(st))
	got := a.face.State().Falcons[0]
	require.Equal(t, []uint32{tagValid | tagPage, portWritable, portWritable, falconIntrAll, falconIntrAll, bootvecBits},
		[]uint32{got.Tags[0], got.CodePort[0], got.DataPort[0], got.Status, got.Mask, got.BootVec})
}
