package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// call is the number of what the server may ask for.
type call uint32

// The calls.
var (
	callOpen        = newCall("open", nil) // process.work does it
	callInfo        = newCall("info", (*process).info)
	callDoorbell    = newCall("doorbell", (*process).openDoorbell)
	callNewVRAM     = newCall("new VRAM", (*process).newVRAM)
	callRegister    = newCall("register", (*process).register)
	callFree        = newCall("free", (*process).free)
	callNewSpace    = newCall("new space", (*process).newSpace)
	callFreeSpace   = newCall("free space", ofSpace((*process).freeSpace))
	callApply       = newCall("apply", ofSpace((*process).apply))
	callInvalidate  = newCall("invalidate", ofSpace(func(p *process, s *space, _ *asked, _ *reply) error { return p.client.Invalidate(s.Space) }))
	callNewChannel  = newCall("new channel", (*process).newChannel)
	callFreeChannel = newCall("free channel", ofChannel((*process).freeChannel))
	callEnable      = newCall("enable", ofChannel((*process).enable))
	callSetSlice    = newCall("set slice", ofChannel(func(p *process, c *channel, a *asked) error { return p.client.SetSlice(c.Channel, a.A) }))
	callReset       = newCall("reset", ofChannel(func(p *process, c *channel, _ *asked) error { return p.client.Reset(c.Channel) }))
)

// calls are the names of calls, and what does them under process.mu.
var calls []callRow

type callRow struct {
	name string
	do   func(*process, *asked, *reply) error
}

func newCall(name string, do func(*process, *asked, *reply) error) call {
	calls = append(calls, callRow{name, do})
	return call(len(calls) - 1)
}

func ofSpace(do func(*process, *space, *asked, *reply) error) func(*process, *asked, *reply) error {
	return func(p *process, a *asked, r *reply) error {
		s, err := get(p.spaces, "space", a.Number)
		if err != nil {
			return err
		}
		return do(p, s, a, r)
	}
}

func ofChannel(do func(*process, *channel, *asked) error) func(*process, *asked, *reply) error {
	return func(p *process, a *asked, _ *reply) error {
		c, err := get(p.channels, "channel", a.Number)
		if err != nil {
			return err
		}
		return do(p, c, a)
	}
}

// get finds what has a number, and vacant refuses a number that is taken.
func get[T any](all map[uint32]*T, what string, number uint32) (*T, error) {
	if v := all[number]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("there is no %s %d", what, number)
}

func vacant[T any](all map[uint32]*T, what string, number uint32) error {
	if all[number] != nil {
		return fmt.Errorf("there is a %s %d already", what, number)
	}
	return nil
}

func (p *process) info(_ *asked, r *reply) error {
	i, err := p.client.Info()
	if err == nil {
		r.text, err = json.Marshal(i)
	}
	return err
}

func (p *process) openDoorbell(_ *asked, r *reply) (err error) {
	if p.doorbell == nil {
		if p.doorbell, err = p.client.Doorbell(); err != nil {
			return err
		}
	}
	r.file = p.doorbell.OS()
	return nil
}

func (p *process) newVRAM(a *asked, r *reply) error {
	if err := vacant(p.objects, "object", a.Number); err != nil {
		return err
	}
	m, err := p.client.NewVRAM(a.A)
	if err != nil {
		return err
	}
	p.objects[a.Number] = &object{Memory: m}
	r.file = m.File.OS()
	return nil
}

func (p *process) register(a *asked, _ *reply) error {
	if err := vacant(p.objects, "object", a.Number); err != nil {
		return err
	}
	view, err := mapFile(a.file, a.A, a.B)
	if err != nil {
		return err
	}
	m, err := p.client.Register(view)
	if err != nil {
		unix.Munmap(view)
		return err
	}
	p.objects[a.Number] = &object{m, view}
	return nil
}

func (p *process) free(a *asked, _ *reply) error {
	o, err := get(p.objects, "object", a.Number)
	if err != nil {
		return err
	}
	for number, c := range p.channels {
		if c.own == o {
			return fmt.Errorf("channel %d uses object %d", number, a.Number)
		}
	}
	err = p.client.Free(o.Memory)
	if err == nil {
		delete(p.objects, a.Number)
		if o.view != nil {
			err = unix.Munmap(o.view)
		}
	}
	return err
}

func (p *process) newSpace(a *asked, _ *reply) error {
	if err := vacant(p.spaces, "space", a.Number); err != nil {
		return err
	}
	s, err := p.client.NewSpace()
	if err == nil {
		p.spaces[a.Number] = &space{Space: s}
	}
	return err
}

func (p *process) freeSpace(s *space, a *asked, _ *reply) error {
	err := p.client.FreeSpace(s.Space)
	if err == nil {
		delete(p.spaces, a.Number)
	}
	return err
}

func (p *process) apply(s *space, a *asked, r *reply) error {
	for i := range a.steps {
		if err := p.step(s, &a.steps[i]); err != nil {
			return err
		}
		r.Number++
	}
	return nil
}

func (p *process) step(s *space, t *Step) error {
	if t.Op == Pause || t.Op == Resume {
		return p.pause(s, t.Op == Pause)
	}
	o, err := get(p.objects, "object", t.Object)
	if err != nil {
		return err
	}
	switch t.Op {
	case Map:
		return p.client.Map(s.Space, o.Memory, nvrm.Map{
			VA: t.VA, Offset: t.Offset, Size: t.Size, Page: uint64(t.Page), ReadOnly: t.ReadOnly, Kind: t.Kind,
		})
	case Unmap:
		return p.client.Unmap(s.Space, o.Memory, t.VA, t.Size)
	}
	return fmt.Errorf("step %d is none of map, unmap, pause and resume", t.Op)
}

// pause takes a space's channels off the card, or lets those run that the server enabled.
func (p *process) pause(s *space, on bool) error {
	s.paused = on
	for _, c := range p.channels {
		if c.space == s && c.enabled {
			if err := p.client.Enable(c.Channel, !on); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *process) newChannel(a *asked, r *reply) error {
	if err := vacant(p.channels, "channel", a.Number); err != nil {
		return err
	}
	q := &a.Channel
	s, err := get(p.spaces, "space", q.Space)
	if err != nil {
		return err
	}
	own, err := get(p.objects, "object", q.Own)
	if err != nil {
		return err
	}
	if size := uint64(len(own.view)); size < nvrm.USERDBytes || q.USERD > size-nvrm.USERDBytes || q.Engine < nvrm.Graphics || q.Engine > maxCopy {
		return fmt.Errorf("object %d, of %d registered bytes, has no USERD at %d, or there is no engine %d", q.Own, size, q.USERD, q.Engine)
	}
	if b := engineBit(q.Engine); p.listened&b == 0 {
		if err := p.events.Engine(int(q.Engine)); err != nil {
			return err
		}
		p.listened |= b
	}
	c := &channel{space: s, own: own, engine: q.Engine, enabled: true}
	c.Channel, err = p.client.NewChannel(nvrm.ChannelConfig{
		Space: s.Space, Engine: int(q.Engine), Ring: q.Ring, Entries: q.Entries, Own: own.Memory, USERD: q.USERD, Slice: q.Slice,
		Classes: slices.DeleteFunc(q.Classes[:], func(class uint32) bool { return class == 0 }),
	})
	if err == nil && s.paused {
		if err = p.client.Enable(c.Channel, false); err != nil {
			p.client.FreeChannel(c.Channel)
		}
	}
	if err == nil {
		p.channels[a.Number], r.Number = c, c.Token
	}
	return err
}

// maxCopy is the last copy engine that events can name.
const maxCopy = 9

func (p *process) freeChannel(c *channel, a *asked) error {
	err := p.client.FreeChannel(c.Channel)
	if err == nil {
		delete(p.channels, a.Number)
	}
	return err
}

func (p *process) enable(c *channel, a *asked) (err error) {
	on := a.A != 0
	if !c.space.paused {
		err = p.client.Enable(c.Channel, on)
	}
	if err == nil {
		c.enabled = on
	}
	return err
}
