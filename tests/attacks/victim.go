package main

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// engine is the engine that all contend for, and its name in reports.
const (
	engine     = guest.CE0
	engineName = "copy 0"
)

// Virtual addresses of buffers.
const (
	vaSource = 0x10_0000_0000
	vaVRAM   = 0x11_0000_0000
	vaBack   = 0x12_0000_0000
	vaPage   = 0x13_0000_0000
	vaFrom   = 0x14_0000_0000
	vaTo     = 0x15_0000_0000
)

const (
	interval  = 20 * time.Millisecond // between two starts of the victim's work
	copyBytes = 64 << 10
	largeCopy = 4 << 20
	underWay  = 64                  // large copies: some 25 ms of work, so that a late process still has some
	spareBus  = uint64(0x8000_0000) // where the victim maps more memory for a moment
)

// party is a guest with an address space that has room for large copies, and a channel.
type party struct {
	g  *guest.Guest
	s  *guest.Space
	ch *guest.Channel
}

func newParty(g *guest.Guest, c guest.ChannelConfig) party {
	p := party{g: g, s: get(g.NewSpace())}
	for _, va := range []uint64{vaFrom, vaTo} {
		must(p.s.Map(va, get(g.AllocVRAM(largeCopy)), guest.Big))
	}
	p.ch = get(g.NewChannelWith(1, p.s, c))
	must(p.ch.Finish())
	return p
}

// channels returns n channels, the party's own first.
func (p *party) channels(n int) []*guest.Channel {
	list := []*guest.Channel{p.ch}
	for len(list) < n {
		list = append(list, get(p.g.NewChannel(len(list)+1, p.s)))
	}
	return list
}

// mapped maps new memory of the machine.
func (p *party) mapped(va, size uint64) *guest.Buffer {
	b := get(p.g.AllocRAM(size))
	must(p.s.Map(va, b, guest.Small))
	return b
}

// victim is a guest that does a little of everything at fixed times.
type victim struct {
	party
	src, back, page *guest.Buffer
	stamp           byte
}

func newVictim(ctx context.Context, socket string) *victim {
	g := get(guest.Attach(ctx, socket, guest.Config{Map: true, Timeout: patience, Client: client.Options{Timeout: patience}}))
	v := &victim{party: newParty(g, guest.ChannelConfig{RingRAM: true, PushRAM: true})}
	v.src, v.back, v.page = v.mapped(vaSource, copyBytes), v.mapped(vaBack, copyBytes), v.mapped(vaPage, 4096)
	must(v.s.Map(vaVRAM, get(g.AllocVRAM(copyBytes)), guest.Small))
	return v
}

// ops are the victim's work.
var ops = [...]struct {
	name string
	do   func(v *victim) error
}{
	{"registers", func(v *victim) error { return v.g.Raw().Read(0, 0, make([]byte, 4)) }},
	{"fences", func(v *victim) error { return v.ch.Finish() }},
	{"copies", (*victim).copy},
	{"maps", (*victim).remap},
}

// window has the times of each op.
type window [len(ops)][]time.Duration

// watch works for d. If the victim is late because it had to wait, that is part of the times: a
// program that stands still for a second has as many late results as it has work in a second.
func (v *victim) watch(ctx context.Context, d time.Duration) (w window, err error) {
	began := time.Now()
	for due := time.Duration(0); due < d && time.Since(began) < 2*d+patience; due += interval {
		late := time.Since(began) - due
		if late < 0 {
			time.Sleep(-late)
			late = 0
		}
		for i, op := range ops {
			at := time.Now()
			err := op.do(v)
			w[i] = append(w[i], late+time.Since(at))
			if err = errors.Join(err, ctx.Err()); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

func (v *victim) copy() error {
	v.stamp++
	for i := range v.src.Data {
		v.src.Data[i] = v.stamp + byte(i*7)
	}
	err := errors.Join(v.ch.Copy(guest.M2MF, vaVRAM, vaSource, copyBytes), v.ch.Finish(), v.ch.Copy(engine, vaBack, vaVRAM, copyBytes), v.ch.Finish())
	if err == nil && !bytes.Equal(v.src.Data, v.back.Data) {
		return errors.New("the bytes that came back are not those that were sent")
	}
	return err
}

// remap changes the page tables twice, and the memory of the machine twice.
func (v *victim) remap() error {
	return errors.Join(
		v.s.Unmap(vaPage, 4096, guest.Small), v.s.Map(vaPage, v.page, guest.Small),
		v.g.Raw().Map(spareBus, 0, copyBytes, client.ReadWrite), v.g.Raw().Client().Unmap(spareBus, copyBytes),
	)
}

// saturate wants the whole engine until end.
func (p *party) saturate(ctx context.Context, end time.Time) error {
	var fences []guest.Fence
	for time.Now().Before(end) && ctx.Err() == nil {
		err := p.ch.Copy(engine, vaTo, vaFrom, largeCopy)
		f, ferr := p.ch.Fence()
		if err := errors.Join(err, ferr); err != nil {
			return err
		}
		if fences = append(fences, f); len(fences) > underWay {
			if err := p.g.Poll(fences[0]); err != nil {
				return err
			}
			fences = fences[1:]
		}
	}
	return p.ch.Finish()
}
