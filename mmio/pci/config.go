package pci

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/umbra-gpu/umbra/mmio"
)

// VendorID is NVIDIA's.
const VendorID = 0x10de

// class3D is the class of a 3D controller, which is no VGA adapter.
const class3D = 0x030200

// Offsets of the capabilities in configuration space.
const (
	capPM   = 0x60
	capMSI  = 0x68
	capPCIe = 0x78
)

// ConfigSize is the size of the space in bytes.
const ConfigSize = 0x1000

// Chip is what the function of a chip has whatever the options.
type Chip struct {
	Defaults Options
	Revision uint8
	BAR0     uint64     // registers
	BAR5     uint64     // I/O ports; zero is none
	Own      []mmio.Reg // after the capabilities of the standard
}

// Options choose what the PCI function offers. Sizes are in bytes; zero means the chip's default.
type Options struct {
	BAR1  uint64 // VRAM aperture, a power of two, 1 MiB or more
	BAR3  uint64 // instance memory aperture, likewise
	NoMSI bool   // no MSI capability: interrupts are INTx

	Device          uint16 // of VendorID
	SubsystemVendor uint16 // default VendorID
	Subsystem       uint16
}

// ConfigSpace is the configuration space of one function. It is guarded by the lock of its owner's
// space.
type ConfigSpace struct {
	*mmio.Space
	chip Chip
	opts Options
	bars [6]uint64

	command, status, msi mmio.Cell
}

// barRow describes one 32-bit BAR register. BAR registers are numbered as VFIO numbers
// regions; a 64-bit BAR takes two of them.
type barRow struct {
	name string
	low  uint32 // the constant low bits: space, width, prefetchable
	high bool   // upper half of the register before
}

const (
	bar64Prefetch = 0xc
	barIO         = 0x1
)

var barRows = [6]barRow{
	{name: "NV_XVE_BAR0"},
	{name: "NV_XVE_BAR1_LO", low: bar64Prefetch},
	{name: "NV_XVE_BAR1_HI", high: true},
	{name: "NV_XVE_BAR2_LO", low: bar64Prefetch},
	{name: "NV_XVE_BAR2_HI", high: true},
	{name: "NV_XVE_BAR3", low: barIO},
}

// NewConfigSpace builds the configuration space.
func NewConfigSpace(chip Chip, opts Options) (*ConfigSpace, error) {
	opts.BAR1 = cmp.Or(opts.BAR1, chip.Defaults.BAR1)
	opts.BAR3 = cmp.Or(opts.BAR3, chip.Defaults.BAR3)
	opts.Device = cmp.Or(opts.Device, chip.Defaults.Device)
	opts.SubsystemVendor = cmp.Or(opts.SubsystemVendor, VendorID)
	opts.Subsystem = cmp.Or(opts.Subsystem, chip.Defaults.Subsystem)
	c := &ConfigSpace{chip: chip, opts: opts, bars: [6]uint64{0: chip.BAR0, 1: opts.BAR1, 3: opts.BAR3, 5: chip.BAR5}}
	for _, i := range []int{1, 3} {
		if size := c.bars[i]; bits.OnesCount64(size) != 1 || size < 1<<20 {
			return nil, fmt.Errorf("pci: BAR%d of %d bytes: need a power of two, 1 MiB or more", i, size)
		}
	}
	s, err := mmio.New(ConfigSize, []mmio.Block{{
		Name:   "XVE",
		Source: "PCI Local Bus 3.0, PCI Express 2.0; NVIDIA dev_nv_xve3g_fn0.ref; envytools rnndb/bus/pci.xml",
		Regs:   c.rows(),
	}}, nil, nil)
	if err != nil {
		return nil, err
	}
	c.Space = s
	c.command, c.status = s.Cell("NV_XVE_DEV_CTRL", 0), s.Cell("NV_XVE_DEV_STATUS", 0)
	if !opts.NoMSI {
		c.msi = s.Cell("NV_XVE_MSI_CTRL", 0)
	}
	return c, nil
}

func (c *ConfigSpace) rows() []mmio.Reg {
	rows := []mmio.Reg{
		{Name: "NV_XVE_ID", Offset: 0x00, Reset: uint32(c.opts.Device)<<16 | VendorID, Access: mmio.RO},
		{Name: "NV_XVE_DEV_CTRL", Offset: 0x04, Width: 2, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "IO_SPACE", Hi: 0, Lo: 0}, {Name: "MEMORY_SPACE", Hi: 1, Lo: 1}, {Name: "BUS_MASTER", Hi: 2, Lo: 2},
			{Name: "PARITY_ERROR_RESPONSE", Hi: 6, Lo: 6}, {Name: "SERR_ENABLE", Hi: 8, Lo: 8},
			{Name: "INTERRUPT_DISABLE", Hi: 10, Lo: 10},
		}},
		{Name: "NV_XVE_DEV_STATUS", Offset: 0x06, Width: 2, Reset: statusCapList, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "MASTER_DATA_PARITY", Hi: 8, Lo: 8, Access: mmio.W1C},
			{Name: "ERRORS", Hi: 15, Lo: 11, Access: mmio.W1C},
		}},
		{Name: "NV_XVE_REV_ID", Offset: 0x08, Reset: class3D<<8 | uint32(c.chip.Revision), Access: mmio.RO},
		{Name: "NV_XVE_MISC_1", Offset: 0x0c, Access: mmio.RO, Fields: []mmio.Field{{Name: "CACHE_LINE_SIZE", Hi: 7, Lo: 0}}},
		{Name: "NV_XVE_CARDBUS_CIS", Offset: 0x28, Access: mmio.RO},
		{Name: "NV_XVE_SUBSYSTEM", Offset: 0x2c, Reset: uint32(c.opts.Subsystem)<<16 | uint32(c.opts.SubsystemVendor), Access: mmio.RO},
		{Name: "NV_XVE_ROM", Offset: 0x30, Access: mmio.RO}, // no ROM BAR: the ROM is read through PROM
		{Name: "NV_XVE_CAP_LIST", Offset: 0x34, Reset: capPM, Access: mmio.RO},
		{Name: "NV_XVE_RESERVED_38", Offset: 0x38, Access: mmio.RO},
		{Name: "NV_XVE_INTR_GNT", Offset: 0x3c, Reset: 1 << 8, Access: mmio.RO, Fields: []mmio.Field{{Name: "INTR_LINE", Hi: 7, Lo: 0}}},
		{Name: "NV_XVE_SUBSYSTEM_ID_WR", Offset: 0x40, Stub: true},
		{Name: "NV_XVE_RESERVED_44", Offset: 0x44, Rep: []mmio.Dim{{Count: 3, Stride: 4}}, Access: mmio.RO},
		{Name: "NV_XVE_ROM_CTRL", Offset: 0x50, Access: mmio.RO, Stub: true, Fields: []mmio.Field{{Name: "ROM_SHADOW", Hi: 0, Lo: 0}}},
		{Name: "NV_XVE_VGA_ENABLE", Offset: 0x54, Access: mmio.RO},
		{Name: "NV_XVE_RESERVED_58", Offset: 0x58, Access: mmio.RO},
		{Name: "NV_XVE_OVERRIDE", Offset: 0x5c, Access: mmio.RO},
		{Name: "NV_XVE_RESERVED_B4", Offset: 0xb4, Rep: []mmio.Dim{{Count: 19, Stride: 4}}, Access: mmio.RO},
		{Name: "NV_XVE_VCCAP_HDR", Offset: 0x100, Access: mmio.RO}, // no extended capability
	}
	rows = append(rows, c.chip.Own...)
	for i, row := range barRows {
		rows = append(rows, c.barReg(i, row))
	}
	rows = append(rows, pcieRows()...)
	next := uint32(capMSI)
	if c.opts.NoMSI {
		next = capPCIe
		rows = append(rows, mmio.Reg{Name: "NV_XVE_RESERVED_68", Offset: capMSI, Rep: []mmio.Dim{{Count: 4, Stride: 4}}, Access: mmio.RO})
	} else {
		rows = append(rows, msiRows()...)
	}
	return append(rows, pmRows(next)...)
}

const (
	statusIntx    = 1 << 3
	statusCapList = 1 << 4

	commandIntxDisable = 1 << 10

	msiEnable = 1 << 16
)

// barReg returns the row of BAR register i: address bits down to the size can be
// written, those below read as zero or as the BAR's type. That is all that
// sizing needs.
func (c *ConfigSpace) barReg(i int, row barRow) mmio.Reg {
	r := mmio.Reg{Name: row.name, Offset: 0x10 + uint32(i)*4, Reset: row.low, Access: mmio.RO}
	size := c.bars[i]
	if row.high {
		size = c.bars[i-1] >> 32
	}
	switch lo := bits.TrailingZeros64(size); {
	case size == 0 && row.high: // of a BAR below 4 GiB
		r.Access = mmio.RW
	case size == 0: // no BAR
		r.Reset = 0
	case lo < 32:
		r.Fields = []mmio.Field{{Name: "BASE_ADDRESS", Hi: 31, Lo: uint8(lo)}}
	}
	return r
}

func pmRows(next uint32) []mmio.Reg {
	return []mmio.Reg{
		{Name: "NV_XVE_PWR_MGMT_0", Offset: capPM, Reset: 3<<16 | next<<8 | 0x01, Access: mmio.RO},
		{Name: "NV_XVE_PWR_MGMT_1", Offset: capPM + 4, Reset: 1 << 3, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "POWER_STATE", Hi: 1, Lo: 0}, {Name: "NO_SOFT_RESET", Hi: 3, Lo: 3, Access: mmio.RO},
		}},
	}
}

func msiRows() []mmio.Reg {
	return []mmio.Reg{
		{Name: "NV_XVE_MSI_CTRL", Offset: capMSI, Reset: 1<<23 | capPCIe<<8 | 0x05, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "ENABLE", Hi: 16, Lo: 16}, {Name: "MULTIPLE_MESSAGE_ENABLE", Hi: 22, Lo: 20},
		}},
		{Name: "NV_XVE_MSI_LOW_ADDR", Offset: capMSI + 4, Access: mmio.RO, Fields: []mmio.Field{{Name: "ADDR", Hi: 31, Lo: 2}}},
		{Name: "NV_XVE_MSI_UPPER_ADDR", Offset: capMSI + 8},
		{Name: "NV_XVE_MSI_DATA", Offset: capMSI + 12, Access: mmio.RO, Fields: []mmio.Field{{Name: "DATA", Hi: 15, Lo: 0}}},
	}
}

// pcieRows are a PCI Express 2.0 endpoint: 16 lanes of 5 GT/s.
func pcieRows() []mmio.Reg {
	const (
		speed = 2
		width = 16
	)
	return []mmio.Reg{
		{Name: "NV_XVE_PCI_EXPRESS_CAPABILITY", Offset: capPCIe, Reset: 0x0002<<16 | 0x10, Access: mmio.RO},
		{Name: "NV_XVE_DEVICE_CAPABILITY", Offset: capPCIe + 0x04, Reset: 0x000080a1, Access: mmio.RO},
		{Name: "NV_XVE_DEVICE_CONTROL_STATUS", Offset: capPCIe + 0x08, Reset: 0x2810, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "CONTROL", Hi: 14, Lo: 0}, {Name: "ERRORS", Hi: 19, Lo: 16, Access: mmio.W1C},
		}},
		{Name: "NV_XVE_LINK_CAPABILITIES", Offset: capPCIe + 0x0c, Reset: width<<4 | speed, Access: mmio.RO},
		{Name: "NV_XVE_LINK_CONTROL_STATUS", Offset: capPCIe + 0x10, Reset: 1<<28 | (width<<4|speed)<<16, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "CONTROL", Hi: 11, Lo: 0},
		}},
		{Name: "NV_XVE_RESERVED_8C", Offset: capPCIe + 0x14, Rep: []mmio.Dim{{Count: 4, Stride: 4}}, Access: mmio.RO},
		{Name: "NV_XVE_DEVICE_CAPABILITIES_2", Offset: capPCIe + 0x24, Access: mmio.RO},
		{Name: "NV_XVE_DEVICE_CONTROL_STATUS_2", Offset: capPCIe + 0x28, Access: mmio.RO, Fields: []mmio.Field{{Name: "CONTROL", Hi: 4, Lo: 0}}},
		{Name: "NV_XVE_LINK_CAPABILITIES_2", Offset: capPCIe + 0x2c, Access: mmio.RO},
		{Name: "NV_XVE_LINK_CONTROL_STATUS_2", Offset: capPCIe + 0x30, Reset: speed, Access: mmio.RO, Fields: []mmio.Field{{Name: "CONTROL", Hi: 12, Lo: 0}}},
		{Name: "NV_XVE_RESERVED_AC", Offset: capPCIe + 0x34, Rep: []mmio.Dim{{Count: 2, Stride: 4}}, Access: mmio.RO},
	}
}

// MSIEnabled reports whether interrupts are messages.
func (c *ConfigSpace) MSIEnabled() bool { return !c.opts.NoMSI && c.msi.Get()&msiEnable != 0 }

// INTxDisabled reports whether the command register keeps INTA# from being
// asserted.
func (c *ConfigSpace) INTxDisabled() bool { return c.command.Get()&commandIntxDisable != 0 }

// SetINTx shows the state of the function's interrupt in the status register.
func (c *ConfigSpace) SetINTx(pending bool) {
	if pending {
		c.status.Set(statusIntx)
	} else {
		c.status.Clear(statusIntx)
	}
}

// BARSize returns the size in bytes of the BAR that starts at BAR register i (0
// to 5), or zero if none starts there.
func (c *ConfigSpace) BARSize(i int) uint64 {
	if i < 0 || i >= len(c.bars) {
		return 0
	}
	return c.bars[i]
}
