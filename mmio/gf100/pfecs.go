package gf100

import "github.com/umbra-gpu/umbra/mmio"

// MaxGPCs and MaxTPCs are the chip's design limits: graphics processing clusters, and
// texture/processor clusters in each.
const (
	MaxGPCs = 4
	MaxTPCs = 4

	gpcStride = 0x8000
	tpcStride = 0x0800
)

var gpcs = mmio.Dim{Count: MaxGPCs, Stride: gpcStride}

// FECS switches the contexts of PGRAPH, with one GPCCS in each GPC to help it.
var (
	fecsView = falconView{
		prefix: "NV_PGRAPH_PRI_FECS", base: 0x409000,
		spec: falconSpec{hwcfg: 0x4040, hwcfg1: 0x3303},
	}
	gpccsView = falconView{
		prefix: "NV_PGRAPH_PRI_GPC_GPCCS", base: 0x502000, rep: []mmio.Dim{gpcs},
		spec: falconSpec{hwcfg: 0x2020, hwcfg1: 0x3303},
	}
	gpccsBroadcast = falconView{
		prefix: "NV_PGRAPH_PRI_GPCS_GPCCS", base: 0x41a000,
		spec: gpccsView.spec,
	}
)

const (
	mailboxes = 8

	contextSize = 0x2000 // bytes of a graphics context image

	ctxValid = 1 << 31 // CURRENT_CTX, NEW_CTX: the instance block in bits 27:0 is one
	ctxInst  = 1<<28 - 1

	fecsReady      = 1 << 31 // mailbox 0: started, or command done
	fecsIntrSwitch = 1 << 8  // IRQSSET: PFIFO asks for a context switch
	fecsBind       = 1       // command: make a channel current
)

var pfecs = mmio.Block{
	Name:   "PGRAPH_FECS",
	Source: "envytools rnndb/graph/gf100_pgraph/ctxctl.xml, rnndb/falcon.xml",
	Regs: append(fecsView.regs(), []mmio.Reg{
		stub("NV_PGRAPH_PRI_FECS_SIGNAL", 0x409400),
		{Name: "NV_PGRAPH_PRI_FECS_METHOD_DATA", Offset: 0x409500},
		{Name: "NV_PGRAPH_PRI_FECS_METHOD_PUSH", Barrier: mmio.BarrierWrite, Offset: 0x409504, Effect: "gives FECS a command; its argument is in 409500"},
		{Name: "NV_PGRAPH_PRI_FECS_CFG", Offset: 0x409604, Access: mmio.RO, Effect: "reads the number of GPCs and, in bits 20:16, of ROP units"},
		{Name: "NV_PGRAPH_PRI_FECS_CTXSW_RESET_CTL", Offset: 0x409614, Stub: true},
		{Name: "NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX", Offset: 0x409800, Rep: []mmio.Dim{{Count: mailboxes, Stride: 4}}},
		{Name: "NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX_SET", Offset: 0x409820, Rep: []mmio.Dim{{Count: mailboxes, Stride: 4}}, Access: mmio.WO,
			Effect: "sets bits of the mailbox"},
		{Name: "NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX_CLEAR", Offset: 0x409840, Rep: []mmio.Dim{{Count: mailboxes, Stride: 4}}, Access: mmio.WO,
			Effect: "clears bits of the mailbox"},
		{Name: "NV_PGRAPH_PRI_FECS_CURRENT_CTX", Offset: 0x409b00},
		{Name: "NV_PGRAPH_PRI_FECS_NEW_CTX", Offset: 0x409b04},
		{Name: "NV_PGRAPH_PRI_FECS_HOST_INT_STATUS", Offset: 0x409c18, Access: mmio.RO},
		stub("NV_PGRAPH_PRI_FECS_HOST_INT_SET", 0x409c1c),
		stub("NV_PGRAPH_PRI_FECS_HOST_INT_CLEAR", 0x409c20),
		stub("NV_PGRAPH_PRI_FECS_HOST_INT_ENABLE", 0x409c24),
	}...),
}

var pgpccs = mmio.Block{
	Name:   "PGRAPH_GPCCS",
	Source: "envytools rnndb/graph/gf100_pgraph/ctxctl.xml, rnndb/falcon.xml",
	Regs: append(append(gpccsBroadcast.regs(), gpccsView.regs()...), []mmio.Reg{
		stubs("NV_PGRAPH_PRI_GPCS_GPCCS_CTXSW_MAILBOX", 0x41a800, mailboxes, 4),
		perGPC("NV_PGRAPH_PRI_GPC_GPCCS_SIGNAL", 0x502400),
		{Name: "NV_PGRAPH_PRI_GPC_GPCCS_CTXSW_MAILBOX", Offset: 0x502800, Rep: []mmio.Dim{gpcs, {Count: mailboxes, Stride: 4}}, Stub: true},
		{Name: "NV_PGRAPH_PRI_GPC_TRAP", Offset: 0x502c90, Rep: []mmio.Dim{gpcs}, Access: mmio.W1C},
		perGPC("NV_PGRAPH_PRI_GPC_TRAP_EN", 0x502c94),
		{Name: "NV_PGRAPH_PRI_GPC_GPCCS_CFG", Offset: 0x502608, Rep: []mmio.Dim{gpcs}, Access: mmio.RO, Effect: "reads the number of TPCs"},
	}...),
}

// fecsUnit answers as nouveau's context switching microcode does.
type fecsUnit struct {
	*falcon
	gpccs []*falcon

	mailbox               [mailboxes]mmio.Cell
	data, cur, newContext mmio.Cell
}

func newFECS(gpcs int) *fecsUnit {
	u := &fecsUnit{falcon: newFalcon(fecsView.spec)}
	for range gpcs {
		u.gpccs = append(u.gpccs, newFalcon(gpccsView.spec))
	}
	u.started, u.raised = u.boot, u.interrupt
	return u
}

func (u *fecsUnit) bind(b *mmio.Bindings) {
	fecsView.bind(b, []*falcon{u.falcon})
	gpccsView.bind(b, u.gpccs)
	gpccsBroadcast.bind(b, u.gpccs)
	b.OnWrite("NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX_SET", func(i int, w mmio.Write) { u.mailbox[i].Set(w.Data) })
	b.OnWrite("NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX_CLEAR", func(i int, w mmio.Write) { u.mailbox[i].Clear(w.Data) })
	b.OnWrite("NV_PGRAPH_PRI_FECS_METHOD_PUSH", func(_ int, w mmio.Write) {
		if u.Running {
			u.command(w.New, u.data.Get())
		}
	})
}

func (u *fecsUnit) attach(s *mmio.Space) {
	for i := range u.mailbox {
		u.mailbox[i] = s.Cell("NV_PGRAPH_PRI_FECS_CTXSW_MAILBOX", i)
	}
	u.data = s.Cell("NV_PGRAPH_PRI_FECS_METHOD_DATA", 0)
	u.cur = s.Cell("NV_PGRAPH_PRI_FECS_CURRENT_CTX", 0)
	u.newContext = s.Cell("NV_PGRAPH_PRI_FECS_NEW_CTX", 0)
}

// stop is a reset by PMC: no microcode runs, no channel is current.
func (u *fecsUnit) stop() {
	u.falcon.reset()
	for _, f := range u.gpccs {
		f.reset()
	}
	for i := range u.mailbox {
		u.mailbox[i].Put(0)
	}
	u.cur.Put(0)
	u.newContext.Put(0)
}

// boot is FECS's start: it reports that it is ready, and the size of a context.
func (u *fecsUnit) boot() {
	u.mailbox[1].Put(contextSize)
	u.mailbox[0].Set(fecsReady)
}

func (u *fecsUnit) command(cmd, data uint32) {
	if cmd != fecsBind {
		return
	}
	u.cur.Put(data)
	u.newContext.Put(data)
	u.mailbox[0].Set(fecsReady)
}

// interrupt does the context switch that PFIFO, or a driver in its place, asks for.
func (u *fecsUnit) interrupt(bits uint32) {
	if bits&fecsIntrSwitch != 0 {
		u.cur.Put(u.newContext.Get())
	}
}
