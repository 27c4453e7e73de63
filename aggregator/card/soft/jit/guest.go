package jit

import (
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
)

// Guest runs the programs of one owner of channels. It implements engine.Native.
type Guest struct {
	compiler *Compiler
	programs map[key]*program // of the goroutine of the step

	mu       sync.Mutex
	process  *process
	starting bool
	again    time.Time // no process is started before
	pause    time.Duration
	began    time.Time // of the process
	closed   bool
	idle     sync.WaitGroup // the start under way

	compiles, compileTime uint64 // of the process, as it said last
}

// Run implements engine.Native.
func (g *Guest) Run(j *engine.Job) engine.NativeResult {
	p := g.program(j)
	if !p.worth(j, g.compiler.cfg.Always) {
		return engine.NativeResult{}
	}
	proc := g.running()
	if proc == nil {
		return engine.NativeResult{}
	}
	s := step{guest: g, process: proc, program: p, job: j}
	r := s.run()
	for g.compiler.cfg.Wait && s.compiling {
		time.Sleep(time.Millisecond)
		r = s.run()
	}
	return r
}

// Executed implements engine.Native.
func (g *Guest) Executed(j *engine.Job, took uint64) {
	g.program(j).executed(j, took)
}

// running returns the process. If there is none it starts one, which a later step finds.
func (g *Guest) running() *process {
	g.mu.Lock()
	if g.process == nil && !g.starting && !g.closed && !time.Now().Before(g.again) {
		g.starting = true
		g.idle.Go(g.start)
		if g.compiler.cfg.Wait {
			g.mu.Unlock()
			g.idle.Wait()
			g.mu.Lock()
		}
	}
	defer g.mu.Unlock()
	return g.process
}

func (g *Guest) start() {
	p, err := start(&g.compiler.cfg, g.compiler.card)
	g.compiler.Stats.started(err)
	if !g.started(p, err == nil) && p != nil {
		_ = p.end(nil)
	}
	switch {
	case err != nil:
		g.compiler.tell("programs run interpreted, which is slower: %v", err)
	case p.lacks != "":
		g.compiler.tell("the processes that run guests' programs are less confined: %s", p.lacks)
	}
}

// started takes a process that may have started. It reports false if the guest has gone meanwhile.
func (g *Guest) started(p *process, has bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starting = false
	switch {
	case !has:
		g.retreat()
	case g.closed:
		return false
	default:
		g.began = time.Now()
		g.process, g.compiles, g.compileTime = p, 0, 0
	}
	return true
}

// compiled counts what the process compiled since the last call. The process says what it has in all.
func (g *Guest) compiled(ns, programs uint64) {
	st := &g.compiler.Stats
	const most = 1 << 32 // programs
	if ns >= g.compileTime && programs >= g.compiles && programs < most && time.Duration(ns) <= time.Since(g.began)+time.Second {
		st.CompileTime.Add(ns - g.compileTime)
		st.Compiled.Add(programs - g.compiles)
		g.compileTime, g.compiles = ns, programs
	}
}

// retreat makes the next start wait, longer each time. The caller holds mu.
func (g *Guest) retreat() {
	g.pause = min(max(2*g.pause, time.Second), maxPause)
	g.again = time.Now().Add(g.pause)
}

// lose ends a process that did what it must not, and tells why.
func (g *Guest) lose(p *process, err error) error {
	err = p.end(err)
	g.mu.Lock()
	g.process = nil
	if time.Since(g.began) > maxPause {
		g.pause = 0 // it was good for long
	}
	g.retreat()
	pause := g.pause
	g.mu.Unlock()
	g.compiler.Stats.Lost.Add(1)
	g.compiler.cfg.Log("the process that runs a guest's programs was lost: %v; they run interpreted for %v", err, pause)
	return err
}

// kill kills the process, and starts no other.
func (g *Guest) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.process != nil && g.process.cmd.Process != nil {
		_ = g.process.cmd.Process.Kill()
	}
}

func (g *Guest) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.idle.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process != nil {
		_ = g.process.end(nil)
		g.process = nil
	}
}
