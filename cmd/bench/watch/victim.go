package watch

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

// victim is a guest that does a little of everything at fixed times.
type victim struct {
	g               *guest.Guest
	s               *guest.Space
	ch              *guest.Channel
	src, back, page *guest.Buffer
	stamp           byte
}

func newVictim(ctx context.Context, socket string) (*victim, error) {
	g, err := guest.Attach(ctx, socket, guest.Config{Map: true, Timeout: patience, Client: client.Options{Timeout: patience}})
	if err != nil {
		return nil, err
	}
	v := &victim{g: g}
	if err := v.prepare(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return v, nil
}

func (v *victim) prepare() (err error) {
	var via, from, to *guest.Buffer
	if v.s, err = v.g.NewSpace(); err != nil {
		return err
	}
	for _, b := range []struct {
		to    **guest.Buffer
		alloc func(uint64) (*guest.Buffer, error)
		size  uint64
		va    uint64
		flags guest.Flags
	}{
		{&v.src, v.g.AllocRAM, copyBytes, vaSource, guest.Small},
		{&v.back, v.g.AllocRAM, copyBytes, vaBack, guest.Small},
		{&v.page, v.g.AllocRAM, 4096, vaPage, guest.Small},
		{&via, v.g.AllocVRAM, copyBytes, vaVRAM, guest.Small},
		{&from, v.g.AllocVRAM, largeCopy, vaFrom, guest.Big},
		{&to, v.g.AllocVRAM, largeCopy, vaTo, guest.Big},
	} {
		if *b.to, err = b.alloc(b.size); err != nil {
			return err
		}
		if err := v.s.Map(b.va, *b.to, b.flags); err != nil {
			return err
		}
	}
	v.ch, err = v.g.NewChannelWith(1, v.s, guest.ChannelConfig{RingRAM: true, PushRAM: true})
	return err
}

// ops are the victim's work.
var ops = [...]struct {
	name string
	do   func(v *victim) error
}{
	{"registers", (*victim).register}, {"fences", (*victim).fence}, {"copies", (*victim).copy}, {"maps", (*victim).remap},
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

func (v *victim) register() error {
	var b [4]byte
	return v.g.Raw().Read(0, 0, b[:])
}

func (v *victim) fence() error { return v.ch.Finish() }

var errBytes = errors.New("the bytes that came back are not those that were sent")

func (v *victim) copy() error {
	v.stamp++
	for i := range v.src.Data {
		v.src.Data[i] = v.stamp + byte(i*7)
	}
	if err := errors.Join(
		v.ch.Copy(guest.M2MF, vaVRAM, vaSource, copyBytes), v.ch.Finish(), v.ch.Copy(engine, vaBack, vaVRAM, copyBytes), v.ch.Finish(),
	); err != nil {
		return err
	}
	if !bytes.Equal(v.src.Data, v.back.Data) {
		return errBytes
	}
	return nil
}

// remap changes the page tables twice, and the memory of the machine twice.
func (v *victim) remap() error {
	return errors.Join(
		v.s.Unmap(vaPage, 4096, guest.Small), v.s.Map(vaPage, v.page, guest.Small),
		v.g.Raw().Map(spareBus, 0, copyBytes, client.ReadWrite), v.g.Raw().Client().Unmap(spareBus, copyBytes),
	)
}

// saturate wants the whole engine for d.
func (v *victim) saturate(ctx context.Context, d time.Duration) error {
	return saturate(ctx, v.g, v.ch, time.Now().Add(d))
}

func saturate(ctx context.Context, g *guest.Guest, ch *guest.Channel, end time.Time) error {
	var fences []guest.Fence
	for time.Now().Before(end) && ctx.Err() == nil {
		if err := ch.Copy(engine, vaTo, vaFrom, largeCopy); err != nil {
			return err
		}
		f, err := ch.Fence()
		if err != nil {
			return err
		}
		if fences = append(fences, f); len(fences) > underWay {
			if err := g.Poll(fences[0]); err != nil {
				return err
			}
			fences = fences[1:]
		}
	}
	return ch.Finish()
}
