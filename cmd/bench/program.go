package bench

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/config"
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

var program = scenario{
	name: "program", about: "a program, in the phases of GPUvm's evaluation: init, host-to-device, launch (busy work), device-to-host, close",
	cases: func(quick bool) (out []testCase) {
		for _, work := range pick(quick, []uint64{4 << 20, 32 << 20}, []uint64{8 << 20, 64 << 20, 512 << 20, 4 << 30}) {
			for _, n := range pick(quick, []uint64{0, 1 << 20}, []uint64{0, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
				out = append(out, alone(fmt.Sprintf("work=%v/data=%v", config.Size(work), config.Size(n)), 2*n+1<<20, func(t *take, g *guest.Guest) {
					runProgram(t, g, work, n)
				}))
			}
		}
		return out
	},
}

func runProgram(t *take, g *guest.Guest, work, n uint64) {
	var space *guest.Space
	var ch *guest.Channel
	var buffers []buffer
	var src, back []byte
	phase := func(name string, do func()) {
		t.phase(name, func() {
			do()
			settle(g)
		})
	}
	phase("init", func() {
		space = get(g.NewSpace())
		buffers = append(buffers, mapped(g, space, vaWork, busyBuffer, false), mapped(g, space, vaWork2, busyBuffer, false))
		if n > 0 {
			buffers = append(buffers, mapped(g, space, vaSource, n, true), mapped(g, space, vaVRAM, n, false), mapped(g, space, vaBack, n, true))
			src, back = buffers[2].Data, buffers[4].Data
		}
		ch = get(g.NewChannelWith(1, space, guest.ChannelConfig{Push: 256 << 10}))
	})
	move := func(dst, from uint64) func() {
		return func() {
			if n > 0 {
				must(ch.Copy(guest.CE0, dst, from, n))
			}
			must(ch.Finish())
		}
	}
	pattern(src, n)
	phase("host-to-device", move(vaVRAM, vaSource))
	phase("launch", func() { busy(ch, work) })
	phase("device-to-host", move(vaBack, vaVRAM))
	if !bytes.Equal(src, back) {
		must(errBytes)
	}
	phase("close", func() {
		must(ch.Close())
		for _, b := range buffers {
			must(space.Unmap(b.va, b.Size, b.flags))
		}
		must(space.Free())
		for _, b := range buffers {
			must(b.Free())
		}
	})
}

// Busy work copies a buffer of busyBuffer bytes, busyBatch times in a submission.
const (
	busyBuffer = 2 << 20
	busyBatch  = 64
)

// busy copies n bytes inside VRAM by the first copy engine, and waits.
func busy(ch *guest.Channel, n uint64) {
	for n > 0 {
		var p guest.Push
		for i := 0; i < busyBatch && n > 0; i++ {
			k := min(n, busyBuffer)
			p.Copy(guest.CE0, vaWork2, vaWork, k)
			n -= k
		}
		must(ch.Submit(p.Words...))
	}
	must(ch.Finish())
}
