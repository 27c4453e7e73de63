package jit

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
)

// key tells programs apart. The process looks at the code itself: another program in the same place is compiled anew, one that was refused after a while.
type key struct {
	entry, region uint64
	block         [3]uint32
}

// program is what is known of the launches of a program.
type program struct {
	warp  uint64    // nanoseconds that the server takes for a warp, by the last launch
	ask   time.Time // when it may be compiled, so that it is asked for again
	asked time.Time // when it was asked for first
	steps int       // that ended with the time or the grid
	left  int       // that ended with an instruction for the server
}

// maxPrograms bounds what is remembered of a guest. Beyond it all is forgotten.
const maxPrograms = 4096

// roundTrip is the shortest work, in nanoseconds of a processor of the server, that is worth sending to the process, and
// instruction what a warp instruction takes there.
const (
	roundTrip   = 60_000
	instruction = 40
)

func (g *Guest) program(j *engine.Job) *program {
	k := key{j.Launch.Program, j.Launch.Region, j.Launch.Block}
	p := g.programs[k]
	if p == nil {
		if len(g.programs) >= maxPrograms {
			clear(g.programs)
		}
		p = new(program)
		g.programs[k] = p
	}
	return p
}

// executed notes what the blocks that a launch has begun take the server.
func (p *program) executed(j *engine.Job, took uint64) {
	p.warp = took / max(1, j.Grid.Next*uint64(j.Blocks.Warps()))
}

// worth reports whether a launch shall run in the process.
func (p *program) worth(j *engine.Job, always bool) bool {
	switch {
	case !p.ask.IsZero() && time.Now().Before(p.ask):
		return false
	case always || j.Grid.Steps > 1:
		return true
	}
	return p.warp > 0 && p.warp >= roundTrip/(j.Grid.Blocks*uint64(j.Blocks.Warps()))
}

// compiling notes that the program is being compiled, or waits for that. The compiler has had its program, which may be this
// one, for some time. It reports whether that is too long.
func (p *program) compiling(age time.Duration, this bool) (late bool) {
	const shortest, longest = time.Millisecond, 16 * time.Millisecond
	now := time.Now()
	if p.asked.IsZero() {
		p.asked = now
	}
	p.ask = now.Add(min(max(now.Sub(p.asked)/8, shortest), longest))
	if this && age > compileLimit {
		p.refuse()
		return true
	}
	return age > 2*compileLimit
}

// refuse leaves the program to the server for a while: then another one may have its place.
func (p *program) refuse() {
	const while = 10 * time.Second
	p.ask, p.asked, p.left, p.steps = time.Now().Add(while), time.Time{}, 0, 0
}

// comesBack notes a step that ended with an instruction for the server. It reports whether these are so many that the
// server executes all of the program faster: one whose memory only it reaches, for example.
func (p *program) comesBack() bool {
	const few, often = 64, 4
	p.left++
	tooMany := p.left > few && p.left > often*p.steps
	if tooMany {
		p.refuse()
	}
	return tooMany
}
