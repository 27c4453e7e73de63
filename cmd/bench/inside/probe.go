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

// probe is a driver that starts.
var probe = scene.Scenario{
	Scenario: report.Scenario{
		Name: "probe", Title: "A driver probes the GPU",
		About: "Attach, reset, and bring-up as nouveau's: registers, BAR tables, FIFO, interrupts",
	},
	Cases: func(report.Run) []scene.Case {
		return []scene.Case{{
			Name: "bring-up", Parameters: map[string]string{}, Shape: setup.Common, Modelled: true,
			Run: func(ctx context.Context, t *scene.Take) error {
				var g *guest.Guest
				err := t.Phase("probe", func() (err error) {
					if g, err = t.Seat().Attach(ctx, guest.Config{Timeout: patience}); err != nil {
						return err
					}
					return settle(g)
				})
				if g != nil {
					err = errors.Join(err, g.Close())
				}
				return err
			},
		}}
	},
}

// suspend is a driver that saves what VRAM would lose, and comes back.
var suspend = scene.Scenario{
	Scenario: report.Scenario{
		Name: "suspend", Title: "A driver suspends and resumes, and ends",
		About: "Save: instance memory is read out through BAR3, word by word; off: the driver shuts down; " +
			"resume: reset, bring-up, and the memory is written back; off again: poweroff",
	},
	Cases: func(run report.Run) []scene.Case {
		n := pick(run, uint64(64<<10), 512<<10)
		return []scene.Case{{
			Name: size(n) + " of instance memory", Parameters: map[string]string{"instance_bytes": fmt.Sprint(n)},
			Shape: setup.Common, Modelled: true,
			Run: func(ctx context.Context, t *scene.Take) error {
				return attach(ctx, t, guest.Config{Timeout: patience}, func(g *guest.Guest) error { return sleep(t, g, n) })
			},
		}}
	},
}

func sleep(t *scene.Take, g *guest.Guest, n uint64) error {
	want := make([]byte, n)
	pattern(want, 3)
	memory, err := g.NewInstance(n)
	if err != nil {
		return err
	}
	if err := errors.Join(memory.Write(0, want), settle(g)); err != nil {
		return err
	}
	saved := make([]byte, n)
	if err := t.Phase("save", func() error { return memory.Read(0, saved) }); err != nil {
		return err
	}
	if !bytes.Equal(saved, want) {
		return errors.New("what was saved is not what was there")
	}
	if err := t.Phase("off", func() error { return errors.Join(g.Shutdown(), settle(g)) }); err != nil {
		return err
	}
	err = t.Phase("resume", func() error {
		if err := g.Reset(); err != nil {
			return err
		}
		if memory, err = g.NewInstance(n); err != nil {
			return err
		}
		return errors.Join(memory.Write(0, saved), settle(g))
	})
	if err != nil {
		return err
	}
	if err := memory.Read(0, saved); err != nil || !bytes.Equal(saved, want) {
		return errors.Join(errors.New("what came back is not what was saved"), err)
	}
	return t.Phase("poweroff", func() error { return errors.Join(g.Shutdown(), settle(g)) })
}

// contexts makes and ends channels with an address space each.
var contexts = scene.Scenario{
	Scenario: report.Scenario{
		Name: "contexts", Title: "Contexts are made and ended",
		About: "Each has an address space of its own, a ring, a pushbuffer and a channel that has run one submission",
	},
	Cases: func(run report.Run) (out []scene.Case) {
		for _, n := range pick(run, []int{1, 4}, []int{1, 2, 4, 8, 16}) {
			out = append(out, scene.Case{
				Name: fmt.Sprintf("%d contexts", n), Parameters: map[string]string{"contexts": fmt.Sprint(n)}, Shape: setup.Common, Modelled: true,
				Run: func(ctx context.Context, t *scene.Take) error {
					return attach(ctx, t, guest.Config{Timeout: patience}, func(g *guest.Guest) error { return makeContexts(t, g, n) })
				},
			})
		}
		return out
	},
}

func makeContexts(t *scene.Take, g *guest.Guest, n int) error {
	var channels []*guest.Channel
	err := t.Phase("create", func() error {
		for i := range n {
			s, err := g.NewSpace()
			if err != nil {
				return err
			}
			ch, err := g.NewChannel(i, s)
			if err != nil {
				return err
			}
			if err := ch.Finish(); err != nil {
				return err
			}
			channels = append(channels, ch)
		}
		return settle(g)
	})
	if err != nil {
		return err
	}
	return t.Phase("destroy", func() error {
		for _, ch := range channels {
			if err := errors.Join(ch.Close(), ch.Space.Free()); err != nil {
				return err
			}
		}
		return settle(g)
	})
}
