package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// says is a guest with an answer for each command.
type says map[string]any

func (g says) Call(_ context.Context, cmd string, _, result any) error {
	answer, ok := g[cmd]
	if !ok {
		return errors.New("no guest")
	}
	if err, ok := answer.(error); ok {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(data, result)
}

func nouveauSays(level lab.Level, text string) proto.KmsgRecord {
	return proto.KmsgRecord{Level: int(level), Text: "nouveau 0000:00:01.0: " + text}
}

// fine is a guest that is content in every way.
func fine() says {
	hwmon := proto.HwmonResult{Sensors: []proto.HwmonSensor{{Device: "nouveau", Name: "temp1", Value: 45000}}}
	return says{
		proto.CmdPing: nil, proto.CmdMark: proto.MarkResult{Seq: 7}, proto.CmdModprobe: proto.ModprobeResult{Loaded: []proto.LoadedModule{{Name: "nouveau", InitNS: 1}}},
		proto.CmdKmsg: proto.KmsgResult{Records: []proto.KmsgRecord{
			nouveauSays(lab.Level(3), nouveau.ErrorLine), nouveauSays(lab.LevelWarning, nouveau.CoreLine),
			nouveauSays(lab.Level(6), "drm: MM: using M2MF for buffer copies"),
		}},
		proto.CmdDRI:     proto.DRIResult{Nodes: []proto.DRINode{{Path: "/dev/dri/card0", Driver: "nouveau"}, {Path: "/dev/dri/renderD128", Driver: "nouveau"}}},
		proto.CmdPCI:     proto.PCIResult{Functions: []proto.PCIFunction{{Driver: "nouveau", IRQMode: "msi"}}},
		proto.CmdObjects: proto.ObjectsResult{Objects: []proto.ObjectOutcome{{Class: 0x9039, Bound: true}}},
		proto.CmdInfo:    proto.InfoResult{Chipset: 0xc0, VRAMBytes: vramBytes},
		proto.CmdM2MF:    proto.CopyResult{Cases: []proto.CopyOutcome{{Name: "m2mf pages", OK: true, Bytes: 1000}}},
		proto.CmdCE: proto.CopyResult{Cases: []proto.CopyOutcome{
			{Name: "ce0 pages", OK: true, Bytes: 1000}, {Name: "ce1 pages", OK: true, Bytes: 1000}}},
		proto.CmdSemaphores: proto.SemaphoresResult{Checks: []proto.Check{{Name: "release", OK: true}, {Name: "reference", Skipped: "no BAR1"}}},
		proto.CmdFences:     proto.FencesResult{Pushes: 5, Waits: fenceCount, CrossCopies: 12},
		proto.CmdBOMoves:    proto.BOMovesResult{Bytes: moveBytes * moveCount, Domains: make([]string, moveCount)},
		proto.CmdFault: proto.OffenceResult{Expected: "killed", Killed: true, FreshWorks: true,
			Background: proto.LoadTotals{Copies: 3, Bytes: 3000}},
		proto.CmdHwmon:      hwmon,
		proto.CmdInterrupts: proto.InterruptsResult{Count: 2},
	}
}

// busy is a card that counts plenty between any two looks.
func busy() func() counters {
	n := uint64(0)
	return func() counters {
		n += 1 << 30
		all := map[uint16]uint64{nouveau.ClassM2MF: n, nouveau.ClassCE0: n, nouveau.ClassCE1: n}
		return counters{moved: all, launches: all, doorbells: n, releases: n, acquireWaits: n, interrupts: n, nonStall: n, mmuFaults: n}
	}
}

// idle is a card that never counts anything.
func idle() counters { return counters{} }

type printed struct{ n int }

func (p *printed) Write(b []byte) (int, error) { p.n += len(b); return len(b), nil }

func newDemo(g guest, count func() counters) *demo {
	res := &result{VRAM: vramBytes}
	return &demo{
		stage: stage{context.Background(), &printer{w: &printed{}}, &res.outcome},
		guest: g, count: count, heat: func(int64) {}, res: res, kernel: subjectOf("6.12.94+deb13-amd64"),
	}
}

func outcomes(d *demo) map[string]bool {
	ok := map[string]bool{}
	for _, c := range d.res.Checks {
		ok[c.Name] = c.OK
	}
	return ok
}

// heated gives the guest's sensor the card's temperature.
func heated(g says, d *demo) {
	d.heat = func(c int64) {
		g[proto.CmdHwmon] = proto.HwmonResult{Sensors: []proto.HwmonSensor{{Device: "nouveau", Name: "temp1", Value: c * 1000}}}
	}
}

func TestAllHolds(t *testing.T) {
	g := fine()
	d := newDemo(g, busy())
	heated(g, d)
	require.True(t, d.all())
	for _, c := range d.res.Checks {
		require.True(t, c.OK, "%s: %v", c.Name, c.Problems)
	}
	require.Len(t, d.res.Checks, len(steps)+1)
	d.res.judge()
	require.True(t, d.res.OK)
}

// A guest that is content does not make up for a card that did nothing.
func TestCardMustAgree(t *testing.T) {
	g := fine()
	d := newDemo(g, idle)
	heated(g, d)
	d.all()
	require.Equal(t, map[string]bool{
		"probe": true, "classes": true, "temperature": true, "clean log": true,
		"M2MF": false, "copy engines": false, "semaphores": false, "fences": false, "moved buffers": false,
		"GPU fault": false, "interrupts": false,
	}, outcomes(d))
	d.res.judge()
	require.False(t, d.res.OK)
}

// Each of these is one thing wrong with an otherwise content guest.
func TestEachCanFail(t *testing.T) {
	refused := &lab.CallError{Cmd: "x", Message: "no"}
	for _, c := range []struct {
		check, cmd string
		answer     any
	}{
		{"probe", proto.CmdModprobe, refused},
		{"probe", proto.CmdDRI, proto.DRIResult{Nodes: []proto.DRINode{{Path: "/dev/dri/card0", Driver: "bochs"}}}},
		{"probe", proto.CmdPCI, proto.PCIResult{}},
		{"probe", proto.CmdKmsg, proto.KmsgResult{}},
		{"probe", proto.CmdKmsg, proto.KmsgResult{Records: []proto.KmsgRecord{nouveauSays(lab.Level(6), "drm: MM: using COPY0 for buffer copies")}}},
		{"classes", proto.CmdObjects, proto.ObjectsResult{Objects: []proto.ObjectOutcome{{Class: 0x9097}}}},
		{"classes", proto.CmdInfo, proto.InfoResult{Chipset: 0xc4, VRAMBytes: vramBytes}},
		{"classes", proto.CmdInfo, proto.InfoResult{Chipset: 0xc0, VRAMBytes: vramBytes / 2}},
		{"M2MF", proto.CmdM2MF, proto.CopyResult{}},
		{"M2MF", proto.CmdM2MF, refused},
		{"copy engines", proto.CmdCE, proto.CopyResult{Cases: []proto.CopyOutcome{{Name: "ce0 pages"}}, Failed: 1}},
		{"semaphores", proto.CmdSemaphores, proto.SemaphoresResult{Checks: []proto.Check{{Name: "release"}}}},
		{"semaphores", proto.CmdSemaphores, proto.SemaphoresResult{Checks: []proto.Check{{Name: "release", Skipped: "why"}}}},
		{"fences", proto.CmdFences, proto.FencesResult{Waits: fenceCount, CrossCopies: 12, Wrong: 1}},
		{"fences", proto.CmdFences, proto.FencesResult{Waits: fenceCount - 1, CrossCopies: 12}},
		{"moved buffers", proto.CmdBOMoves, proto.BOMovesResult{Bytes: moveBytes}},
		{"temperature", proto.CmdHwmon, proto.HwmonResult{}},
		{"GPU fault", proto.CmdFault, proto.OffenceResult{Expected: "killed", FreshWorks: true, Background: proto.LoadTotals{Copies: 1}}},
		{"GPU fault", proto.CmdFault, proto.OffenceResult{Expected: "killed", Killed: true, FreshWorks: true}},
		{"GPU fault", proto.CmdFault, proto.OffenceResult{Expected: "killed", Killed: true, FreshWorks: true, Background: proto.LoadTotals{Copies: 1, Wrong: 1}}},
		{"GPU fault", proto.CmdFault, proto.OffenceResult{Expected: "killed", Killed: true, Background: proto.LoadTotals{Copies: 1}}},
		{"interrupts", proto.CmdInterrupts, proto.InterruptsResult{}},
	} {
		g := fine()
		d := newDemo(g, busy())
		heated(g, d)
		g[c.cmd] = c.answer
		d.all()
		ok, made := outcomes(d)[c.check]
		require.True(t, made)
		require.False(t, ok, "%s after %s said %+v", c.check, c.cmd, c.answer)
		d.res.judge()
		require.False(t, d.res.OK)
	}
}

// A line too many in the log, or one too few, is a failure; a kernel without a row
// is not judged by it.
func TestLog(t *testing.T) {
	g := fine()
	log := g[proto.CmdKmsg].(proto.KmsgResult)
	log.Records = append(log.Records, nouveauSays(lab.LevelWarning, "something new"))
	g[proto.CmdKmsg] = log
	d := newDemo(g, busy())
	require.False(t, d.check("clean log", d.cleanLog))
	require.False(t, d.check("probe", d.probeCard))
	require.Contains(t, d.res.Checks[0].Problems[0], "something new")

	d.kernel = subjectOf("6.19.0")
	require.True(t, d.check("clean log", d.cleanLog))
	require.True(t, d.check("probe", d.probeCard))

	d.kernel = subjectOf("6.1.0-56-amd64")
	require.True(t, d.kernel.known)
	require.False(t, d.check("probe", d.probeCard), "6.1 has no known lines, and moves by COPY1")
}

// Without a driver nothing else is tried, and all of it counts as failed.
func TestNoProbe(t *testing.T) {
	d := newDemo(says{}, busy())
	require.False(t, d.all())
	require.Len(t, d.res.Checks, len(steps)+1)
	for _, c := range d.res.Checks {
		require.False(t, c.OK)
	}
	require.True(t, d.res.Checks[1].NotRun)
}
