package bench

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var probe = scenario{
	name: "probe", about: "a driver attaches, resets the GPU and brings it up as nouveau does",
	cases: func(bool) []testCase {
		return []testCase{{name: "bring-up", shape: common, run: func(t *take) { t.phase("probe", func() { t.attach(0, 0) }) }}}
	},
}

var suspend = scenario{
	name: "suspend", about: "a driver reads instance memory out through BAR3, shuts down, resumes and writes it back, and powers off",
	cases: func(quick bool) []testCase {
		n := pick(quick, uint64(64<<10), 512<<10)
		return []testCase{alone("instance="+bytesName(n), 0, func(t *take, g *guest.Guest) { sleep(t, g, n) })}
	},
}

func sleep(t *take, g *guest.Guest, n uint64) {
	want, saved := make([]byte, n), make([]byte, n)
	pattern(want, 3)
	memory := get(g.NewInstance(n))
	must(memory.Write(0, want))
	settle(g)
	save := func() { must(memory.Read(0, saved)) }
	verify := func() {
		if !bytes.Equal(saved, want) {
			must(errBytes)
		}
	}
	off := func() {
		must(g.Shutdown())
		settle(g)
	}
	t.phase("save", save)
	verify()
	t.phase("off", off)
	t.phase("resume", func() {
		must(g.Reset())
		memory = get(g.NewInstance(n))
		must(memory.Write(0, saved))
		settle(g)
	})
	clear(saved)
	save()
	verify()
	t.phase("poweroff", off)
}

var contexts = scenario{
	name: "contexts", about: "address spaces, each with a channel that runs one submission, are created and destroyed",
	cases: func(quick bool) (out []testCase) {
		for _, n := range pick(quick, []int{1, 4}, []int{1, 2, 4, 8, 16}) {
			out = append(out, alone(fmt.Sprint("contexts=", n), 0, func(t *take, g *guest.Guest) {
				var channels []*guest.Channel
				t.phase("create", func() {
					for i := range n {
						ch := get(g.NewChannel(i, get(g.NewSpace())))
						must(ch.Finish())
						channels = append(channels, ch)
					}
					settle(g)
				})
				t.phase("destroy", func() {
					for _, ch := range channels {
						must(ch.Close(), ch.Space.Free())
					}
					settle(g)
				})
			}))
		}
		return out
	},
}
