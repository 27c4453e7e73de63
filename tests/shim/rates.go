package shim

import (
	"encoding/binary"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// Rates are what the card does in a second when a submission has nothing else.
type Rates struct {
	EmptyLaunches float64 `json:"emptyLaunchesPerSecond"` // of one warp that ends, each with its state
	Methods       float64 `json:"methodsPerSecond"`       // of state, by four to a header
}

// MeasureRates submits to a card alone: there is no program and no Mesa.
func MeasureRates() (r Rates, err error) {
	m, err := NewMachine(Config{})
	if err != nil {
		return r, err
	}
	defer m.Close()
	ch, err := m.NewChannel()
	if err != nil {
		return r, err
	}
	const at, size = 16 << 20, 1 << 20
	code, err := m.Alloc(Place{VA: at, Size: size, InVRAM: true})
	if err != nil {
		return r, err
	}
	words, err := m.Alloc(Place{VA: at + size, Size: size})
	if err != nil {
		return r, err
	}
	program, err := isa.Assemble("exit")
	if err != nil {
		return r, err
	}
	binary.LittleEndian.PutUint64(code.mem, program[0])
	sc := push.Compute.Subchan
	// rate is how many operations a second does, the median of some submissions of n.
	rate := func(n int, add func(*push.Buffer)) (float64, error) {
		var p push.Buffer
		p.SetObject(push.Compute)
		for range n {
			add(&p)
		}
		for i, w := range p.Words {
			binary.LittleEndian.PutUint32(words.mem[4*i:], w)
		}
		var took []time.Duration
		for range 9 {
			start := time.Now()
			if err := ch.Run([]Push{{VA: words.VA, Size: uint64(4 * len(p.Words))}}); err != nil {
				return 0, err
			}
			took = append(took, time.Since(start))
		}
		return float64(n) / median(took).Seconds(), nil
	}
	r.EmptyLaunches, err = rate(5000, func(p *push.Buffer) {
		p.Launch(sc, push.Launch{Code: code.VA, Blocks: 1, Threads: 32, Local: at / 2})
	})
	if err != nil {
		return r, err
	}
	const local = 0x790 // SET_SHADER_LOCAL_MEMORY_A to _D
	headers, err := rate(50_000, func(p *push.Buffer) { p.Inc(sc, local, 0, at/2, 0, 0) })
	r.Methods = 4 * headers
	return r, err
}
