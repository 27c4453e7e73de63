package nvrm

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Memory is memory that spaces can map: of the card, or of this process.
type Memory struct {
	Handle Handle
	File   File // by which any process maps memory of the card, from offset 0 and as a whole
}

// Bits of NV_MEMORY_ALLOCATION_PARAMS, from nvos.h.
const (
	attrPages4K       = 1 << 23
	attrPages2M       = 3 << 23
	attrScattered     = 3 << 27 // physically in pieces where the card has no other
	attr2Cached       = 1 << 2  // by the card
	attr2Pages2M      = 1 << 20
	flagAlignment     = 0x100
	flagHandle        = 0x4000
	flagNotMapped     = 0x8000
	flagFixed         = 0x10
	flagLazy          = 0x400
	flagVirtual       = 0x80000
	largePage         = 2 << 20
	smallPage         = 4 << 10
	flagIgnoreBanking = 1
)

// NewVRAM takes memory of the card, in whole pages of 2 MiB.
func (c *Client) NewVRAM(size uint64) (*Memory, error) {
	p := nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545{NV_MEMORY_ALLOCATION_PARAMS: nvgpu.NV_MEMORY_ALLOCATION_PARAMS{
		Owner: uint32(c.root), Flags: flagIgnoreBanking | flagAlignment | flagHandle | flagNotMapped,
		Attr: attrPages2M | attrScattered, Attr2: attr2Cached | attr2Pages2M, Size: size, Alignment: largePage,
	}}
	h, err := alloc(c, fmt.Sprintf("take %d MiB of the card's memory", size>>20), c.device, classVRAM, &p)
	if err != nil {
		return nil, err
	}
	m := &Memory{Handle: h}
	if m.File, err = c.mapping(c.device, h, size); err != nil {
		c.Free(m)
		return nil, err
	}
	return m, nil
}

// Register makes memory of this process reachable by the card. It stays where it is until Free.
func (c *Client) Register(mem []byte) (*Memory, error) {
	const inPieces, cached, notMapped = 1 << 4, 1 << 12, 1 << 30
	h := c.newHandle()
	a := nvgpu.IoctlNVOS02ParametersWithFD{FD: -1, Params: nvgpu.NVOS02_PARAMETERS{
		HRoot: handle(c.root), HObjectParent: handle(c.device), HObjectNew: handle(h), HClass: classOSDescriptor,
		Flags: inPieces | cached | notMapped, PMemory: nvgpu.P64(addressOf(mem)), Limit: uint64(len(mem)) - 1,
	}}
	err := check(fmt.Sprintf("register %d KiB of memory", len(mem)>>10), call(c.card, nvgpu.NV_ESC_RM_ALLOC_MEMORY, &a), a.Params.Status)
	if err != nil {
		return nil, err
	}
	return &Memory{Handle: h}, nil
}

// mapping returns a file that maps n bytes of an object of the card.
func (c *Client) mapping(parent, object Handle, n uint64) (File, error) {
	f, err := c.newFile()
	if err != nil {
		return nil, err
	}
	a := nvgpu.IoctlNVOS33ParametersWithFD{FD: int32(f.OS().Fd()), Params: nvgpu.NVOS33_PARAMETERS{
		HClient: handle(c.root), HDevice: handle(parent), HMemory: handle(object), Length: n,
	}}
	err = check("map memory of the card", call(c.ctl, nvgpu.NV_ESC_RM_MAP_MEMORY, &a), a.Params.Status)
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// DoorbellBytes is the size of the page with the doorbell, and DoorbellOffset where it is there.
const (
	DoorbellBytes  = 64 << 10
	DoorbellOffset = 0x90
)

// Doorbell returns a file that maps the card's doorbell.
func (c *Client) Doorbell() (File, error) {
	h, err := alloc(c, "open the doorbell", c.subdevice, classUsermode, &nvgpu.NV_HOPPER_USERMODE_A_PARAMS{})
	if err != nil {
		return nil, err
	}
	return c.mapping(c.subdevice, h, DoorbellBytes)
}

// Free gives memory back. No space may map it.
func (c *Client) Free(m *Memory) error {
	if m.File != nil {
		m.File.Close()
	}
	return c.free("free memory", c.device, m.Handle)
}
