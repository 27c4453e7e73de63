package program

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Runner does a program on a guest.
type Runner struct {
	Guest *guest.Guest
	Model *Model

	p       *Program
	buffers []*guest.Buffer
	spaces  []*guest.Space
	chans   []*guest.Channel
	busy    int            // the channel with work under way, -1 for none
	shown   []func() error // ends the use of BAR3
	poll    bool
}

// Run does all of p and checks all memory at the end.
func Run(g *guest.Guest, p *Program) error {
	r, err := NewRunner(g, p)
	if err != nil {
		return err
	}
	for i, o := range p.Ops {
		if err := r.Do(o); err != nil {
			return fmt.Errorf("operation %d, %v: %w", i, o, err)
		}
	}
	return r.Check()
}

// NewRunner makes what p starts with.
func NewRunner(g *guest.Guest, p *Program) (*Runner, error) {
	r := &Runner{Guest: g, Model: NewModel(p), p: p, busy: -1}
	for i, s := range p.Buffers {
		alloc := g.AllocVRAM
		if s.RAM {
			alloc = g.AllocRAM
		}
		b, err := alloc(s.Size)
		if err != nil {
			return nil, err
		}
		if err := b.Write(0, r.Model.Buffers[i]); err != nil {
			return nil, err
		}
		r.buffers = append(r.buffers, b)
	}
	for range p.Spaces {
		s, err := g.NewSpace()
		if err != nil {
			return nil, err
		}
		r.spaces = append(r.spaces, s)
	}
	for i := range p.Channels {
		ch, err := r.channel(i)
		if err != nil {
			return nil, err
		}
		r.chans = append(r.chans, ch)
	}
	return r, nil
}

func (r *Runner) channel(i int) (*guest.Channel, error) {
	c := r.p.Channels[i]
	s := r.spaces[c.Space]
	if c.View {
		s = s.View(shadowpt.VASize - 1)
	}
	return r.Guest.NewChannelWith(c.ID, s, c.ChannelConfig)
}

// Do does one operation. Work of a channel is left under way until something
// needs its result: the processor, the tables, or another channel.
func (r *Runner) Do(o Op) error {
	engine := o.Kind == Copy || o.Kind == Inline
	if !beside(o.Kind) && (!engine || o.Chan != r.busy) {
		if err := r.Finish(); err != nil {
			return err
		}
	}
	r.poll = o.Poll
	if err := r.do(o); err != nil {
		return err
	}
	r.Model.Apply(o)
	if engine {
		r.busy = o.Chan
	}
	return nil
}

// beside reports whether an operation runs while engines work.
func beside(k Kind) bool { return k == Store || k == Show }

// Finish waits for the work under way.
func (r *Runner) Finish() error {
	err := r.wait()
	for _, hide := range r.shown {
		err = errors.Join(err, hide())
	}
	r.shown = nil
	return err
}

func (r *Runner) wait() error {
	if r.busy < 0 {
		return nil
	}
	ch := r.chans[r.busy]
	r.busy = -1
	f, err := ch.Fence()
	if err != nil {
		return err
	}
	if r.poll {
		return r.Guest.Poll(f)
	}
	return r.Guest.Wait(f)
}

func (r *Runner) do(o Op) error {
	switch o.Kind {
	case Write, Store:
		return r.buffers[o.Buf].Write(o.Off, noise(o.Seed, o.N))
	case Read:
		return r.compare(o.Buf, o.Off, o.N)
	case Map:
		return r.spaces[o.Space].MapPart(o.VA, r.buffers[o.Buf], o.Off, o.N, o.Flags)
	case Unmap:
		return r.spaces[o.Space].Unmap(o.VA, o.N, o.Flags)
	case Copy:
		return r.chans[o.Chan].Copy(o.Engine, o.Dst, o.Src, o.N)
	case Inline:
		var p guest.Push
		return r.chans[o.Chan].Submit(p.Inline(o.Dst, words(noise(o.Seed, o.N))...).Words...)
	case Fault:
		return r.fault(o)
	case Show:
		_, hide, err := r.buffers[o.Buf].BAR3()
		if err == nil {
			r.shown = append(r.shown, hide)
		}
		return err
	default:
		return r.recreate(o.Chan)
	}
}

func words(b []byte) (w []uint32) {
	for ; len(b) >= 4; b = b[4:] {
		w = append(w, uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24)
	}
	return w
}

func (r *Runner) recreate(i int) error {
	if err := r.chans[i].Close(); err != nil {
		return err
	}
	ch, err := r.channel(i)
	if err == nil {
		r.chans[i] = ch
	}
	return err
}

// fault expects the channel to be stopped with the fault that the model predicts.
func (r *Runner) fault(o Op) error {
	ch := r.chans[o.Chan]
	if err := ch.Copy(o.Engine, o.Dst, o.Src, o.N); err != nil {
		return err
	}
	f, err := ch.Fence()
	if err != nil {
		return err
	}
	wait := r.Guest.Wait
	if r.poll {
		wait = r.Guest.Poll
	}
	var stopped *guest.ChannelError
	if err := wait(f); !errors.As(err, &stopped) {
		return fmt.Errorf("a copy that must fault ended with %v", err)
	}
	at := o.Src
	if o.OnDst {
		at = o.Dst
	}
	if err := matches(stopped.Fault, ch.ID, at, o.OnDst, o.Reason); err != nil {
		return err
	}
	return r.recreate(o.Chan)
}

func matches(f guest.Fault, id int, va uint64, write bool, want shadowpt.Reason) error {
	reason := f.Reason
	if reason == shadowpt.PTNotPresent {
		reason = shadowpt.PageNotPresent // the model has no tables
	}
	if f.Channel != id || f.VA/shadowpt.SmallPage != va/shadowpt.SmallPage || f.Write != write || reason != want {
		return fmt.Errorf("%v; want channel %d, VA %#x, write %t, reason %d", f, id, va, write, want)
	}
	return nil
}

// Check waits for everything and compares all buffers with the model.
func (r *Runner) Check() error {
	if err := r.Finish(); err != nil {
		return err
	}
	for i := range r.buffers {
		if err := r.compare(i, 0, r.buffers[i].Size); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) compare(buf int, off, n uint64) error {
	got := make([]byte, n)
	if err := r.buffers[buf].Read(off, got); err != nil {
		return err
	}
	want := r.Model.Buffers[buf][off:][:n]
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("buffer %d at %#x is %02x, the model says %02x", buf, off+uint64(i), got[i], want[i])
		}
	}
	return nil
}

// Channel returns channel i of the program, and the space that it is in.
func (r *Runner) Channel(i int) (*guest.Channel, *guest.Space) {
	return r.chans[i], r.spaces[r.p.Channels[i].Space]
}
