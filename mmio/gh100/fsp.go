package gh100

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/mmio"
)

// fspBooted in NV_THERM_I2CS_SCRATCH says that FSP takes messages.
const fspBooted = 0xff

// EMEM is the memory through which messages go.
const (
	ememSize     = 4096
	ememOffset   = ememSize - 4
	ememIncWrite = 1 << 24
	ememIncRead  = 1 << 25
)

var fspBlock = mmio.Block{
	Name:   "PFSP",
	Source: "NVIDIA dev_fsp_pri.h",
	Regs: []mmio.Reg{
		{Name: "NV_PFSP_EMEMC", Offset: 0x8f2ac0, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "OFFSET", Hi: 15, Lo: 2}, {Name: "AINCW", Hi: 24, Lo: 24}, {Name: "AINCR", Hi: 25, Lo: 25},
		}},
		{Name: "NV_PFSP_EMEMD", Offset: 0x8f2ac4, Effect: "reads or writes the word of EMEM at EMEMC"},
		{Name: "NV_PFSP_QUEUE_HEAD", Offset: 0x8f2c00, Effect: "FSP takes the message that ends at QUEUE_TAIL"},
		{Name: "NV_PFSP_QUEUE_TAIL", Offset: 0x8f2c04},
		{Name: "NV_PFSP_MSGQ_HEAD", Offset: 0x8f2c80},
		{Name: "NV_PFSP_MSGQ_TAIL", Offset: 0x8f2c84},
	},
}

// The message that starts GSP, and its answer. Offsets are in bytes; all fields are of 32 bits but
// cotParams, which has 64.
const (
	mctpWhole  = 0xc0000000 // the message is one packet
	nvdmVendor = 0x10de << 8
	nvdmType   = 0x7e
	nvdmCOT    = 0x14 // chain of trust: boot GSP
	nvdmAnswer = 0x15

	cotHeader  = 8
	cotVersion = 1
	cotSize    = 860
	cotParams  = cotHeader + cotSize - 8 // address of GSP_FMC_BOOT_PARAMS

	errorMessage = 1 // FSP's code for a message that it does not know
)

// fsp is the processor that guards the boot. It verifies nothing: no firmware runs here.
type fsp struct {
	FSPState
	boot func(params uint64) // starts GSP

	port                               mmio.Cell
	head, tail, answerHead, answerTail mmio.Cell
}

// FSPState is what the rows do not hold.
type FSPState struct {
	EMEM [ememSize]byte `json:"emem"`
}

func (f *fsp) bind(b *mmio.Bindings) {
	b.On("NV_PFSP_EMEMD", mmio.Hooks{
		Read: func(int, uint32) uint32 {
			v := binary.LittleEndian.Uint32(f.EMEM[f.port.Get()&ememOffset:])
			f.advance(ememIncRead)
			return v
		},
		Write: func(_ int, w mmio.Write) {
			binary.LittleEndian.PutUint32(f.EMEM[f.port.Get()&ememOffset:], w.New)
			f.advance(ememIncWrite)
		},
	})
	b.OnWrite("NV_PFSP_QUEUE_HEAD", func(_ int, w mmio.Write) { f.handleMessage(w.New) })
}

func (f *fsp) attach(s *mmio.Space) {
	f.port = s.Cell("NV_PFSP_EMEMC", 0)
	f.head, f.tail = s.Cell("NV_PFSP_QUEUE_HEAD", 0), s.Cell("NV_PFSP_QUEUE_TAIL", 0)
	f.answerHead, f.answerTail = s.Cell("NV_PFSP_MSGQ_HEAD", 0), s.Cell("NV_PFSP_MSGQ_TAIL", 0)
}

func (f *fsp) advance(bit uint32) {
	if port := f.port.Get(); port&bit != 0 {
		f.port.Put(port&^ememOffset | (port+4)&ememOffset)
	}
}

// handleMessage handles the message from head to the word at tail, and answers it at once. A head that equals the
// tail submits nothing.
func (f *fsp) handleMessage(head uint32) {
	tail := f.tail.Get()
	if head == tail {
		return
	}
	f.head.Put(tail) // the queue is empty
	code, kind := uint32(errorMessage), uint32(0)
	if head%4 == 0 && tail%4 == 0 && head < tail && tail <= ememOffset {
		m := f.EMEM[head : tail+4]
		kind = nvdmKind(m)
		if params, ok := cot(m); ok {
			code = 0
			f.boot(params)
		}
	}
	for i, w := range []uint32{mctpWhole, nvdmAnswer<<24 | nvdmVendor | nvdmType, 0, kind, code} {
		binary.LittleEndian.PutUint32(f.EMEM[4*i:], w)
		f.answerTail.Put(uint32(4 * i))
	}
	f.answerHead.Put(0)
}

// nvdmKind is the type of a message, 0 if it has none.
func nvdmKind(m []byte) uint32 {
	if len(m) < cotHeader {
		return 0
	}
	return binary.LittleEndian.Uint32(m[4:]) >> 24
}

// cot returns the address of the boot's parameters in a message that starts GSP.
func cot(m []byte) (params uint64, ok bool) {
	le := binary.LittleEndian
	switch {
	case len(m) != cotHeader+cotSize, le.Uint32(m) != mctpWhole, le.Uint32(m[4:]) != nvdmCOT<<24|nvdmVendor|nvdmType:
		return 0, false
	case le.Uint16(m[8:]) != cotVersion || le.Uint16(m[10:]) != cotSize:
		return 0, false
	}
	return le.Uint64(m[cotParams:]), true
}
