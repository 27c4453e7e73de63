package bench

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// probe loads nouveau.
func (l *life) probe() {
	l.measure("", func(t *take) {
		var loaded proto.ModprobeResult
		t.phase("", func() { l.ask(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded) })
		n := len(loaded.Loaded)
		if n == 0 || loaded.Loaded[n-1].Name != "nouveau" {
			must(fmt.Errorf("modprobe loaded %+v, without nouveau", loaded.Loaded))
		}
		t.metric("guest-clock-ns", float64(loaded.Loaded[n-1].InitNS))
		var dri proto.DRIResult
		if l.ask(proto.CmdDRI, nil, &dri); len(dri.Nodes) != 2 {
			must(fmt.Errorf("%d nodes in /dev/dri after the probe, want 2", len(dri.Nodes)))
		}
	})
}

func fencesRight(r *proto.FencesResult) {
	if r.Wrong > 0 {
		must(errors.New("fences came out wrong"))
	}
}

// fences measures submissions, one at a time, by the guest's clock.
func (l *life) fences() {
	n := pick(l.quick, 100, 300)
	call(l, "fences", proto.CmdFences, proto.FencesArgs{Count: n, SubmitOnly: true}, func(t *take, r *proto.FencesResult) {
		t.ops, t.each = n, float64(r.MedianNS)
		t.metric("fence-p50-ns", float64(r.MedianNS))
		t.metric("fence-p99-ns", float64(r.P99NS))
		fencesRight(r)
	})
}

// submit measures small submissions, many under way, by the guest's clock.
func (l *life) submit() {
	const batch = 64
	n := pick(l.quick, 10, 20)
	call(l, fmt.Sprint("submissions=", n*batch), proto.CmdFences, proto.FencesArgs{Count: n, Batch: batch, SubmitOnly: true}, func(t *take, r *proto.FencesResult) {
		t.each = float64(r.MedianNS) * float64(n)
		if r.MedianNS > 0 {
			t.metric("submissions/s", batch/(float64(r.MedianNS)/1e9))
		}
		fencesRight(r)
	})
}

// onDevice is how a program says how long its device worked, in milliseconds.
var onDevice = regexp.MustCompile(`([0-9.]+) ms on the device`)

// warmUps bounds the runs of a program before it is measured. Launches of few warps, which stay in the server, take all of them.
const warmUps = 6

// compiler says what the compiler of programs did for the guest; nil for a set-up without one.
func (l *life) compiler() *api.ProgramCounts { return get(l.running.Status()).Card.Programs }

// openCL runs each program until none of it is compiled to machine code any more, and then measures it. Each compiles its kernels
// first, for the card, which is not part of its time.
func (l *life) openCL() {
	for _, p := range programs[:pick(l.quick, 2, len(programs))] {
		args := proto.RunArgs{Argv: p}
		for range warmUps {
			before := l.compiler()
			l.ask(proto.CmdRun, args, new(proto.RunResult))
			now := l.compiler()
			if now == nil || now.Compiled == before.Compiled && now.Native > before.Native {
				break
			}
		}
		call(l, "program="+p[0], proto.CmdRun, args, func(t *take, r *proto.RunResult) {
			m := onDevice.FindStringSubmatch(r.Output)
			if m == nil {
				must(fmt.Errorf("%s does not say how long its device worked: %q", p[0], r.Output))
			}
			t.each = get(strconv.ParseFloat(m[1], 64)) * 1e6
			t.metric("program-ns", float64(r.NS))
		})
	}
}
