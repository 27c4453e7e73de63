package engine

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

// run moves bytes until the copy is complete, the budget is spent or an access
// faults. It reports the destination bytes it wrote.
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
	n := min(c.Lines*c.Length-from, Budget)
	moved, fault := copyRun(env, c.Dst.VA+from, c.Src.VA+from, n)
	c.Row, c.X = (from+moved)/c.Length, (from+moved)%c.Length
	return moved, fault
}

// lineCost is what a short line counts against the budget, so that a copy of
// very many very short lines is still divided into steps of bounded time.
const lineCost = 256

// rows copies line by line.
func (c *Copy) rows(env *Env) (moved uint64, fault *Fault) {
	for left := int64(Budget); left > 0 && c.Row < c.Lines; {
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

// copyRun copies n bytes that lie together on both sides and reports how many
// it copied before it met a fault.
func copyRun(env *Env, dst, src, n uint64) (uint64, *Fault) {
	var from, to []byte
	var fault *Fault
	for done := uint64(0); ; {
		if len(from) == 0 {
			if from, fault = env.fetch(src+done, n-done, false); fault != nil {
				return done, fault
			}
		}
		if len(to) == 0 {
			if to, fault = env.fetch(dst+done, n-done, true); fault != nil {
				return done, fault
			}
		}
		k := copy(to, from)
		from, to = from[k:], to[k:]
		if done += uint64(k); done >= n {
			return done, nil
		}
	}
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

// cells copies to or from a block-linear surface, one cell (the part of a GOB
// that the copy covers) after the other, so that each GOB is looked up once.
func (c *Copy) cells(env *Env) (moved uint64, fault *Fault) {
	src := side{Surface: &c.Src}
	dst := side{Surface: &c.Dst, write: true}
	grid := &c.Dst
	if grid.Layout == LayoutPitch {
		grid = &c.Src
	}
	width, height := grid.cell()
	for left := int64(Budget); left > 0 && c.Row < c.Lines; {
		w := min(width-(grid.X+c.X)%width, c.Length-c.X)
		h := min(height-(grid.Y+c.Row)%height, c.Lines-c.Row)
		if fault := c.cell(env, &src, &dst, w, h); fault != nil {
			return moved, fault
		}
		moved += w * h
		if c.X += w; c.X == c.Length {
			c.X, c.Row = 0, c.Row+h
		}
		left -= int64(max(w*h, lineCost))
	}
	return moved, nil
}

// cell copies w by h bytes at X, Row.
func (c *Copy) cell(env *Env, src, dst *side, w, h uint64) *Fault {
	if w == gobWidth && h == gobHeight {
		if done, fault := c.gob(env, src, dst); done || fault != nil {
			return fault
		}
	}
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

// gob copies a whole GOB at X, Row if it lies together and its lines do, and
// reports whether it did.
func (c *Copy) gob(env *Env, src, dst *side) (bool, *Fault) {
	switch {
	case src.Layout == LayoutPitch && dst.Layout == LayoutGOB:
		return c.gobLines(env, dst, src)
	case src.Layout == LayoutGOB && dst.Layout == LayoutPitch:
		return c.gobLines(env, src, dst)
	case src.Layout == LayoutGOB && dst.Layout == LayoutGOB && (src.X+c.X)%gobWidth == 0 && (src.Y+c.Row)%gobHeight == 0:
		from, fault := src.get(env, c.X, c.Row)
		if fault != nil {
			return false, fault
		}
		to, fault := dst.get(env, c.X, c.Row)
		if fault != nil {
			return false, fault
		}
		if len(from) < gobBytes || len(to) < gobBytes {
			return false, nil
		}
		copy(to[:gobBytes], from)
		return true, nil
	}
	return false, nil
}

// gobLines moves the 32 sectors between a GOB and eight pieces of line, in the
// direction that the sides say.
func (c *Copy) gobLines(env *Env, tiled, lines *side) (bool, *Fault) {
	gob, fault := tiled.get(env, c.X, c.Row)
	if fault != nil {
		return false, fault
	}
	if len(gob) < gobBytes {
		return false, nil
	}
	var line [gobHeight][]byte
	for i := range line {
		l, fault := lines.get(env, c.X, c.Row+uint64(i))
		if fault != nil {
			return false, fault
		}
		if len(l) < gobWidth {
			return false, nil
		}
		line[i] = l
	}
	for i, l := range line {
		at := uint64(i)&6<<5 | uint64(i)&1<<4
		g := (*[288 + sector]byte)(gob[at:])
		p := (*[gobWidth]byte)(l)
		if tiled.write {
			*(*[sector]byte)(g[0:]) = *(*[sector]byte)(p[0:])
			*(*[sector]byte)(g[32:]) = *(*[sector]byte)(p[16:])
			*(*[sector]byte)(g[256:]) = *(*[sector]byte)(p[32:])
			*(*[sector]byte)(g[288:]) = *(*[sector]byte)(p[48:])
		} else {
			*(*[sector]byte)(p[0:]) = *(*[sector]byte)(g[0:])
			*(*[sector]byte)(p[16:]) = *(*[sector]byte)(g[32:])
			*(*[sector]byte)(p[32:]) = *(*[sector]byte)(g[256:])
			*(*[sector]byte)(p[48:]) = *(*[sector]byte)(g[288:])
		}
	}
	return true, nil
}
