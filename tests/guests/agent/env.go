package agent

import (
	"github.com/umbra-gpu/umbra/tests/guests/gpu"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Env is what the GPU's work needs of this system.
func (s *System) Env() *gpu.Env {
	return &gpu.Env{
		Release: s.Release,
		Interrupts: func() (uint64, error) {
			r, err := s.Interrupts(proto.InterruptsArgs{})
			return r.Count, err
		},
		Reference: s.Reference,
		Mark: func() (uint64, error) {
			r, err := s.Mark(proto.MarkArgs{})
			return r.Seq, err
		},
		Log:       s.LogAfter,
		Registers: s.Registers,
		BAR:       s.BAR,
		USERD:     s.USERD,
	}
}
