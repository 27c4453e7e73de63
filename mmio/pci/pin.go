package pci

import "github.com/umbra-gpu/umbra/mmio"

// Pin is the host's view of a function's interrupt. It is guarded by its owner's lock.
type Pin struct{ reported mmio.Line }

// Settle returns the line of an interrupt tree, and whether it differs from the one last reported. edge
// says that a message is due.
func (p *Pin) Settle(c *ConfigSpace, level, edge bool) (l mmio.Line, changed bool) {
	l.Level, l.Edge = level, edge
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
func (p *Pin) Forget() { p.reported = mmio.Line{} }
