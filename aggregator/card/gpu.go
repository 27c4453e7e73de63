package card

import "errors"

// GPU is a card with memory, address spaces and channels. It is what the aggregator drives.
// Package driver makes one of a card with [Registers]; a card behind a driver of the host
// is one directly.
//
// All methods may be called from any goroutine. Waits for the card are bounded.
type GPU interface {
	Memory
	DMA

	// FreeBytes is how much VRAM shares can still get.
	FreeBytes() uint64

	// NewShare reserves what one guest needs of the card.
	NewShare(ShareConfig) (Share, error)

	// Preempt makes channels leave the card. It returns false if one took too long.
	Preempt(...Channel) bool
	// Engines is how many engines the card has, at most MaxEngines.
	Engines() int
	// Serving returns who receives the events of the channel that an engine works for, nil
	// if it is idle.
	Serving(Engine) ChannelEvents
	// Poll delivers everything that the card has reported up to now.
	Poll()

	// Meter is nil if the card does not report engine time by channel, Relocator if its
	// pages have one place, and Slices if it leaves the sharing of its engines to a scheduler.
	Meter() Meter
	Relocator() Relocator
	Slices() Slices

	// Culling is zero if the card does not draw.
	Culling() Culling
	// Time is the card's clock in nanoseconds.
	Time() uint64
	Close()
}

// Culling is what the hardware that culls by depth needs of a program.
type Culling struct {
	Words   [10]uint32 // as in NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS, ctrl2080gr.h
	Context uint32     // bytes in which a channel's part of it is saved when the channel leaves the engine
}

// Memory is a card's VRAM by address. Accesses that do not fit return false and do nothing.
type Memory interface {
	ReadVRAM(addr uint64, p []byte) bool
	WriteVRAM(addr uint64, p []byte) bool
	// SameVRAM reports whether the bytes at addr are p, without a copy.
	SameVRAM(addr uint64, p []byte) bool
	// ScrubVRAM makes n bytes at addr zero; both are multiples of 4 KiB.
	ScrubVRAM(addr, n uint64) error
}

// Run is a range of VRAM, in whole pages. What an address means is the card's business, up to 58 bits: one
// whose memory is objects has the object in the upper bits.
type Run struct{ Addr, Size uint64 }

// MaxShares is the most guests that a card tells apart.
const MaxShares = 32

// ShareConfig is what one guest needs of a card.
type ShareConfig struct {
	Number     int    // of the guest in the card's accounts
	Class      uint16 // of its channels: what rings and commands mean
	Channels   int    // most channels at a time
	Guaranteed int    // channels that no other guest can take
	Tables     uint64 // bytes of memory for page tables
}

// ErrChannels says that a guest has all the channels that it may have, or that the card has no more.
var ErrChannels = errors.New("no channel left")

// Share is one guest's part of a GPU: memory, address spaces and channels.
type Share interface {
	// AllocVRAM returns scrubbed runs of size bytes in total, which each begin at a multiple
	// of align: one run if the card has one, else several. Close frees them.
	AllocVRAM(size, align uint64) ([]Run, error)
	// NewSpace makes an empty address space.
	NewSpace() (Space, error)
	// NewChannel makes a channel that is stopped, and cannot run before the next Commit.
	// Its events go to ev.
	NewChannel(ChannelConfig, ChannelEvents) (Channel, error)
	// Commit lets the card run the new channels that are enabled. It returns false if that
	// took too long.
	Commit() bool
	// Invalidate makes the card drop its translations of the spaces, which may be none. It returns
	// when every access that was under way has ended, or false if that took too long.
	Invalidate(spaces ...Space) bool
	// Memory is the VRAM that the share has for page tables and channels, and Tables the part that page
	// tables may take at the moment. A card without such memory returns none.
	Memory() []Run
	Tables() []Run
	// Close frees the share and its memory. Its channels and spaces must have been freed, unless it is
	// lost: then the card may still use the memory, which is not given to anybody else.
	Close(lost bool)
}

// Ring describes a channel's GPFIFO as its driver does.
type Ring struct {
	Base uint64 // GPU address
	Log2 uint32 // of the number of entries
}

// Progress is what a channel reports to its driver.
type Progress struct {
	Get, TopLevelGet uint64
	Ref, GPGet       uint32
}

// State is the part of a channel that stays while the channel is off the card. Token names what the card has saved besides; it is opaque.
type State struct {
	GPGet, Ref uint32
	Token      uint64
}

// ChannelConfig describes a channel.
type ChannelConfig struct {
	Space    Space  // of the same Share
	Limit    uint64 // last address of the space
	Engine   Engine // that it works on, for a card whose channels have one; else NoEngine
	Ring     Ring
	State    State
	Progress Progress
	Put      uint32 // GP_PUT; entries up to there run as soon as the channel does
	Prefer   uint32 // the number to take if it is free: saved state belongs to a number
	// Privileged channels reach pages that are only for drivers, on a card whose channels differ so.
	Privileged bool
}

// Channel is a channel of a card.
type Channel interface {
	// ID is the card's number of the channel. It is reused after Free.
	ID() uint32
	// USERD is the VRAM that the card writes for the channel itself. It may be empty.
	USERD() Run
	// Enable lets the channel run, and Disable stops it between two steps.
	Enable()
	Disable()
	// Doorbell submits entries of the ring up to put.
	Doorbell(put uint32)
	// Running reports whether the channel is on the card.
	Running() bool
	// Quiet reports whether the channel has nothing left to do until its next doorbell.
	Quiet() bool
	Progress() Progress
	// State is valid while the channel is not Running.
	State() State
	// Stop makes a disabled channel leave the card for good. With wait it waits until the
	// channel has left. inTime is false if that took too long.
	Stop(wait bool) (left, inTime bool)
	// Unbind takes a channel out of the card's tables that is not Running.
	Unbind()
	// Free gives its memory and its number back. Unless the channel was never enabled or
	// others still use its space, the card must have completed an invalidate of that
	// since Unbind.
	Free()
}

// ChannelEvents receives what the card reports about a channel. The calls come from one
// goroutine of the card or from Poll. They must not block, nor call the card, except for
// Disable, Quiet and Doorbell of channels.
type ChannelEvents interface {
	// Completed reports that engines have completed work that the channel announced.
	Completed(EngineSet)
	// Fault reports why the card stopped the channel.
	Fault(Fault)
}

// Relocator is a card whose pages of VRAM can have their bytes elsewhere.
type Relocator interface {
	// Relocate gives pages of VRAM another place for their bytes, from the first page on,
	// and returns how many bytes were moved. Channels that use the pages must be quiesced,
	// and nobody else may use them.
	Relocate(Relocation) (done uint64, err error)
	// QuiesceChannels runs do while the channels, by their numbers in ascending order, are between
	// two steps: they read and write no memory meanwhile. Other channels go on.
	QuiesceChannels(ids []uint32, do func())
	// MaxMappings is in how many pieces the memory may be: each piece of pages that are
	// together in one place takes a mapping of the process.
	MaxMappings() int
}

// Registers is a card with registers and VRAM, which package driver makes a [GPU] of. A
// 32-bit access that nothing answers reads as ones.
type Registers interface {
	Memory
	DMA
	VRAMSize() uint64
	Read32(bar int, off uint64) uint32
	Write32(bar int, off uint64, v uint32)
	// AttachHost plugs the card into a host, which gets its interrupt. Without a host, or
	// with nil, its channels rest.
	AttachHost(Host)
	DetachHost()
	// TakeEvents appends the channels' non-stall events since the last call to events.
	TakeEvents(events []ChannelEvent) []ChannelEvent
	// ProgramReport says what the program in the channel's last trap or fault did wrong: where, and
	// at which instruction. It is "" if there was no program.
	ProgramReport(channel uint32) string
	Reset() error
}

// ChannelEvent is the non-stall events of a channel; bit n is engine n by the registers. Broken is not empty if the card itself failed
// at work for the channel.
type ChannelEvent struct {
	Channel uint32
	Engines uint32
	Broken  string
}
