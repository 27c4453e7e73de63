package inside

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var program = scene.Scenario{
	Name: "program", About: "a program, in the phases of GPUvm's evaluation: init, host-to-device, launch (busy work), device-to-host, close",
	Cases: func(p scene.Params) (out []scene.Case) {
		for _, work := range pick(p, []uint64{4 << 20, 32 << 20}, []uint64{8 << 20, 64 << 20, 512 << 20, 4 << 30}) {
			for _, n := range pick(p, []uint64{0, 1 << 20}, []uint64{0, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
				out = append(out, alone(fmt.Sprintf("work=%s/data=%s", size(work), size(n)), 2*n+1<<20, func(t *scene.Take, g *guest.Guest) error {
					return runProgram(t, g, work, n)
				}))
			}
		}
		return out
	},
}

// job is the program's state on the GPU.
type job struct {
	g       *guest.Guest
	space   *guest.Space
	ch      *guest.Channel
	buffers []buffer
}

// start makes the address space, buffers for n bytes and the channel.
func (j *job) start(n uint64) (err error) {
	if j.space, err = j.g.NewSpace(); err != nil {
		return err
	}
	for _, b := range []struct {
		va, size uint64
		ram      bool
	}{{vaWork, busyBuffer, false}, {vaWork2, busyBuffer, false}, {vaSource, n, true}, {vaVRAM, n, false}, {vaBack, n, true}} {
		if b.size == 0 {
			continue
		}
		m, err := mapped(j.g, j.space, b.va, b.size, b.ram)
		if err != nil {
			return err
		}
		j.buffers = append(j.buffers, m)
	}
	j.ch, err = j.g.NewChannelWith(1, j.space, guest.ChannelConfig{Push: 256 << 10})
	return err
}

func (j *job) end() error {
	if err := j.ch.Close(); err != nil {
		return err
	}
	for _, b := range j.buffers {
		if err := j.space.Unmap(b.va, b.Size, b.flags); err != nil {
			return err
		}
	}
	if err := j.space.Free(); err != nil {
		return err
	}
	for _, b := range j.buffers {
		if err := b.Free(); err != nil {
			return err
		}
	}
	return nil
}

func runProgram(t *scene.Take, g *guest.Guest, work, n uint64) error {
	j := &job{g: g}
	if err := t.Phase("init", func() error { return errors.Join(j.start(n), settle(g)) }); err != nil {
		return err
	}
	var src, back []byte
	if n > 0 {
		src, back = j.buffers[2].Data, j.buffers[4].Data
		pattern(src, n)
	}
	move := func(dst, from uint64) func() error {
		return func() error {
			if n > 0 {
				if err := j.ch.Copy(guest.CE0, dst, from, n); err != nil {
					return err
				}
			}
			return j.ch.Finish()
		}
	}
	for _, p := range []struct {
		name string
		do   func() error
	}{
		{"host-to-device", move(vaVRAM, vaSource)},
		{"launch", func() error { return busy(j.ch, work) }},
		{"device-to-host", move(vaBack, vaVRAM)},
		{"close", j.end},
	} {
		if err := t.Phase(p.name, func() error { return errors.Join(p.do(), settle(g)) }); err != nil {
			return err
		}
	}
	if !bytes.Equal(src, back) {
		return errBytes
	}
	return nil
}

// Busy work copies a buffer of busyBuffer bytes, busyBatch times in a submission.
const (
	busyBuffer = 2 << 20
	busyBatch  = 64
)

// busy copies n bytes inside VRAM by the first copy engine, and waits.
func busy(ch *guest.Channel, n uint64) error {
	for n > 0 {
		var p guest.Push
		for i := 0; i < busyBatch && n > 0; i++ {
			k := min(n, busyBuffer)
			p.Copy(guest.CE0, vaWork2, vaWork, k)
			n -= k
		}
		if err := ch.Submit(p.Words...); err != nil {
			return err
		}
	}
	return ch.Finish()
}
