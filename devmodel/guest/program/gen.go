package program

import (
	"cmp"

	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Limits bound a program. Zero values take the defaults.
type Limits struct {
	Ops      int  // 40
	Buffers  int  // 6
	Spaces   int  // 2
	Channels int  // 3
	IDs      int  // channel numbers to choose from; 100
	NoLarge  bool // no buffers of large pages: they take long to write and to compare
}

func (l Limits) withDefaults() Limits {
	l.Ops = cmp.Or(l.Ops, 40)
	l.Buffers = cmp.Or(l.Buffers, 6)
	l.Spaces = cmp.Or(l.Spaces, 2)
	l.Channels = cmp.Or(l.Channels, 3)
	l.IDs = cmp.Or(l.IDs, 100)
	return l
}

// Programs use a few places of the address space, small enough that mappings
// meet: each around a border between two directory entries.
const (
	regionSize = 512 << 10
	maxCopy    = 3 * shadowpt.SmallPage
	maxWords   = 64
)

var regions = []uint64{
	2*shadowpt.DirSpan - regionSize/2,
	0x3f*shadowpt.DirSpan - regionSize/2,
	0xa00*shadowpt.DirSpan - regionSize/2,
}

// Gen draws programs.
func Gen(l Limits) *rapid.Generator[Program] {
	l = l.withDefaults()
	return rapid.Custom(func(t *rapid.T) Program {
		p := Program{Spaces: rapid.IntRange(1, l.Spaces).Draw(t, "spaces")}
		p.Buffers = rapid.SliceOfN(rapid.Custom(l.drawBuffer), 2, l.Buffers).Draw(t, "buffers")
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, l.IDs-1), 1, l.Channels, rapid.ID).Draw(t, "ids")
		for _, id := range ids {
			p.Channels = append(p.Channels, drawChannel(t, id, p.Spaces))
		}
		d := &drawer{T: t, l: l, p: &p, m: NewModel(&p), busy: -1}
		for range rapid.IntRange(l.Ops/4+1, l.Ops).Draw(t, "operations") {
			if d.one(rapid.SampledFrom(weights).Draw(t, "kind")) && d.busy >= 0 {
				for range rapid.IntRange(0, most).Draw(t, "parallel") {
					d.one(rapid.SampledFrom(besides).Draw(t, "kind"))
				}
			}
		}
		return p
	})
}

func (l Limits) drawBuffer(t *rapid.T) BufferSpec {
	b := BufferSpec{
		Size: uint64(rapid.IntRange(1, 8).Draw(t, "pages")) * shadowpt.SmallPage,
		RAM:  rapid.Bool().Draw(t, "ram"),
		Seed: rapid.Uint64().Draw(t, "seed"),
	}
	if !b.RAM && !l.NoLarge && rapid.IntRange(0, 3).Draw(t, "large") == 0 {
		b.Size = shadowpt.BigPage
	}
	return b
}

func drawChannel(t *rapid.T, id, spaces int) ChannelSpec {
	return ChannelSpec{
		ID:    id,
		Space: rapid.IntRange(0, spaces-1).Draw(t, "space"),
		View:  rapid.Bool().Draw(t, "view"),
		ChannelConfig: guest.ChannelConfig{
			RingLog2: uint32(rapid.IntRange(3, 10).Draw(t, "ring")),
			Push:     4096 << rapid.IntRange(0, 4).Draw(t, "push"),
			RingRAM:  rapid.Bool().Draw(t, "ring in RAM"),
			PushRAM:  rapid.Bool().Draw(t, "push in RAM"),
		},
	}
}

// drawer draws operations that make sense after those before.
type drawer struct {
	*rapid.T
	l    Limits
	p    *Program
	m    *Model
	busy int   // the channel with work under way, as a Runner has it
	used []run // what that reads and writes
}

// one draws an operation of a kind, if there is one that makes sense.
func (d *drawer) one(k Kind) bool {
	for range tries[k] + 1 {
		if o, ok := d.op(k); ok {
			d.note(o)
			d.p.Ops = append(d.p.Ops, o)
			d.m.Apply(o)
			return true
		}
	}
	return false
}

// note records the engines' use of memory at the start of an operation.
func (d *drawer) note(o Op) {
	engine := o.Kind == Copy || o.Kind == Inline
	if beside(o.Kind) {
		return
	}
	if !engine || o.Chan != d.busy {
		d.busy, d.used = -1, nil
	}
	if !engine {
		return
	}
	d.busy = o.Chan
	s := d.m.Spaces[d.p.Channels[o.Chan].Space]
	to, _ := s.runs(o.Dst, o.N, true)
	d.used = append(d.used, to...)
	if o.Kind == Copy {
		from, _ := s.runs(o.Src, o.N, false)
		d.used = append(d.used, from...)
	}
}

func (d *drawer) n(what string, lo, hi int) uint64 {
	return uint64(rapid.IntRange(lo, hi).Draw(d.T, what))
}

// weights are how often each kind is tried.
var weights = []Kind{
	Write, Read, Map, Map, Map, Map, Unmap, Copy, Copy, Copy, Copy, Copy, Copy, Inline, Fault, Recreate,
}

// besides are operations that may run while engines work.
var besides = []Kind{Copy, Copy, Inline, Store, Store, Store, Show, Show}

const most = 4

// tries is how many more draws a kind gets of which most are invalid.
var tries = map[Kind]int{Map: 1, Copy: 6, Inline: 3, Store: 4, Show: 2}

func (d *drawer) op(k Kind) (Op, bool) {
	o := Op{Kind: k, Poll: rapid.Bool().Draw(d.T, "poll")}
	switch o.Kind {
	case Write, Read:
		d.bytes(&o)
		return o, true
	case Store:
		d.bytes(&o)
		return o, d.busy >= 0 && !overlap(d.used, []run{{o.Buf, o.Off, o.N}})
	case Show:
		o.Buf = int(d.n("buffer", 0, len(d.p.Buffers)-1))
		return o, d.busy >= 0 && !d.p.Buffers[o.Buf].RAM
	case Map:
		return o, d.mapping(&o)
	case Unmap:
		o.Space = int(d.n("space", 0, d.p.Spaces-1))
		d.vaRange(&o)
		return o, true
	case Recreate:
		o.Chan = int(d.n("channel", 0, len(d.p.Channels)-1))
		return o, true
	case Inline:
		return o, d.inline(&o)
	case Fault:
		return o, d.fault(&o)
	default:
		return o, d.copy(&o)
	}
}

func (d *drawer) bytes(o *Op) {
	o.Buf = int(d.n("buffer", 0, len(d.p.Buffers)-1))
	size := int(d.p.Buffers[o.Buf].Size)
	o.Off = d.n("offset", 0, size-1)
	o.N = d.n("bytes", 1, min(size-int(o.Off), 2*shadowpt.SmallPage))
	o.Seed = rapid.Uint64().Draw(d.T, "seed")
}

// vaRange draws pages of one size in one place.
func (d *drawer) vaRange(o *Op) {
	region := rapid.SampledFrom(regions).Draw(d.T, "place")
	size, most := uint64(shadowpt.SmallPage), 8
	if rapid.IntRange(0, 3).Draw(d.T, "big") == 0 {
		o.Flags |= guest.Big
		size, most = shadowpt.BigPage, 1
	}
	o.N = d.n("pages", 1, most) * size
	o.VA = region + d.n("page", 0, int((regionSize-o.N)/size))*size
}

func (d *drawer) mapping(o *Op) bool {
	d.vaRange(o)
	o.Space = int(d.n("space", 0, d.p.Spaces-1))
	o.Buf = int(d.n("buffer", 0, len(d.p.Buffers)-1))
	b := d.p.Buffers[o.Buf]
	_, size := d.m.Spaces[0].pages(o.Flags)
	if o.Flags&guest.Big != 0 && (b.RAM || b.Size < size) {
		return false
	}
	o.N = min(o.N, b.Size/size*size)
	o.Off = d.n("first page", 0, int((b.Size-o.N)/size)) * size
	switch rapid.IntRange(0, 7).Draw(d.T, "rights") {
	case 0:
		o.Flags |= guest.ReadOnly
	case 1:
		o.Flags |= guest.Supervisor
	}
	if b.RAM && rapid.Bool().Draw(d.T, "non-coherent") {
		o.Flags |= guest.NonCoherent
	}
	return true
}

// mapped draws a mapped address of the space, false if there is none.
func (d *drawer) mapped(s *SpaceModel, what string) (uint64, bool) {
	var vas []uint64
	for _, region := range regions {
		for va := region; va < region+regionSize; va += shadowpt.SmallPage {
			if _, _, ok := s.At(va); ok {
				vas = append(vas, va)
			}
		}
	}
	if len(vas) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(vas).Draw(d.T, what), true
}

func (d *drawer) space(o *Op) *SpaceModel {
	o.Chan = int(d.n("channel", 0, len(d.p.Channels)-1))
	o.Engine = rapid.SampledFrom(guest.CopyEngines).Draw(d.T, "engine")
	return d.m.Spaces[d.p.Channels[o.Chan].Space]
}

func (d *drawer) copy(o *Op) bool {
	s := d.space(o)
	src, ok := d.mapped(s, "source page")
	if !ok {
		return false
	}
	dst, _ := d.mapped(s, "destination page")
	o.Src = src + d.n("source byte", 0, shadowpt.SmallPage-1)
	o.Dst = dst + d.n("destination byte", 0, shadowpt.SmallPage-1)
	o.N = d.n("bytes", 1, maxCopy)
	from, ok := s.runs(o.Src, o.N, false)
	if !ok {
		return false
	}
	to, ok := s.runs(o.Dst, o.N, true)
	// What overlaps depends on the order an engine copies in.
	return ok && !overlap(from, to) && !selfOverlap(to)
}

func (d *drawer) inline(o *Op) bool {
	s := d.space(o)
	o.Engine = guest.M2MF
	dst, ok := d.mapped(s, "destination page")
	if !ok {
		return false
	}
	o.Dst = dst + d.n("destination word", 0, shadowpt.SmallPage/4-1)*4
	o.N = 4 * d.n("words", 1, maxWords)
	o.Seed = rapid.Uint64().Draw(d.T, "seed")
	to, ok := s.runs(o.Dst, o.N, true)
	return ok && !selfOverlap(to)
}

// fault draws a copy of which exactly one side faults, at its first byte.
func (d *drawer) fault(o *Op) bool {
	s := d.space(o)
	good, ok := d.mapped(s, "good page")
	if !ok {
		return false
	}
	o.OnDst = rapid.Bool().Draw(d.T, "on destination")
	o.N = d.n("bytes", 1, shadowpt.SmallPage)
	bad := rapid.SampledFrom(regions).Draw(d.T, "place") + d.n("byte", 0, regionSize-shadowpt.SmallPage)
	o.Reason, ok = s.Check(bad, o.OnDst)
	if ok {
		return false
	}
	o.Src, o.Dst = good, bad
	if !o.OnDst {
		o.Src, o.Dst = bad, good
	}
	_, ok = s.runs(good, o.N, !o.OnDst)
	return ok
}
