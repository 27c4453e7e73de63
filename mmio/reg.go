package mmio

import "fmt"

// Access defines how guest reads and writes act on the bits of a field. The set is closed;
// a field has exactly one mode.
type Access uint8

const (
	// RW bits hold what was last written.
	RW Access = iota
	// RO bits do not change by writes; a write that touches only RO bits is
	// counted in Missed.ReadOnly.
	RO
	// WO bits are stored for the effect but read as zero.
	WO
	// W1C bits are cleared by writing one, as in interrupt status registers.
	W1C
	// W1S bits are set by writing one; writing zero changes nothing.
	W1S
	// RC bits are RO and become zero once they have been read; a read of some
	// bytes of the register clears the bits in those bytes only.
	RC

	accessModes = iota
)

var accessNames = [accessModes]string{"RW", "RO", "WO", "W1C", "W1S", "RC"}

// String returns the mode's usual abbreviation.
func (a Access) String() string {
	if int(a) < len(accessNames) {
		return accessNames[a]
	}
	return fmt.Sprintf("Access(%d)", uint8(a))
}

// Field is a run of bits inside a register, Hi and Lo included, with an access
// mode of its own. Bits that no field covers have the register's mode.
type Field struct {
	Name   string
	Hi, Lo uint8
	Access Access
}

// mask relies on a shift by 32 giving 0, which makes Hi 31 come out right.
func (f Field) mask() uint32 { return uint32(1)<<(f.Hi+1) - uint32(1)<<f.Lo }

// Dim repeats a row Count times, Stride bytes apart.
type Dim struct {
	Count  int
	Stride uint32
}

// Policy defines what a guest of a shared card may do with a register.
type Policy uint8

const (
	// Virtual registers are the virtual GPU's own state and never reach the card. It
	// is the default of a row.
	Virtual Policy = iota
	// Translate marks registers whose effect reaches the card as checked, typed values.
	Translate
	// Refuse marks registers that a guest may read but not change: writes are counted
	// and have no effect.
	Refuse

	policies = iota
)

var policyNames = [policies]string{"virtual", "translate", "refuse"}

// String names the policy.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Barrier selects the accesses of a register that are memory barriers: all earlier writes,
// trapped or mapped, are visible in every window and to the card before the access has its
// effect.
type Barrier uint8

// A register may order memory at both.
const (
	BarrierRead  Barrier = 1 << iota // the value depends on memory
	BarrierWrite                     // its effect uses memory, or waits for it
)

// Reg is one row of a chip's register table.
type Reg struct {
	// Name is the hardware's own name; a repeated row has one name, and its
	// instances print as NAME[i] or NAME[i][j].
	Name string
	// Offset is in bytes from the start of the space; for a repeated row it is
	// the first instance's.
	Offset uint32
	// Width is 1, 2 or 4 bytes; 0 means 4. The register must not cross a dword.
	Width uint8
	// Rep repeats the row in one or two dimensions, the outer one first. Strides
	// are multiples of 4, either dimension may have the larger one, but one must
	// nest in the other. A repeated row shares no dword with another row.
	Rep []Dim
	// Reset is the value after power-on and after Space.Reset.
	Reset uint32
	// Access is the mode of the bits that no field covers.
	Access Access
	Fields []Field
	// Stub marks a register that real hardware acts on and this model only
	// stores. Stubs are counted, so a report can say what a driver relied on.
	Stub bool
	// Policy applies to virtual GPUs only. A card in pass-through ignores it.
	Policy Policy
	// Barrier selects the accesses that are memory barriers.
	Barrier Barrier
	// Effect describes in a few words the effect of a read or a write beyond storage. A row
	// with an Effect must be bound, a row without must not.
	Effect string
}

// Block is a named group of rows, one hardware unit.
type Block struct {
	Name string
	// Source is the origin of the names and offsets.
	Source string
	Regs   []Reg
}

// Aperture is a window into other memory, served by the bound reader and
// writer. Offset and Size are multiples of 4096.
type Aperture struct {
	Name         string
	Offset, Size uint32
	Policy       Policy
	Effect       string
}

// Write is the argument of a write effect.
type Write struct {
	Old  uint32 // stored value before
	New  uint32 // stored value now, as the access modes made it
	Data uint32 // what the guest wrote, in the register's own bit positions
	Mask uint32 // which of those bits the access covered
}

// Hooks are a row's effects. i is the instance of a repeated row, counted
// through all its dimensions (outer*inner count + inner).
type Hooks struct {
	// Read returns what the guest sees; v is the stored value with WO bits
	// cleared, as it was before this read cleared RC bits.
	Read func(i int, v uint32) uint32
	// Write runs after the new value was stored, also when the access modes let
	// nothing change.
	Write func(i int, w Write)
}

// Window is an aperture's effect: off counts from the start of the aperture, the
// slice is the part of the access that lies inside, valid only during the call.
// For Read it is filled with zeroes.
type Window struct {
	Read  func(off uint32, p []byte)
	Write func(off uint32, p []byte)
}

// Bindings joins rows to the code behind them, by row name.
type Bindings struct {
	regs    map[string]Hooks
	windows map[string]Window
	err     error
}

// On binds a register row. Binding one name twice is reported by New.
func (b *Bindings) On(name string, h Hooks) {
	if b.regs == nil {
		b.regs = make(map[string]Hooks)
	}
	if _, dup := b.regs[name]; dup && b.err == nil {
		b.err = fmt.Errorf("mmio: register %s is bound twice", name)
	}
	b.regs[name] = h
}

// OnRead binds a row that only reads have an effect on.
func (b *Bindings) OnRead(name string, f func(i int, v uint32) uint32) { b.On(name, Hooks{Read: f}) }

// OnWrite binds a row that only writes have an effect on.
func (b *Bindings) OnWrite(name string, f func(i int, w Write)) { b.On(name, Hooks{Write: f}) }

// OnWindow binds an aperture.
func (b *Bindings) OnWindow(name string, w Window) {
	if b.windows == nil {
		b.windows = make(map[string]Window)
	}
	if _, dup := b.windows[name]; dup && b.err == nil {
		b.err = fmt.Errorf("mmio: aperture %s is bound twice", name)
	}
	b.windows[name] = w
}
