package gf100

import (
	"encoding/binary"
	"slices"

	"github.com/umbra-gpu/umbra/mmio"
)

// A falcon is the microcontroller inside PMU, FECS, GPCCS and the copy engines. Its code is
// not executed: each unit answers its mailboxes as the drivers' microcode would. This type
// has the host's view of the controller: code and data memory with their ports, start and
// halt, and the interrupt registers.
type falcon struct {
	FalconState

	// started, raised and cleared are the unit's own answers; nil means none.
	started func()
	raised  func(bits uint32)
	cleared func(bits uint32) // pending bits that the host acknowledged
}

// FalconState is one controller's state.
type FalconState struct {
	Code     []byte              `json:"code"`
	Data     []byte              `json:"data"`
	Tags     []uint32            `json:"tags"` // per 256-byte page of code: virtual page, and tagValid
	CodePort [falconPorts]uint32 `json:"code_port"`
	DataPort [falconPorts]uint32 `json:"data_port"`
	Status   uint32              `json:"status"`
	Mask     uint32              `json:"mask"`
	Route    uint32              `json:"route"`
	BootVec  uint32              `json:"boot_vector"`
	Running  bool                `json:"running"`
}

const (
	falconPorts = 4
	falconPage  = 256
	tagValid    = 1 << 31
	tagPage     = 0xffff

	portAddr      = 0xfffc // bits of IMEMC and DMEMC that are the byte address
	portIncWrite  = 1 << 24
	portIncRead   = 1 << 25
	portSecure    = 1 << 28
	portWritable  = portAddr | portIncWrite | portIncRead | portSecure
	cpuStart      = 1 << 1
	cpuHalted     = 1 << 4
	cpuSleeping   = 1 << 5
	bootvecBits   = 0xffffff
	falconIntrAll = 0xffff
)

// falconSpec is one controller's size: the values of its HWCFG and HWCFG1 registers.
type falconSpec struct {
	hwcfg, hwcfg1 uint32
}

func (s falconSpec) codeSize() int { return int(s.hwcfg&0x1ff) << 8 }
func (s falconSpec) dataSize() int { return int(s.hwcfg>>9&0x1ff) << 8 }

func newFalcon(s falconSpec) *falcon {
	return &falcon{FalconState: FalconState{
		Code: make([]byte, s.codeSize()),
		Data: make([]byte, s.dataSize()),
		Tags: make([]uint32, s.codeSize()/falconPage),
	}}
}

// reset stops the controller. Its memories keep what they hold, as they do when
// PMC resets the unit.
func (f *falcon) reset() {
	f.FalconState = FalconState{Code: f.Code, Data: f.Data, Tags: f.Tags}
}

// power is the state after power-on: reset, and empty memories.
func (f *falcon) power() {
	f.reset()
	clear(f.Code)
	clear(f.Data)
	clear(f.Tags)
}

// hostIntr reports whether the controller asks PMC for an interrupt: an enabled
// bit that IRQDEST routes to the host.
func (f *falcon) hostIntr() bool { return f.Status&f.Mask&f.Route&^(f.Route>>16) != 0 }

// start runs the code at the boot vector, if a page of code was uploaded there.
func (f *falcon) start() {
	if f.Running || !f.mapped(f.BootVec) {
		return
	}
	f.Running = true
	if f.started != nil {
		f.started()
	}
}

func (f *falcon) mapped(addr uint32) bool { return slices.Contains(f.Tags, addr/falconPage|tagValid) }

func (f *falcon) cpuctl() uint32 {
	if f.Running {
		return cpuSleeping
	}
	return cpuHalted
}

func load(mem []byte, addr uint32) uint32 {
	if int(addr)+4 > len(mem) {
		return 0
	}
	return binary.LittleEndian.Uint32(mem[addr:])
}

func store(mem []byte, addr, v uint32) {
	if int(addr)+4 <= len(mem) {
		binary.LittleEndian.PutUint32(mem[addr:], v)
	}
}

func readPort(mem []byte, port *uint32) uint32 {
	v := load(mem, *port&portAddr)
	if *port&portIncRead != 0 {
		advance(port)
	}
	return v
}

func writePort(mem []byte, port *uint32, v uint32) {
	store(mem, *port&portAddr, v)
	if *port&portIncWrite != 0 {
		advance(port)
	}
}

func advance(port *uint32) { *port = *port&^portAddr | (*port+4)&portAddr }

func (f *falcon) setTag(port uint32, v uint32) {
	if page := int(port&portAddr) / falconPage; page < len(f.Tags) {
		f.Tags[page] = v&tagPage | tagValid
	}
}

func (f *falcon) raise(bits uint32) {
	f.Status |= bits & falconIntrAll
	if f.raised != nil && f.Running {
		f.raised(bits)
	}
}

func (f *falcon) acknowledge(bits uint32) {
	bits &= f.Status
	f.Status &^= bits
	if f.cleared != nil && bits != 0 {
		f.cleared(bits)
	}
}

// falconRow is a register of the controller with its behaviour. i is the port
// of a row that repeats per port. write sees what the guest wrote.
type falconRow struct {
	reg   mmio.Reg // Offset relative to the controller
	read  func(f *falcon, i int, v uint32) uint32
	write func(f *falcon, i int, w mmio.Write)
}

var imemPorts = []mmio.Dim{{Count: falconPorts, Stride: 0x10}}
var dmemPorts = []mmio.Dim{{Count: falconPorts, Stride: 8}}

// falconRows are the controller's registers. Offsets: envytools rnndb
// falcon.xml; names: NVIDIA's (NV_PFALCON_FALCON_x).
var falconRows = []falconRow{
	{reg: mmio.Reg{Name: "IRQSSET", Offset: 0x000, Access: mmio.WO, Effect: "raises interrupts"},
		write: func(f *falcon, _ int, w mmio.Write) { f.raise(w.Data) }},
	{reg: mmio.Reg{Name: "IRQSCLR", Barrier: mmio.BarrierWrite, Offset: 0x004, Access: mmio.WO, Effect: "acknowledges interrupts"},
		write: func(f *falcon, _ int, w mmio.Write) { f.acknowledge(w.Data) }},
	{reg: mmio.Reg{Name: "IRQSTAT", Offset: 0x008, Access: mmio.RO, Effect: "reads pending interrupts"},
		read: func(f *falcon, _ int, _ uint32) uint32 { return f.Status }},
	{reg: mmio.Reg{Name: "IRQMODE", Offset: 0x00c, Stub: true}},
	{reg: mmio.Reg{Name: "IRQMSET", Offset: 0x010, Access: mmio.WO, Effect: "enables interrupts"},
		write: func(f *falcon, _ int, w mmio.Write) { f.Mask |= w.Data & falconIntrAll }},
	{reg: mmio.Reg{Name: "IRQMCLR", Offset: 0x014, Access: mmio.WO, Effect: "disables interrupts"},
		write: func(f *falcon, _ int, w mmio.Write) { f.Mask &^= w.Data }},
	{reg: mmio.Reg{Name: "IRQMASK", Offset: 0x018, Access: mmio.RO, Effect: "reads enabled interrupts"},
		read: func(f *falcon, _ int, _ uint32) uint32 { return f.Mask }},
	{reg: mmio.Reg{Name: "IRQDEST", Offset: 0x01c, Effect: "bits 15:0 route an interrupt out of the controller, bits 31:16 away from the host"},
		read:  func(f *falcon, _ int, _ uint32) uint32 { return f.Route },
		write: func(f *falcon, _ int, w mmio.Write) { f.Route = w.New }},
	{reg: mmio.Reg{Name: "MAILBOX", Offset: 0x040, Rep: []mmio.Dim{{Count: 2, Stride: 4}}}},
	{reg: mmio.Reg{Name: "ITFEN", Offset: 0x048, Stub: true}},
	{reg: mmio.Reg{Name: "IDLESTATE", Offset: 0x04c, Access: mmio.RO}}, // never busy
	{reg: mmio.Reg{Name: "CURCTX", Offset: 0x050, Access: mmio.RO, Stub: true}},
	{reg: mmio.Reg{Name: "NXTCTX", Offset: 0x054, Access: mmio.RO, Stub: true}},
	{reg: mmio.Reg{Name: "CTXACK", Offset: 0x058, Stub: true}},
	{reg: mmio.Reg{Name: "OS", Offset: 0x080}},
	{reg: mmio.Reg{Name: "RM", Offset: 0x084}},
	{reg: mmio.Reg{Name: "ENGCTL", Offset: 0x0a4, Stub: true}},
	{reg: mmio.Reg{Name: "CPUCTL", Offset: 0x100, Effect: "bit 1 starts the controller; reads bit 4 halted, bit 5 waiting"},
		read: func(f *falcon, _ int, _ uint32) uint32 { return f.cpuctl() },
		write: func(f *falcon, _ int, w mmio.Write) {
			if w.Data&cpuStart != 0 {
				f.start()
			}
		}},
	{reg: mmio.Reg{Name: "BOOTVEC", Offset: 0x104, Effect: "virtual address of the first instruction"},
		read:  func(f *falcon, _ int, _ uint32) uint32 { return f.BootVec },
		write: func(f *falcon, _ int, w mmio.Write) { f.BootVec = w.New & bootvecBits }},
	{reg: mmio.Reg{Name: "HWCFG", Offset: 0x108, Access: mmio.RO}},
	{reg: mmio.Reg{Name: "DMACTL", Offset: 0x10c, Stub: true, Fields: []mmio.Field{
		{Name: "SCRUBBING", Hi: 2, Lo: 1, Access: mmio.RO},
	}}},
	{reg: mmio.Reg{Name: "DMATRFBASE", Offset: 0x110, Stub: true}},
	{reg: mmio.Reg{Name: "DMATRFMOFFS", Offset: 0x114, Stub: true}},
	{reg: mmio.Reg{Name: "DMATRFCMD", Offset: 0x118, Stub: true}},
	{reg: mmio.Reg{Name: "DMATRFFBOFFS", Offset: 0x11c, Stub: true}},
	{reg: mmio.Reg{Name: "DMATRFSTAT", Offset: 0x120, Access: mmio.RO, Stub: true}},
	{reg: mmio.Reg{Name: "UC_STATUS", Offset: 0x128, Access: mmio.RO, Stub: true}},
	{reg: mmio.Reg{Name: "HWCFG1", Offset: 0x12c, Access: mmio.RO}},
	{reg: mmio.Reg{Name: "IMCTL", Offset: 0x140, Stub: true}},
	{reg: mmio.Reg{Name: "IMSTAT", Offset: 0x144, Access: mmio.RO, Stub: true}},
	{reg: mmio.Reg{Name: "UAS_ADDR", Offset: 0x168, Access: mmio.RO}},
	{reg: mmio.Reg{Name: "UAS_STATUS", Offset: 0x16c}},
	{reg: mmio.Reg{Name: "IMEMC", Offset: 0x180, Rep: imemPorts, Effect: "points the code port: byte address, bit 24 step after writes, bit 25 after reads"},
		read:  func(f *falcon, i int, _ uint32) uint32 { return f.CodePort[i] },
		write: func(f *falcon, i int, w mmio.Write) { f.CodePort[i] = w.New & portWritable }},
	{reg: mmio.Reg{Name: "IMEMD", Offset: 0x184, Rep: imemPorts, Effect: "code memory at the port"},
		read:  func(f *falcon, i int, _ uint32) uint32 { return readPort(f.Code, &f.CodePort[i]) },
		write: func(f *falcon, i int, w mmio.Write) { writePort(f.Code, &f.CodePort[i], w.New) }},
	{reg: mmio.Reg{Name: "IMEMT", Offset: 0x188, Rep: imemPorts, Access: mmio.WO, Effect: "maps the port's page at a virtual page"},
		write: func(f *falcon, i int, w mmio.Write) { f.setTag(f.CodePort[i], w.New) }},
	{reg: mmio.Reg{Name: "DMEMC", Offset: 0x1c0, Rep: dmemPorts, Effect: "points the data port: byte address, bit 24 step after writes, bit 25 after reads"},
		read:  func(f *falcon, i int, _ uint32) uint32 { return f.DataPort[i] },
		write: func(f *falcon, i int, w mmio.Write) { f.DataPort[i] = w.New & portWritable }},
	{reg: mmio.Reg{Name: "DMEMD", Offset: 0x1c4, Rep: dmemPorts, Effect: "data memory at the port"},
		read:  func(f *falcon, i int, _ uint32) uint32 { return readPort(f.Data, &f.DataPort[i]) },
		write: func(f *falcon, i int, w mmio.Write) { writePort(f.Data, &f.DataPort[i], w.New) }},
}

// A falconView is a range of the register space with controllers: one, an array of them, or
// a broadcast, whose writes reach all and whose reads return the first one's values.
type falconView struct {
	prefix string
	base   uint32
	rep    []mmio.Dim // nil for one controller or a broadcast
	spec   falconSpec
}

func (v *falconView) regs() []mmio.Reg {
	out := make([]mmio.Reg, 0, len(falconRows))
	for i := range falconRows {
		r := falconRows[i].reg
		r.Name = v.prefix + "_FALCON_" + r.Name
		r.Offset += v.base
		r.Rep = append(append([]mmio.Dim(nil), v.rep...), r.Rep...)
		switch falconRows[i].reg.Name {
		case "HWCFG":
			r.Reset = v.spec.hwcfg
		case "HWCFG1":
			r.Reset = v.spec.hwcfg1
		}
		out = append(out, r)
	}
	return out
}

func (v *falconView) bind(b *mmio.Bindings, fs []*falcon) {
	for i := range falconRows {
		row := &falconRows[i]
		if row.reg.Effect == "" {
			continue
		}
		inner := 1
		for _, d := range row.reg.Rep {
			inner *= d.Count
		}
		var h mmio.Hooks
		if row.read != nil {
			h.Read = func(i int, val uint32) uint32 {
				if i/inner >= len(fs) {
					return 0
				}
				return row.read(fs[i/inner], i%inner, val)
			}
		}
		if row.write != nil {
			h.Write = func(i int, w mmio.Write) {
				for _, f := range v.addressed(fs, i/inner) {
					row.write(f, i%inner, w)
				}
			}
		}
		b.On(v.prefix+"_FALCON_"+row.reg.Name, h)
	}
}

func (v *falconView) addressed(fs []*falcon, unit int) []*falcon {
	if v.rep == nil {
		return fs
	}
	if unit >= len(fs) {
		return nil
	}
	return fs[unit : unit+1]
}
