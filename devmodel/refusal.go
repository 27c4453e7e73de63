package devmodel

import (
	"slices"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// refusals are the methods that engines refused. An engine shows one until the guest
// resumes it; the others wait. Guarded by VGPU.mu.
type refusals struct {
	shown   [gf100.Engines]engineShown
	waiting []refusal // at most one per channel
}

// refusal is a method that an engine refused.
type refusal struct {
	engine  int
	channel uint8
	graph   gf100.GraphTrap // of the graphics engine
	copy    gf100.CopyTrap  // of a copy engine
}

// engineShown is the channel whose refused method an engine shows.
type engineShown struct {
	valid   bool
	channel uint8
}

// raise shows the refusal in the engine's registers.
func (r *refusal) raise(f *gf100.Face) {
	if r.engine == gf100.EngineGR {
		f.RaiseGraph(r.graph)
		return
	}
	f.RaiseCopy(r.copy)
}

// show makes an idle engine show its next refusal.
func (r *refusals) show(f *gf100.Face, engine int) {
	if r.shown[engine].valid {
		return
	}
	i := slices.IndexFunc(r.waiting, func(x refusal) bool { return x.engine == engine })
	if i < 0 {
		return
	}
	x := r.waiting[i]
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.shown[engine] = engineShown{valid: true, channel: x.channel}
	x.raise(f)
}

// forget drops the refusals of a channel that is bound again.
func (r *refusals) forget(id uint8) {
	for e := range r.shown {
		if r.shown[e].channel == id {
			r.shown[e].valid = false
		}
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(x refusal) bool { return x.channel == id })
}

// resumeEngine resumes the channel whose refusal an engine showed.
func (v *VGPU) resumeEngine(engine int) {
	s := v.refusals.shown[engine]
	v.refusals.shown[engine] = engineShown{}
	if s.valid {
		v.card.Resume(s.channel)
	}
	v.refusals.show(v.face, engine)
}
