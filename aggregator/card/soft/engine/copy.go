package engine

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"

// Copy is a transfer under way: two surfaces, what to move, and how far it is.
type Copy struct {
	Src, Dst Surface
	// Length is a line in bytes, or in elements if Remap is on.
	Length uint64
	Lines  uint64

	// Row and X are the first line and byte (element) that are not done. In a
	// block-linear copy Row is the first line of a row of cells.
	Row, X uint64

	Remap Remap
}

// run moves bytes until the copy is complete, the budget or the step's time is spent, or an
// access faults. It reports the destination bytes it wrote.
func (c *Copy) run(env *Env) (moved uint64, fault *Fault) {
	if c.Length == 0 {
		c.Row = c.Lines
	}
	switch {
	case c.complete():
		return 0, nil
	case c.Remap.On:
		return c.remap(env)
	case c.Src.Layout != LayoutPitch || c.Dst.Layout != LayoutPitch:
		return c.cells(env)
	case c.Lines == 1 || c.Src.Stride == c.Length && c.Dst.Stride == c.Length:
		return c.flat(env)
	}
	return c.rows(env)
}

func (c *Copy) complete() bool { return c.Row >= c.Lines }

// flat copies lines that follow each other without gaps, as one run.
func (c *Copy) flat(env *Env) (uint64, *Fault) {
	from := c.Row*c.Length + c.X // both below 2^32, so are Lines and Length
	n := min(c.Lines*c.Length-from, env.budget())
	moved, fault := copyRun(env, c.Dst.VA+from, c.Src.VA+from, n)
	c.Row, c.X = (from+moved)/c.Length, (from+moved)%c.Length
	return moved, fault
}

// rows copies line by line.
func (c *Copy) rows(env *Env) (moved uint64, fault *Fault) {
	for left := int64(env.budget()); left > 0 && c.Row < c.Lines && !env.Over(); {
		n := min(c.Length-c.X, uint64(left))
		k, fault := copyRun(env, c.Dst.at(c.X, c.Row), c.Src.at(c.X, c.Row), n)
		moved += k
		if c.X += k; c.X == c.Length {
			c.X, c.Row = 0, c.Row+1
		}
		if fault != nil {
			return moved, fault
		}
		left -= int64(max(k, lineCost))
	}
	return moved, nil
}

// copyRun copies n bytes that lie together on both sides and reports how many it copied before
// it met a fault, or the step's time was over.
func copyRun(env *Env, dst, src, n uint64) (uint64, *Fault) {
	in := stream{va: src, left: n}
	out := stream{va: dst, left: n, write: true}
	var from, to []byte
	var fault *Fault
	for done := uint64(0); ; {
		if len(from) == 0 {
			if from, fault = in.take(env); fault != nil {
				return done, fault
			}
		}
		if len(to) == 0 {
			if to, fault = out.take(env); fault != nil {
				return done, fault
			}
		}
		k := copy(to, from)
		from, to = from[k:], to[k:]
		env.Charge(int64(k))
		if done += uint64(k); done >= n || env.Over() {
			return done, nil
		}
	}
}

// stream gives out a range of the address space piece by piece. Pieces that
// also lie together in the card's memory are given out as one, so that a copy
// of many pages is one large copy(), not many small ones.
type stream struct {
	va, left uint64
	write    bool
	next     []byte // already fetched
}

// take returns the next piece. It is shorter when the step's time is over.
func (s *stream) take(env *Env) ([]byte, *Fault) {
	piece := s.next
	s.next = nil
	if piece == nil {
		var fault *Fault
		if piece, fault = env.fetch(s.va, s.left, s.write); fault != nil {
			return nil, fault
		}
	}
	for n := uint64(len(piece)); n < s.left && !env.Over(); n = uint64(len(piece)) {
		next, fault := env.fetch(s.va+n, s.left-n, s.write)
		if fault != nil {
			break // it is met again when the pieces before it are used up
		}
		if !follows(piece, next) {
			s.next = next
			break
		}
		piece = piece[:len(piece)+len(next)]
	}
	s.va += uint64(len(piece))
	s.left -= uint64(len(piece))
	return piece, nil
}

// follows reports whether b is the memory right after a, in the same array.
func follows(a, b []byte) bool {
	return cap(a)-len(a) >= len(b) && &a[: len(a)+1 : cap(a)][len(a)] == &b[0]
}

// window is a piece of memory that a call already has in hand.
type window struct {
	va  uint64
	mem []byte
}

// get returns the memory at va to the end of the window, at least one byte.
func (w *window) get(env *Env, va uint64, write bool) ([]byte, *Fault) {
	if off := va - w.va; off < uint64(len(w.mem)) {
		return w.mem[off:], nil
	}
	mem, fault := env.fetch(va, pageSize-va%pageSize, write)
	if fault != nil {
		return nil, fault
	}
	w.va, w.mem = va, mem
	return mem, nil
}

// side is a surface with the windows a call has on it.
type side struct {
	*Surface
	write bool
	win   [8]window
}

func (s *side) get(env *Env, x, y uint64) ([]byte, *Fault) {
	return s.win[s.slot(x, y)].get(env, s.at(x, y), s.write)
}

// cells copies to or from a block-linear surface, one row of cells after the
// other. A cell is the part of a GOB that the copy covers; whole GOBs are looked
// up once and moved by sectors.
func (c *Copy) cells(env *Env) (moved uint64, fault *Fault) {
	src := side{Surface: &c.Src}
	dst := side{Surface: &c.Dst, write: true}
	grid := &c.Dst
	if grid.Layout == LayoutPitch {
		grid = &c.Src
	}
	width, height := grid.cell()
	for left := int64(env.budget()); left > 0 && c.Row < c.Lines && !env.Over(); {
		w := min(width-(grid.X+c.X)%width, c.Length-c.X)
		h := min(height-(grid.Y+c.Row)%height, c.Lines-c.Row)
		var done uint64
		if w == texture.GOBWidth && h == texture.GOBHeight {
			if done, fault = c.gobs(env, &src, &dst, max(texture.GOBWidth, uint64(left)/texture.GOBHeight)); fault != nil {
				return moved, fault
			}
		}
		if done == 0 {
			if fault := c.cell(env, &src, &dst, w, h); fault != nil {
				return moved, fault
			}
			done = w
		}
		moved += done * h
		if c.X += done; c.X == c.Length {
			c.X, c.Row = 0, c.Row+h
		}
		cost := int64(max(done*h, lineCost))
		env.Charge(cost)
		left -= cost
	}
	return moved, nil
}

// cell copies w by h bytes at X, Row.
func (c *Copy) cell(env *Env, src, dst *side, w, h uint64) *Fault {
	for y := c.Row; y < c.Row+h; y++ {
		for x, end := c.X, c.X+w; x < end; {
			n := dst.run(x, src.run(x, end-x))
			from, fault := src.get(env, x, y)
			if fault != nil {
				return fault
			}
			to, fault := dst.get(env, x, y)
			if fault != nil {
				return fault
			}
			n = min(n, uint64(len(from)), uint64(len(to)))
			copy(to[:n], from)
			x += n
		}
	}
	return nil
}

// gobs copies whole GOBs from X, Row on, within the given memory, at most limit bytes of
// each line. It returns the width that it copied: 0 if a GOB, or a line next to it, is not
// contiguous.
func (c *Copy) gobs(env *Env, src, dst *side, limit uint64) (uint64, *Fault) {
	switch {
	case src.Layout == LayoutPitch && dst.Layout == LayoutGOB:
		return c.gobLines(env, dst, src, limit)
	case src.Layout == LayoutGOB && dst.Layout == LayoutPitch:
		return c.gobLines(env, src, dst, limit)
	case src.Layout == LayoutGOB && dst.Layout == LayoutGOB && (src.X+c.X)%texture.GOBWidth == 0 && (src.Y+c.Row)%texture.GOBHeight == 0:
		from, fault := src.get(env, c.X, c.Row)
		if fault != nil {
			return 0, fault
		}
		to, fault := dst.get(env, c.X, c.Row)
		if fault != nil {
			return 0, fault
		}
		if len(from) < texture.GOBBytes || len(to) < texture.GOBBytes {
			return 0, nil
		}
		copy(to[:texture.GOBBytes], from)
		return texture.GOBWidth, nil
	}
	return 0, nil
}

// gobLines moves GOBs from or to eight pieces of line.
func (c *Copy) gobLines(env *Env, tiled, lines *side, limit uint64) (uint64, *Fault) {
	var line [texture.GOBHeight][]byte
	width := min(c.Length-c.X, limit)
	for i := range line {
		l, fault := lines.get(env, c.X, c.Row+uint64(i))
		if fault != nil {
			return 0, fault
		}
		line[i] = l
		width = min(width, uint64(len(l)))
	}
	for x := uint64(0); ; x += texture.GOBWidth {
		if x+texture.GOBWidth > width {
			return x, nil
		}
		gob, fault := tiled.get(env, c.X+x, c.Row)
		if fault != nil || len(gob) < texture.GOBBytes {
			if x > 0 {
				fault = nil // it is met again at the new X
			}
			return x, fault
		}
		g := (*[texture.GOBBytes]byte)(gob)
		if tiled.write {
			tile(g, &line, x)
		} else {
			untile(g, &line, x)
		}
	}
}

// tile fills a GOB from eight lines, from byte x on.
func tile(g *[texture.GOBBytes]byte, line *[texture.GOBHeight][]byte, x uint64) {
	for i := range line {
		p := (*[texture.GOBWidth]byte)(line[i][x:])
		s := (*[gobRow]byte)(g[(i&6)<<5|(i&1)<<4:])
		*(*[sector]byte)(s[0:]) = *(*[sector]byte)(p[0:])
		*(*[sector]byte)(s[32:]) = *(*[sector]byte)(p[16:])
		*(*[sector]byte)(s[256:]) = *(*[sector]byte)(p[32:])
		*(*[sector]byte)(s[288:]) = *(*[sector]byte)(p[48:])
	}
}

// untile fills eight lines from a GOB.
func untile(g *[texture.GOBBytes]byte, line *[texture.GOBHeight][]byte, x uint64) {
	for i := range line {
		p := (*[texture.GOBWidth]byte)(line[i][x:])
		s := (*[gobRow]byte)(g[(i&6)<<5|(i&1)<<4:])
		*(*[sector]byte)(p[0:]) = *(*[sector]byte)(s[0:])
		*(*[sector]byte)(p[16:]) = *(*[sector]byte)(s[32:])
		*(*[sector]byte)(p[32:]) = *(*[sector]byte)(s[256:])
		*(*[sector]byte)(p[48:]) = *(*[sector]byte)(s[288:])
	}
}

// gobRow is how far the four sectors of a line spread in a GOB.
const gobRow = 288 + sector
