package engine

import (
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/fault"
)

// gridStep is the step of a launch that is under way: what its processors share. All charge one meter:
// it looks at the clock after the same amount of work, whoever did it.
type gridStep struct {
	env         *Env // does not change during the step, but what it refers to does, under mu
	description *sm.Launch
	once        bool // a processor is to end after a burst
	working     sync.WaitGroup

	mu      sync.Mutex
	taken   int   // how many of Grid.Running have had a processor
	cost    int64 // of what they executed
	stopped bool  // a block went wrong
	fault   *interp.Fault
	panics  any
}

func (s *gridStep) start(env *Env, l *sm.Launch) {
	s.env, s.description = env, l
	s.cost, s.stopped, s.fault, s.panics = 0, false, nil, nil
	env.Pages.begin()
}

func (s *gridStep) end() { s.env = nil }

// take returns the number of one of Grid.Running that no processor has had in this step, -1 if there is
// none: there are more than processors if the grid was begun elsewhere.
func (s *gridStep) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == len(s.env.Grid.Running) || s.stopped || s.env.Over() {
		return -1
	}
	s.taken++
	return s.taken - 1
}

// begin returns the number of a block to begin. It reports false if there is none, or the step is over.
func (s *gridStep) begin(warps uint32) (n uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.env.Over() {
		return 0, false
	}
	if n, ok = s.env.Grid.Take(); ok {
		s.env.Charge(costBlock * int64(warps))
	}
	return n, ok
}

// goesOn charges what a processor did, and reports whether it may do more in this step.
func (s *gridStep) goesOn(cost int64, wrong *interp.Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cost += cost
	s.env.Charge(cost)
	if wrong != nil && !s.stopped {
		s.stopped, s.fault = true, wrong
	}
	return !s.stopped && !s.once && !s.env.Over()
}

// fetch looks bytes up, and reports whether the step's time is over. A page that lies together becomes
// one of Env.Pages.
func (s *gridStep) fetch(addr, n uint64, write bool) (b []byte, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := addr &^ (pageSize - 1)
	b, fault := s.env.fetch(start, pageSize, write)
	switch {
	case fault == nil && len(b) == pageSize:
		s.env.Pages.add(start/pageSize, (*page)(b), write)
		b = b[addr-start:]
	case addr != start || n != pageSize:
		b, fault = s.env.fetch(addr, n, write)
	}
	if fault != nil {
		return nil, s.env.Over(), refusedAccess{*fault}
	}
	return b[:min(uint64(len(b)), n)], s.env.Over(), nil
}

// Broken is the panic of a step one of whose processors panicked: why, for the operator.
type Broken string

// contain keeps a processor's panic for the goroutine of the step.
func (s *gridStep) contain() {
	p := recover()
	if p == nil {
		return
	}
	if _, memory := p.(interface{ Addr() uintptr }); !memory {
		p = Broken(fault.Reason("a program", p))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.panics = true, p
}
