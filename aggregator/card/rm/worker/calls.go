package worker

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// calls are what the server may ask for. They run under process.mu.
var calls = [...]struct {
	name string
	do   func(*process, *asked) (reply, error)
}{
	callOpen:        {"open", nil}, // process.work does it
	callInfo:        {"info", (*process).info},
	callDoorbell:    {"doorbell", (*process).openDoorbell},
	callNewVRAM:     {"new VRAM", (*process).newVRAM},
	callRegister:    {"register", (*process).register},
	callFree:        {"free", (*process).free},
	callNewSpace:    {"new space", (*process).newSpace},
	callFreeSpace:   {"free space", (*process).freeSpace},
	callApply:       {"apply", (*process).apply},
	callInvalidate:  {"invalidate", (*process).invalidate},
	callNewChannel:  {"new channel", (*process).newChannel},
	callFreeChannel: {"free channel", (*process).freeChannel},
	callEnable:      {"enable", (*process).enable},
	callSetSlice:    {"set slice", (*process).setSlice},
	callReset:       {"reset", (*process).reset},
}

func leUint32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// get finds what has a number, and vacant refuses a number that is taken.
func get[T any](all map[uint32]*T, number uint32) (*T, error) {
	if v := all[number]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("there is no %T %d", *new(T), number)
}

func vacant[T any](all map[uint32]*T, number uint32) error {
	if all[number] != nil {
		return fmt.Errorf("there is a %T %d already", *new(T), number)
	}
	return nil
}

func (p *process) info(*asked) (r reply, err error) {
	i, err := p.client.Info()
	r.text = appendInfo(i)
	return r, err
}

func (p *process) openDoorbell(*asked) (r reply, err error) {
	if p.doorbell == nil {
		if p.doorbell, err = p.client.Doorbell(); err != nil {
			return r, err
		}
	}
	r.file = p.doorbell.OS()
	return r, nil
}

func (p *process) newVRAM(a *asked) (r reply, err error) {
	if err := vacant(p.objects, a.Number); err != nil {
		return r, err
	}
	m, err := p.client.NewVRAM(a.A)
	if err != nil {
		return r, err
	}
	f, err := p.client.File(m)
	if err != nil {
		p.client.Free(m)
		return r, err
	}
	p.objects[a.Number] = &object{Memory: m}
	r.file = f.OS()
	return r, nil
}

func (p *process) register(a *asked) (r reply, err error) {
	if err := vacant(p.objects, a.Number); err != nil {
		return r, err
	}
	view, err := mapFile(a.file, a.A, a.B)
	if err != nil {
		return r, err
	}
	m, err := p.client.Register(view)
	if err != nil {
		unix.Munmap(view)
		return r, err
	}
	p.objects[a.Number] = &object{m, view}
	return r, nil
}

func (p *process) free(a *asked) (r reply, err error) {
	o, err := get(p.objects, a.Number)
	if err != nil {
		return r, err
	}
	if err := p.client.Free(o.Memory); err != nil {
		return r, err
	}
	delete(p.objects, a.Number)
	if o.view != nil {
		return r, unix.Munmap(o.view)
	}
	return r, nil
}

func (p *process) newSpace(a *asked) (r reply, err error) {
	if err := vacant(p.spaces, a.Number); err != nil {
		return r, err
	}
	s, err := p.client.NewSpace()
	if err == nil {
		p.spaces[a.Number] = &space{Space: s}
	}
	return r, err
}

func (p *process) freeSpace(a *asked) (r reply, err error) {
	s, err := get(p.spaces, a.Number)
	if err == nil {
		err = p.client.FreeSpace(s.Space)
	}
	if err == nil {
		delete(p.spaces, a.Number)
	}
	return r, err
}

func (p *process) apply(a *asked) (r reply, err error) {
	s, err := get(p.spaces, a.Number)
	if err != nil {
		return r, err
	}
	for b := a.steps; len(b) >= stepBytes; b = b[stepBytes:] {
		step := stepAt(b)
		if err := p.step(s, &step); err != nil {
			return r, err
		}
		r.Number++
	}
	return r, nil
}

func (p *process) step(s *space, t *Step) error {
	if t.Op == Pause || t.Op == Resume {
		return p.pause(s, t.Op == Pause)
	}
	o, err := get(p.objects, t.Object)
	if err != nil {
		return err
	}
	switch t.Op {
	case Map:
		return p.client.Map(s.Space, o.Memory, nvrm.Map{
			VA: t.VA, Offset: t.Offset, Size: t.Size, Page: uint64(t.Page), ReadOnly: t.ReadOnly, Kind: t.Kind, KindGiven: t.KindSet,
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

func (p *process) invalidate(a *asked) (r reply, err error) {
	s, err := get(p.spaces, a.Number)
	if err == nil {
		err = p.client.Invalidate(s.Space)
	}
	return r, err
}

func (p *process) newChannel(a *asked) (r reply, err error) {
	if err := vacant(p.channels, a.Number); err != nil {
		return r, err
	}
	q := &a.Channel
	s, err := get(p.spaces, q.Space)
	if err != nil {
		return r, err
	}
	own, err := get(p.objects, q.Own)
	if err != nil {
		return r, err
	}
	if size := uint64(len(own.view)); size < nvrm.USERDBytes || q.USERD > size-nvrm.USERDBytes || q.N > maxClasses {
		return r, fmt.Errorf("object %d, of %d registered bytes, has no USERD at %d", q.Own, size, q.USERD)
	}
	if b := engineBit(q.Engine); p.listened&b == 0 {
		if err := p.events.Engine(int(q.Engine)); err != nil {
			return r, err
		}
		p.listened |= b
	}
	c := &channel{space: s, own: own.view, engine: q.Engine, enabled: true}
	c.Channel, err = p.client.NewChannel(nvrm.ChannelConfig{
		Space: s.Space, Engine: int(q.Engine), Ring: q.Ring, Entries: q.Entries, Own: own.Memory, USERD: q.USERD, Slice: q.Slice, Classes: q.Classes[:q.N],
	})
	if err != nil {
		return r, err
	}
	if s.paused {
		if err := p.client.Enable(c.Channel, false); err != nil {
			p.client.FreeChannel(c.Channel)
			return r, err
		}
	}
	p.channels[a.Number] = c
	r.Number = c.Token
	return r, nil
}

func (p *process) freeChannel(a *asked) (r reply, err error) {
	c, err := get(p.channels, a.Number)
	if err == nil {
		err = p.client.FreeChannel(c.Channel)
	}
	if err == nil {
		delete(p.channels, a.Number)
	}
	return r, err
}

func (p *process) enable(a *asked) (r reply, err error) {
	c, err := get(p.channels, a.Number)
	if err != nil {
		return r, err
	}
	if on := a.A != 0; !c.space.paused {
		err = p.client.Enable(c.Channel, on)
	}
	if err == nil {
		c.enabled = a.A != 0
	}
	return r, err
}

func (p *process) setSlice(a *asked) (r reply, err error) {
	c, err := get(p.channels, a.Number)
	if err == nil {
		err = p.client.SetSlice(c.Channel, a.A)
	}
	return r, err
}

func (p *process) reset(a *asked) (r reply, err error) {
	c, err := get(p.channels, a.Number)
	if err == nil {
		err = p.client.Reset(c.Channel)
	}
	return r, err
}
