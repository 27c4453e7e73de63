package hostile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// hole is RAM of the attacker's that the device is not given: bus addresses between
// others that name nothing.
type hole struct {
	addr, off uint64 // on the bus, in RAM
	broken    error  // the device's access to memory that was not mapped
}

const holeSize = 64 << 10

// buried fills the hole. Nothing else has it by chance.
var buried = []byte{0x9d, 0x27, 0xe3, 0x5b, 0x41, 0xf8, 0xb6, 0x0c}

// dig makes the hole, near the end of RAM, which has no other use.
func (a *Attacker) dig() error {
	if a.hole.addr != 0 {
		return nil
	}
	a.hole.off = uint64(len(a.Guest.Memory().Data)) - 2*holeSize
	a.hole.addr = a.Guest.RAMBase() + a.hole.off
	copy(a.Guest.Memory().Data[a.hole.off:], bytes.Repeat(buried, holeSize/len(buried)))
	return a.mapRAM()
}

// mapRAM gives the device all RAM but the hole, and nothing else.
func (a *Attacker) mapRAM() error {
	if err := a.raw.UnmapAll(); err != nil {
		return err
	}
	base, size := a.Guest.RAMBase(), uint64(len(a.Guest.Memory().Data))
	for _, m := range [][2]uint64{{0, a.hole.off}, {a.hole.off + holeSize, size}} {
		if err := a.raw.Map(base+m[0], m[0], m[1]-m[0], client.ReadWrite); err != nil {
			return err
		}
	}
	return nil
}

func (a *Attacker) see(act Action, p []byte) {
	if bytes.Contains(p, buried) {
		a.breach("%v: read what was never mapped", act)
	}
	a.Seen(act, p)
}

func (a *Attacker) breach(format string, args ...any) {
	a.hole.broken = errors.Join(a.hole.broken, fmt.Errorf("hostile: "+format, args...))
}

// Unmapped returns the device's accesses to RAM that was not mapped any more, or never.
func (a *Attacker) Unmapped() error {
	data := a.Guest.Memory().Data
	before, in, after := data[:a.hole.off], data[a.hole.off:][:holeSize], data[a.hole.off+holeSize:]
	if !bytes.Equal(in, bytes.Repeat(buried, holeSize/len(buried))) {
		a.breach("RAM that was never mapped has changed")
	}
	if bytes.Contains(before, buried) || bytes.Contains(after, buried) {
		a.breach("RAM that was never mapped was copied")
	}
	return a.hole.broken
}

// without has engines work while no RAM is mapped: not a byte of it may change.
func (a *Attacker) without(p *guest.Push) error {
	ram := a.Guest.Memory().Data
	before := bytes.Clone(ram)
	if err := a.submit(a.ch, p); err != nil {
		return err
	}
	for range 8 { // round trips, in which engines work
		a.raw.Reg(0)
	}
	if !bytes.Equal(before, ram) {
		a.breach("RAM has changed after it was unmapped")
	}
	return nil
}

// tables has engines walk tables in RAM, and changes them concurrently.
func (a *Attacker) tables(act Action) error {
	va := uint64(victimVA)
	table := a.dir.Data[shadowpt.DirSize:]
	good := shadowpt.PTE{Valid: true, Target: shadowpt.SystemCoherent, Addr: a.loot.Addr}.Encode()
	bad := a.value(act.V)>>12<<4 | act.Bits | 1
	for i := range 8 {
		le.PutUint64(table[i*8:], good)
	}
	var p guest.Push
	p.Bind(guest.CopyEngines...)
	for range 4 {
		p.Copy(act.Engine, va, lootVA+0x10000, 0x8000).Copy(act.Engine, lootVA+0x20000, va, 0x8000)
		p.Inc(0, push.HostMemOpA, 0, 9<<27)
	}
	if err := a.submit(a.ram, &p); err != nil {
		return err
	}
	for i := range 400 {
		le.PutUint64(table[i%8*8:], bad)
		if i%50 == 0 {
			if err := a.raw.Invalidate(uint32(a.dir.Addr>>12<<4)|2, 1<<31|1); err != nil {
				return err
			}
		}
		le.PutUint64(table[i%8*8:], good)
	}
	return nil
}

// unmap takes RAM away while engines copy into it, has them copy on, puts other RAM
// there, or maps something where nothing should be.
func (a *Attacker) unmap(act Action) error {
	var p guest.Push
	p.Bind(guest.CopyEngines...)
	for range 4 {
		p.Copy(act.Engine, lootVA, mineVA, 0x10000).Copy(act.Engine, mineVA, lootVA+0x10000, 0x10000)
	}
	if err := a.submit(a.ch, &p); err != nil {
		return err
	}
	if err := a.raw.UnmapAll(); err != nil {
		return err
	}
	if err := a.without(&p); err != nil {
		return err
	}
	at := a.value(act.V) &^ 0xfff
	if err := tolerate(a.raw.Map(at, 0, 0x10000, client.Readable)); err != nil {
		return err
	}
	return a.mapRAM()
}

// elsewhere maps RAM at any bus address as well, and has engines use it there,
// through small and big pages.
func (a *Attacker) elsewhere(act Action) error {
	at := a.value(act.V) &^ 0xfff
	if err := tolerate(a.raw.Map(at, 0, 2*shadowpt.BigPage, client.ReadWrite)); err != nil {
		return err
	}
	act.Bits |= uint64(shadowpt.SystemCoherent) << 33
	err := errors.Join(a.entry(act), a.bigEntry(act))
	a.settle(a.ch)
	a.settle(a.ram)
	return errors.Join(err, a.mapRAM())
}
