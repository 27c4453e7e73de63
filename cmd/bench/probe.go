package bench

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var probe = scenario{
	name: "probe", about: "a driver attaches, resets the GPU and brings it up; in machines it is nouveau",
	inMachine: (*life).probe,
	cases: func(bool) []testCase {
		return []testCase{{name: "bring-up", shape: common, run: func(t *take) { t.phase("", func() { t.attach(0, 0) }) }}}
	},
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
