package nvrm

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// The addresses of a space that Map takes. The driver keeps 4 to 4.5 GiB. It puts the contexts of the graphics engine at the
// lowest addresses that are not reserved, which must be below 1 TiB: the engine drops the bits above (seen on an H200). So 16 GiB
// there are left to it.
const (
	LowFirst  = 0x1000
	LowEnd    = 4 << 30
	HighFirst = 4<<30 + 512<<20
	HighEnd   = 1<<57 - 1<<40
	OwnFirst  = 1<<57 - 1<<39 // of what is ours and not the guest's
	OwnEnd    = 1<<57 - 1<<38

	ContextFirst = ContextEnd - 16<<30
	ContextEnd   = 1 << 40
)

// Guest are the ranges of addresses that a guest may use, each from its first address to its end.
var Guest = [...][2]uint64{{LowFirst, LowEnd}, {HighFirst, ContextFirst}, {ContextEnd, HighEnd}}

// unreserved is where what can be reserved begins. Pages before, which are small, are mapped one by one, so
// that each can be unmapped.
const unreserved = 64 << 10

// Space is an address space of the card.
type Space struct {
	Handle Handle
	ranges []reserved
}

// reserved is a range of addresses that is reserved, so that parts of maps can be unmapped.
type reserved struct {
	handle     Handle
	first, end uint64
}

// NewSpace makes an address space that is empty.
func (c *Client) NewSpace() (*Space, error) {
	p := nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS_V580{NV_VASPACE_ALLOCATION_PARAMETERS: nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS{VABase: LowFirst}}
	h, err := alloc(c, "make an address space", c.device, classSpace, &p)
	if err != nil {
		return nil, err
	}
	s := &Space{Handle: h}
	whole, err := alloc(c, "open an address space", c.device, classWhole, &nvgpu.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS{HVASpace: handle(h)})
	if err != nil {
		c.FreeSpace(s)
		return nil, err
	}
	s.ranges = append(s.ranges, reserved{whole, LowFirst, unreserved})
	for _, r := range append(Guest[:], [2]uint64{OwnFirst, OwnEnd}) {
		if err := c.reserve(s, max(r[0], unreserved), r[1]); err != nil {
			c.FreeSpace(s)
			return nil, err
		}
	}
	return s, nil
}

// reserve reserves a range, so that maps there cost less and parts of them can be unmapped.
func (c *Client) reserve(s *Space, first, end uint64) error {
	p := nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545{NV_MEMORY_ALLOCATION_PARAMS: nvgpu.NV_MEMORY_ALLOCATION_PARAMS{
		Owner: uint32(c.root), Flags: flagVirtual | flagFixed | flagLazy | flagHandle | flagNotMapped,
		Attr: attrPages4K, Offset: first, Size: end - first, HVASpace: handle(s.Handle),
	}}
	h, err := alloc(c, fmt.Sprintf("reserve addresses %#x to %#x", first, end), c.device, classRange, &p)
	if err == nil {
		s.ranges = append(s.ranges, reserved{h, first, end})
	}
	return err
}

func (s *Space) rangeOf(va, n uint64) (Handle, bool) {
	for _, r := range s.ranges {
		if va >= r.first && va < r.end && n <= r.end-va {
			return r.handle, true
		}
	}
	return 0, false
}

// Map says how pages are mapped.
type Map struct {
	VA, Offset, Size uint64
	Page             uint64 // 4 KiB, 64 KiB or 2 MiB
	ReadOnly         bool
	Kind             uint8 // of the pages, 0 is the driver's choice
}

// Map maps memory in a space where nothing is mapped. The card may know of it after Invalidate only.
func (c *Client) Map(s *Space, m *Memory, p Map) error {
	for begin := p.VA; p.VA < unreserved && p.Size > smallPage; {
		first := p
		first.Size = smallPage
		if err := c.Map(s, m, first); err != nil {
			return errors.Join(err, c.Unmap(s, m, begin, p.VA-begin))
		}
		p.VA, p.Offset, p.Size = p.VA+smallPage, p.Offset+smallPage, p.Size-smallPage
	}
	const snoop, fixed, kindGiven, deferred = 1 << 4, 1 << 15, 1 << 19, 1 << 31
	dma, ok := s.rangeOf(p.VA, p.Size)
	if !ok {
		return &Error{fmt.Sprintf("map at %#x", p.VA), 0x1e}
	}
	a := nvgpu.NVOS46_PARAMETERS_V580{
		Client: handle(c.root), Device: handle(c.device), Dma: handle(dma), Memory: handle(m.Handle),
		Offset: p.Offset, Length: p.Size, Flags: fixed | deferred, DmaOffset: p.VA,
	}
	if m.File == nil {
		a.Flags |= snoop
	}
	if p.ReadOnly {
		a.Flags |= 1
	}
	if p.Kind != 0 {
		a.Flags, a.KindOverride = a.Flags|kindGiven, uint32(p.Kind)
	}
	switch {
	case p.Page >= largePage:
		a.Flags |= 4 << 8
	case p.Page > smallPage:
		a.Flags |= 2 << 8
	default:
		a.Flags |= 1 << 8
	}
	err := again(StatusNoMemory, crowded, func() error {
		return check(fmt.Sprintf("map %#x bytes at %#x", p.Size, p.VA), call(c.ctl, nvgpu.NV_ESC_RM_MAP_MEMORY_DMA, &a), a.Status)
	})
	if err == nil && a.DmaOffset != p.VA {
		return fmt.Errorf("map at %#x: mapped at %#x", p.VA, a.DmaOffset)
	}
	return err
}

// Unmap unmaps what maps of the memory map in a range. A part of a map may be unmapped, but each time the driver
// keeps another level of descriptions of what is left: with hundreds of levels the host's kernel stops (seen with
// release 580.159.04). So the caller bounds their depth.
func (c *Client) Unmap(s *Space, m *Memory, va, n uint64) error {
	if n == 0 {
		return nil
	}
	for va < unreserved && n > smallPage {
		if err := c.Unmap(s, m, va, smallPage); err != nil {
			return err
		}
		va, n = va+smallPage, n-smallPage
	}
	dma, ok := s.rangeOf(va, n)
	if !ok {
		return &Error{fmt.Sprintf("unmap at %#x", va), 0x1e}
	}
	const deferred = 1
	a := nvgpu.NVOS47_PARAMETERS_V550{
		Client: handle(c.root), Device: handle(c.device), Dma: handle(dma), Memory: handle(m.Handle), Flags: deferred, DmaOffset: va, Size: n,
	}
	return check(fmt.Sprintf("unmap %#x bytes at %#x", n, va), call(c.ctl, nvgpu.NV_ESC_RM_UNMAP_MEMORY_DMA, &a), a.Status)
}

// Invalidate makes the card drop its translations of a space.
func (c *Client) Invalidate(s *Space) error {
	return control(c, "invalidate an address space", c.device, ctrlInvalidate, &invalidateParams{Space: uint32(s.Handle)})
}

// FreeSpace ends a space. No channel may use it.
func (c *Client) FreeSpace(s *Space) error {
	for _, r := range s.ranges {
		if err := c.free("free addresses", c.device, r.handle); err != nil {
			return err
		}
	}
	return c.free("free an address space", c.device, s.Handle)
}
