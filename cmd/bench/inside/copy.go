package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// copies move data by the GPU, both ways, with each engine.
var copies = scene.Scenario{
	Scenario: report.Scenario{
		Name: "copy", Title: "The GPU copies, both ways, with each engine",
		About: "From the guest's memory to VRAM and back, from the first doorbell to the interrupt of the fence behind the last copy",
	},
	Cases: func(run report.Run) (out []scene.Case) {
		for _, n := range pick(run, []uint64{4 << 10, 1 << 20}, []uint64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
			rounds := min(max(copyBytes/n, 1), 32)
			for _, e := range guest.CopyEngines {
				out = append(out, scene.Case{
					Name:       fmt.Sprintf("%s, %v", size(n), e),
					Parameters: map[string]string{"bytes": fmt.Sprint(n), "engine": e.String(), "rounds": fmt.Sprint(rounds)},
					Shape:      setup.Common,
					Run: func(ctx context.Context, t *scene.Take) error {
						cfg := guest.Config{RAM: 2*n + 1<<20, Timeout: patience}
						return attach(ctx, t, cfg, func(g *guest.Guest) error { return copyBothWays(t, g, e, n, int(rounds)) })
					},
				})
			}
		}
		return out
	},
}

// copyBytes is about how much a phase copies, so that small copies are timed over
// many.
const copyBytes = 4 << 20

func copyBothWays(t *scene.Take, g *guest.Guest, e guest.Engine, n uint64, rounds int) error {
	s, err := g.NewSpace()
	if err != nil {
		return err
	}
	src, err1 := mapped(g, s, vaSource, n, true)
	vram, err2 := mapped(g, s, vaVRAM, n, false)
	back, err3 := mapped(g, s, vaBack, n, true)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	pattern(src.Data, n)
	ch, err := g.NewChannel(1, s)
	if err != nil {
		return err
	}
	if err := ch.Finish(); err != nil { // the engines are bound
		return err
	}
	for _, way := range []struct {
		name     string
		dst, src uint64
	}{{"to VRAM", vram.va, src.va}, {"from VRAM", back.va, vram.va}} {
		err := t.Phase(way.name, func() error {
			for range rounds {
				if err := ch.Copy(e, way.dst, way.src, n); err != nil {
					return err
				}
			}
			return errors.Join(ch.Finish(), settle(g))
		})
		if err != nil {
			return err
		}
		t.Figure(way.name, report.BytesPerSecond, perSecond(float64(n)*float64(rounds), t.Last().NS))
	}
	if !bytes.Equal(src.Data, back.Data) {
		return errors.New("the bytes that came back are not those that were sent")
	}
	return nil
}
