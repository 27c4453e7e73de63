package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var probe = scene.Scenario{
	Name: "probe", About: "a driver attaches, resets the GPU and brings it up as nouveau does",
	Cases: func(scene.Params) []scene.Case {
		return []scene.Case{{
			Name: "bring-up", Shape: setup.Common,
			Run: func(ctx context.Context, t *scene.Take) error {
				var g *guest.Guest
				err := t.Phase("probe", func() (err error) {
					if g, err = t.Server.Endpoints[0].Attach(ctx, guest.Config{Timeout: patience}); err != nil {
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

var suspend = scene.Scenario{
	Name: "suspend", About: "a driver reads instance memory out through BAR3, shuts down, resumes and writes it back, and powers off",
	Cases: func(p scene.Params) []scene.Case {
		n := pick(p, uint64(64<<10), 512<<10)
		return []scene.Case{alone("instance="+size(n), 0, func(t *scene.Take, g *guest.Guest) error { return sleep(t, g, n) })}
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
		return errBytes
	}
	off := func() error { return errors.Join(g.Shutdown(), settle(g)) }
	if err := t.Phase("off", off); err != nil {
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
	if err := memory.Read(0, saved); err != nil {
		return err
	}
	if !bytes.Equal(saved, want) {
		return errBytes
	}
	return t.Phase("poweroff", off)
}

var contexts = scene.Scenario{
	Name: "contexts", About: "address spaces, each with a channel that runs one submission, are created and destroyed",
	Cases: func(p scene.Params) (out []scene.Case) {
		for _, n := range pick(p, []int{1, 4}, []int{1, 2, 4, 8, 16}) {
			out = append(out, alone(fmt.Sprint("contexts=", n), 0, func(t *scene.Take, g *guest.Guest) error { return makeContexts(t, g, n) }))
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
