package gf100

// Line is the state of a function's interrupt.
type Line struct {
	Level    bool // something is pending and enabled
	Edge     bool // the level rose, or a message has to be sent again
	MSI      bool // the driver wants messages, one for each edge; else the pin follows the level
	Disabled bool // the driver has switched the pin off
}

// Pin is the host's view of a function's interrupt. Like a Face it is guarded by its
// owner's lock.
type Pin struct{ reported Line }

// Settle recomputes the interrupt tree, with PFIFO's own level. It returns the line, and
// whether it differs from the one last reported.
func (p *Pin) Settle(f *Face, c *ConfigSpace, fifo bool) (l Line, changed bool) {
	f.SetSource(SourcePFIFO, fifo)
	l.Level, l.Edge = f.Settle()
	l.MSI, l.Disabled = c.MSIEnabled(), c.INTxDisabled()
	if !l.Edge && l == p.reported {
		return l, false
	}
	c.SetINTx(l.Level)
	p.reported = l
	p.reported.Edge = false
	return l, true
}

// Forget makes the next Settle report the line in full, for a new host.
func (p *Pin) Forget() { p.reported = Line{} }
