package gf100

import (
	"slices"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// showRefusal makes an idle engine show its next refusal.
func (s *State) showRefusal(f *gf100.Face, engine int) {
	if s.ShownRefusals[engine].Valid {
		return
	}
	i := slices.IndexFunc(s.Refusals, func(x Refusal) bool { return x.Engine == engine })
	if i < 0 {
		return
	}
	x := s.Refusals[i]
	s.Refusals = slices.Delete(s.Refusals, i, i+1)
	s.ShownRefusals[engine] = ShownRefusal{Valid: true, Channel: x.Channel}
	if engine == gf100.EngineGR {
		f.RaiseGraph(x.Graph)
	} else {
		f.RaiseCopy(x.Copy)
	}
}

// forgetRefusals drops the refusals of a channel that is bound again.
func (s *State) forgetRefusals(id uint8) {
	for e := range s.ShownRefusals {
		if s.ShownRefusals[e].Channel == id {
			s.ShownRefusals[e].Valid = false
		}
	}
	s.Refusals = slices.DeleteFunc(s.Refusals, func(x Refusal) bool { return x.Channel == id })
}

// resumeEngine resumes the channel whose refusal an engine showed.
func (v *VGPU) resumeEngine(engine int) {
	s := v.fifo.ShownRefusals[engine]
	v.fifo.ShownRefusals[engine] = ShownRefusal{}
	if s.Valid {
		v.card.Channel(s.Channel, Resume, 0)
	}
	v.fifo.showRefusal(v.face, engine)
}
