package gf100

import "github.com/umbra-gpu/umbra/mmio"

// CEs is how many copy engines the chip has.
const CEs = 2

// pceView shows both copy engines' controllers. Their microcode is nouveau's
// own and is uploaded into the controller's memory; the owner of the
// engines executes a channel's methods.
var pceView = falconView{
	prefix: "NV_PCE", base: 0x104000, rep: []mmio.Dim{{Count: CEs, Stride: 0x1000}},
	spec: falconSpec{hwcfg: 0x4020, hwcfg1: 3},
}

var pce = mmio.Block{
	Name:   "PCE",
	Source: "envytools rnndb/fifo/pcopy.xml, rnndb/falcon.xml",
	Regs:   pceView.regs(),
}

// What nouveau's microcode sets up when it starts: interrupts 2 and 3 are its
// own, the others go to the host.
const (
	copyDest     = 0xfff3
	copyMask     = 0xffff
	copyDispatch = 1 << 6 // IRQSTAT: a method was refused
	copyContext  = 1 << 30
)

// CopyTrap is a method that a copy engine refuses. The engine waits until the
// host has acknowledged it.
type CopyTrap struct {
	Engine     int    // 0 or 1
	Inst       uint64 // VRAM address of the channel's instance block
	Subchannel uint8
	Method     uint32 // byte offset
	Data       uint32
	Status     uint32 // 1 illegal method, 2 invalid enumeration, 3 invalid bit field
}

type pceUnit struct {
	falcons [CEs]*falcon
	resume  func(engine int)

	mailbox [CEs][2]mmio.Cell
	context [CEs]mmio.Cell
}

func newPCE() *pceUnit {
	u := &pceUnit{}
	for i := range u.falcons {
		f := newFalcon(pceView.spec)
		f.started = func() { f.Route, f.Mask = copyDest, copyMask }
		f.cleared = func(bits uint32) {
			if bits&copyDispatch != 0 && u.resume != nil {
				u.resume(i)
			}
		}
		u.falcons[i] = f
	}
	return u
}

func (u *pceUnit) bind(b *mmio.Bindings) { pceView.bind(b, u.falcons[:]) }

func (u *pceUnit) attach(s *mmio.Space) {
	for i := range u.falcons {
		for n := range u.mailbox[i] {
			u.mailbox[i][n] = s.Cell("NV_PCE_FALCON_MAILBOX", i*len(u.mailbox[i])+n)
		}
		u.context[i] = s.Cell("NV_PCE_FALCON_CURCTX", i)
	}
}

// raise leaves the refused method where the microcode does.
func (u *pceUnit) raise(t CopyTrap) {
	where := uint32(t.Subchannel&7)<<11 | t.Method>>2&0x7ff
	u.mailbox[t.Engine][0].Put(where<<16 | t.Status&0xffff)
	u.mailbox[t.Engine][1].Put(t.Data)
	u.context[t.Engine].Put(copyContext | uint32(t.Inst>>12)&ctxInst)
	u.falcons[t.Engine].raise(copyDispatch)
}
