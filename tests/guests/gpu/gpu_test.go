package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var releases = []string{"6.1.0", "6.12.94", "7.2.13"}

func fake(t *testing.T, release string) *fakeGPU {
	g := newFakeGPU(release)
	t.Cleanup(g.close)
	return g
}

func TestSuitesPass(t *testing.T) {
	e := fake(t, "6.12").env()
	res, err := e.M2MF(proto.CopyArgs{Seed: 1})
	require.NoError(t, err)
	require.Zero(t, res.Failed)
	require.Greater(t, len(res.Cases), 35)
	for _, c := range res.Cases {
		require.Equal(t, c.WantCRC, c.CRC, c.Name)
	}
	res, err = e.CE(proto.CopyArgs{Seed: 2})
	require.NoError(t, err)
	require.Len(t, res.Cases, 80)
}

// An engine that does nothing, or nearly the right thing, fails every case that it touches.
func TestSuitesFail(t *testing.T) {
	for name, breakIt := range map[string]func(g *fakeGPU){
		"engines do nothing": func(g *fakeGPU) { g.noop = true },
		"one byte too far":   func(g *fakeGPU) { g.shift = true },
	} {
		t.Run(name, func(t *testing.T) {
			g := fake(t, "6.12")
			breakIt(g)
			for _, run := range []func(proto.CopyArgs) (proto.CopyResult, error){g.env().M2MF, g.env().CE} {
				res, err := run(proto.CopyArgs{Seed: 3, Quick: true})
				require.Error(t, err)
				require.Equal(t, len(res.Cases), res.Failed)
				require.Zero(t, res.Bytes)
			}
		})
	}
	g := fake(t, "6.12")
	g.tilesOff = true
	for _, engine := range []string{"m2mf", "ce0"} {
		res, err := g.env().Copies(proto.CopyArgs{Cases: tiledSuite(engine, false)})
		require.Error(t, err)
		require.Equal(t, len(res.Cases), res.Failed)
	}
}

func TestPlanRefuses(t *testing.T) {
	ok := proto.CopyCase{Engine: "m2mf", From: "gart", To: "vram", LineBytes: 16, Lines: 2}
	_, err := plan(ok, 0)
	require.NoError(t, err)
	for want, change := range map[string]func(c *proto.CopyCase){
		"engine":        func(c *proto.CopyCase) { c.Engine = "dma" },
		"domain":        func(c *proto.CopyCase) { c.From = "disk" },
		"must not be 0": func(c *proto.CopyCase) { c.Lines = 0 },
		"overlap":       func(c *proto.CopyCase) { c.DstPitch = 8 },
		"at most":       func(c *proto.CopyCase) { c.Lines = 5000 },
		"leaves the":    func(c *proto.CopyCase) { c.DstTiled = &proto.Tiled{Width: 20, Height: 9, Depth: 1, X: 8} },
		"has none":      func(c *proto.CopyCase) { c.Format = &proto.CEFormat{Bytes: 1, Src: 1, Swizzle: []uint32{0}} },
	} {
		c := ok
		change(&c)
		_, err := plan(c, 0)
		require.ErrorContains(t, err, want)
	}
}

func TestInfoAndObjects(t *testing.T) {
	e := fake(t, "6.12").env()
	info, err := e.Info(proto.NodeArgs{})
	require.NoError(t, err)
	require.EqualValues(t, 0xc0, info.Chipset)
	require.EqualValues(t, 4, info.GPCs)
	require.EqualValues(t, 14, info.TPCs)
	require.EqualValues(t, 1, info.ROPs)
	require.Equal(t, []string{"vram_bar_size"}, info.Unknown)
	objects, err := e.Objects(proto.NodeArgs{})
	require.NoError(t, err)
	require.Len(t, objects.Objects, 7)
}

func TestSemaphores(t *testing.T) {
	g := fake(t, "6.12")
	res, err := g.env().Semaphores(proto.SemaphoresArgs{Seed: 4, HoldMilliseconds: 4})
	require.NoError(t, err)
	require.Greater(t, len(res.Checks), 25)

	g.mu.Lock()
	g.eager = true
	g.mu.Unlock()
	res, err = g.env().Semaphores(proto.SemaphoresArgs{Seed: 4, HoldMilliseconds: 4})
	require.ErrorContains(t, err, "passed at once")
	require.Equal(t, 2*len(acquireCases)+1, res.Failed)
}

func TestReportsNeedAnEngine(t *testing.T) {
	g := fake(t, "6.12")
	g.noop = true
	res, err := g.env().Semaphores(proto.SemaphoresArgs{HoldMilliseconds: 2})
	require.Error(t, err)
	require.Equal(t, 4, res.Failed)
}

func TestFences(t *testing.T) {
	g := fake(t, "6.12")
	res, err := g.env().Fences(proto.FencesArgs{Count: 50, Batch: 3})
	require.NoError(t, err)
	require.Equal(t, 150, res.Pushes)
	require.Equal(t, 12, res.CrossCopies)
	require.LessOrEqual(t, res.MinNS, res.MedianNS)
	require.LessOrEqual(t, res.MedianNS, res.MaxNS)

	g.mu.Lock()
	g.noop = true
	g.mu.Unlock()
	_, err = g.env().Fences(proto.FencesArgs{Count: 5})
	require.Error(t, err)
}

func TestEvict(t *testing.T) {
	g := fake(t, "6.12")
	args := proto.EvictArgs{Seed: 5, BufferBytes: 256 << 10, TotalBytes: 2 << 20, Passes: 2}
	res, err := g.env().Evict(args)
	require.NoError(t, err)
	require.Equal(t, 8, res.Buffers)
	require.EqualValues(t, 2*2<<20, res.Verified)

	g.mu.Lock()
	g.noop = true
	g.mu.Unlock()
	res, err = g.env().Evict(args)
	require.Error(t, err)
	require.Zero(t, res.Verified)
}

func TestBOMoves(t *testing.T) {
	g := fake(t, "6.12")
	args := proto.BOMovesArgs{Seed: 6, Bytes: 100 << 10, Moves: 6}
	res, err := g.env().BOMoves(args)
	require.NoError(t, err)
	require.Equal(t, []string{"gart", "vram", "gart", "vram", "gart", "vram"}, res.Domains)
	require.EqualValues(t, 6*100<<10, res.Bytes)

	g.mu.Lock()
	g.noop = true
	g.mu.Unlock()
	_, err = g.env().BOMoves(args)
	require.Error(t, err)
}

// patient is more ms than any of this takes; only a failure uses them up.
const patient = 60_000

func TestOffences(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			e := fake(t, release).env()
			for _, o := range offences {
				res, err := e.offend(proto.OffenceArgs{What: o.name, TimeoutMS: patient})
				require.NoError(t, err, o.name)
				require.True(t, res.FreshWorks)
				require.NotZero(t, res.Background.Copies)
				require.Equal(t, res.Expected == "killed", res.Killed)
				require.NotEmpty(t, res.Log)
			}
		})
	}
}

func TestOffenceUnpunished(t *testing.T) {
	g := fake(t, "6.12")
	g.immortal = true
	_, err := g.env().Fault(proto.OffenceArgs{TimeoutMS: 50})
	require.ErrorContains(t, err, "still alive")
	_, err = g.env().Illegal(proto.OffenceArgs{What: "treason"})
	require.ErrorContains(t, err, "want one of")
}

// Engine errors that the PBDMA reports must have the PBDMA's consequences.
func TestEngineOffenceByPBDMA(t *testing.T) {
	for release, killed := range map[string]bool{"6.1": false, "6.12": true} {
		g := fake(t, release)
		g.noPGRAPH = true
		for _, what := range []string{"engine-method", "engine-class"} {
			res, err := g.env().Illegal(proto.OffenceArgs{What: what, TimeoutMS: patient})
			require.NoError(t, err)
			require.Equal(t, "pbdma", res.ReportedBy)
			require.Equal(t, killed, res.Killed)
		}
	}
}

func TestStorm(t *testing.T) {
	res, err := fake(t, "6.12").env().Storm(proto.StormArgs{Count: 5, OffenceArgs: proto.OffenceArgs{TimeoutMS: patient}})
	require.NoError(t, err)
	require.Equal(t, 5, res.Killed)
	require.Equal(t, 5, res.Done)
	require.True(t, res.FreshWorks)
}

func TestLoad(t *testing.T) {
	g := fake(t, "6.12")
	l, err := g.env().StartLoad(proto.LoadArgs{Clients: 3, Bytes: 20 << 10})
	require.NoError(t, err)
	totals := l.Stop()
	require.Empty(t, totals.Error)
	require.Zero(t, totals.Wrong)
	require.GreaterOrEqual(t, totals.Copies, uint64(9))

	g.mu.Lock()
	g.noop = true
	g.mu.Unlock()
	_, err = g.env().StartLoad(proto.LoadArgs{Bytes: 20 << 10})
	require.ErrorIs(t, err, errWrong)
}

// Copies that go wrong later are counted.
func TestLoadGoesWrong(t *testing.T) {
	g := fake(t, "6.12")
	l, err := g.env().StartLoad(proto.LoadArgs{Bytes: 20 << 10})
	require.NoError(t, err)
	g.mu.Lock()
	g.noop = true
	g.mu.Unlock()
	require.Eventually(t, func() bool { return l.Totals().Wrong > 2 }, time.Minute, time.Millisecond)
	totals := l.Stop()
	require.Less(t, totals.Bytes, totals.Copies*20<<10)
}

func TestBench(t *testing.T) {
	res, err := fake(t, "6.12").env().Bench(proto.BenchArgs{Sizes: []uint32{5000}, Rounds: 2, Registers: 10})
	require.NoError(t, err)
	require.Len(t, res.Copies, 13)
	var what []string
	for _, a := range res.Access {
		what = append(what, a.What)
	}
	require.Equal(t, []string{"bar1-write vram", "bar1-read vram", "ram-write", "ram-read"}, what)
	require.Len(t, res.Skipped, 1)
}

func TestFill(t *testing.T) {
	a, b := make([]byte, 1003), make([]byte, 1003)
	fill(a, 1)
	fill(b, 2)
	require.NotEqual(t, a, b)
	fill(b[:1001], 1)
	require.Equal(t, a[:1000], b[:1000])
	complement(b, a)
	wrong, first := differ(a, b)
	require.Equal(t, 1003, wrong)
	require.Zero(t, first)
}
