package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
)

// processor is the socket of the attacker's GH100, beside that of its GF100.
const processor = "processor.sock"

// onGH100 is an attack of a guest with a GH100, again and again after its boot.
func onGH100(prepare func(d *gh100.Driver) (again func())) func(string, func()) {
	return func(socket string, ready func()) {
		g := eventually(func() (*guest.Guest, error) {
			return guest.Plug(context.Background(), socket, guest.Config{Map: true, RAM: 16 << 20, Timeout: time.Hour})
		})
		d := &gh100.Driver{Bus: g, RAM: g.Memory().Data, Base: g.RAMBase(), Timeout: patience, Fail: func(why ...any) {
			panic(failure{fmt.Errorf("%v", why)})
		}}
		d.Boot()
		again := prepare(d)
		ready()
		for {
			again()
		}
	}
}

// calls allocates objects, as many as GSP lets it, and frees them.
func calls(d *gh100.Driver) func() {
	const client, most = 0xc1d10000, 10_000
	return func() {
		d.Alloc(client, client, client, 0, make([]byte, 120))
		for i := uint32(0); i < most && d.Alloc(client, client, 1+i, 0x80, make([]byte, 56)) == 0; i++ {
		}
		d.Free(client, client)
	}
}

// garbage calls random functions with random bytes.
func garbage(d *gh100.Driver) func() {
	p := make([]byte, 4096)
	return func() {
		for i := range p {
			p[i] = byte(rand.Uint32())
		}
		d.Send(1+rand.Uint32N(120), p[:rand.IntN(len(p))])
		d.Wait("a reply", func() bool {
			_, there := d.Receive()
			return there
		})
	}
}

// flushes maps 1,024 pages after 1,024 pages, and unmaps one, with a flush each.
func flushes(d *gh100.Driver) func() {
	s, at := d.NewSpace(), d.AllocVRAM(4<<20)
	s.NewChannel(1, gh100.Graphics)
	va := s.Map(gh100.VRAM, at, 4<<20)
	return func() {
		s.Unmap(va)
		va = s.Map(gh100.VRAM, at, 4<<20)
	}
}

// doorbells rings for channels, most of which there are not.
func doorbells(d *gh100.Driver) func() {
	s := d.NewSpace()
	s.NewChannel(1, gh100.Graphics)
	return func() { d.Write32(0xbb0090, rand.Uint32()&0x1000f) }
}
