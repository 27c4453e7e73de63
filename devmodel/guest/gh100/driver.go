// Package gh100 is a small driver of a GH100: it boots GSP through FSP, calls it through the queues, makes
// page tables and channels, submits, and suspends. Tests and tools use it.
//
//	d := &gh100.Driver{Bus: bus, RAM: ram, Fail: t.Fatal}
//	d.Boot()
//	s := d.NewSpace()
//	dst, src := s.Map(gh100.VRAM, d.AllocVRAM(n), n), s.Map(gh100.RAM, addr, n)
//	ch := s.NewChannel(1, gh100.Graphics)
//	ch.Wait(ch.Submit(gh100.Copy(dst, src, n)...))
//
// A Driver with what it makes belongs to one goroutine. It waits by polling, with a bound. The package has
// no locks and starts no goroutines.
package gh100

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/mmio/gh100"
)

var le = binary.LittleEndian

// Bus reaches the function's BARs, by the first of their registers.
type Bus interface {
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
}

// Driver is a driver with its machine.
type Driver struct {
	Bus     Bus
	RAM     []byte        // of the machine, 2 MiB or more
	Base    uint64        // the bus address of RAM
	Timeout time.Duration // of what is waited for; 0 means a minute
	Fail    func(...any)  // is told what went wrong, and does not return
	Events  []Message     // that came between replies

	usedRAM, usedVRAM uint64
	queues            []byte // what the driver and GSP share
	args, desc        []byte // of the boot
	params            uint64
	write, read       uint32
	internal          [3]uint32 // client, device and subdevice of GSP's own
	clients           uint32
	window            *tables // of BAR1
	window2           *tables // of BAR2, nil without
	windowEnd         uint64  // of what is mapped there
}

const (
	pageSize  = 4 << 10
	largePage = 2 << 20
)

// Read32 reads a register.
func (d *Driver) Read32(reg uint64) uint32 {
	var p [4]byte
	d.Bus.ReadBAR(0, reg, p[:])
	return le.Uint32(p[:])
}

// Write32 writes a register.
func (d *Driver) Write32(reg uint64, v uint32) { d.Bus.WriteBAR(0, reg, le.AppendUint32(nil, v)) }

// AllocRAM takes n bytes of the machine's memory, a multiple of 4 KiB, cleared.
func (d *Driver) AllocRAM(n uint64) (addr uint64, p []byte) {
	at := d.usedRAM
	d.usedRAM += n
	p = d.RAM[at:d.usedRAM:d.usedRAM]
	clear(p)
	return d.Base + at, p
}

// AllocVRAM takes n bytes of VRAM, a multiple of 4 KiB. A multiple of 2 MiB begins at one.
func (d *Driver) AllocVRAM(n uint64) (addr uint64) {
	addr = max(d.usedVRAM, 1<<20)
	if n%largePage == 0 {
		addr = (addr + largePage - 1) &^ (largePage - 1)
	}
	d.usedVRAM = addr + n
	return addr
}

// WriteVRAM stores p through PRAMIN, within 64 KiB.
func (d *Driver) WriteVRAM(addr uint64, p []byte) {
	d.Write32(0x10fd40, uint32(addr>>16))
	d.Bus.WriteBAR(0, gh100.PRAMINBase+addr&0xffff, p)
}

// Wait polls until something is so.
func (d *Driver) Wait(what string, is func() bool) {
	for end := time.Now().Add(cmp.Or(d.Timeout, time.Minute)); !is(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			d.Fail("guest/gh100: no " + what)
		}
	}
}

// Interrupts returns the vectors of engines that are pending, and whether GSP's is. It acknowledges them.
func (d *Driver) Interrupts() (engines uint32, gsp bool) {
	engines, last := d.Read32(0xb81000), d.Read32(0xb8101c)
	d.Write32(0xb81000, engines)
	d.Write32(0xb8101c, last)
	d.Write32(0x110004, 1<<6)
	d.Write32(0xb81608, 0xf)
	return engines, last != 0
}

// Boot starts GSP, as at a probe. What was made before is gone.
func (d *Driver) Boot() {
	if d.queues == nil {
		at, q := d.AllocRAM(sharedSize)
		for i := range uint64(sharedSize / pageSize) {
			le.PutUint64(q[8*i:], at+i*pageSize)
		}
		boot, p := d.AllocRAM(pageSize)
		d.queues, d.params, d.desc, d.args = q, boot+0x100, p, p[0x200:]
		copy(p[0x100:], Fields{0x10: boot, 0x30: boot + 0x300}.Bytes(80))
		copy(d.args, Fields{0: at, 8: sharedSize / pageSize, 0x10: commands, 0x18: status}.Bytes(0x48))
		copy(p[0x300:], Fields{0: 'R'<<40 | 'M'<<32 | 'A'<<24 | 'R'<<16 | 'G'<<8 | 'S', 8: boot + 0x200}.Bytes(32))
	}
	clear(d.queues[commands:])
	d.write, d.read = 0, 0
	d.start(0xdc3aae21371a60b3, 0)
	info := d.Call(65, make([]byte, 1656))
	for i := range d.internal {
		d.internal[i] = le.Uint32(info[0x640+4*i:])
	}
	d.window, d.windowEnd, d.window2 = d.newTables(le.Uint64(info[0x600:])), 0, nil
}

// start lets FSP start GSP, and enables interrupts.
func (d *Driver) start(magic uint64, resume byte) {
	le.PutUint64(d.desc, magic)
	d.args[0x28] = resume
	for _, reg := range []uint64{0xb81200, 0xb8121c, 0xb81608} {
		d.Write32(reg, ^uint32(0))
	}
	m := Fields{0: 0xc0000000, 4: 0x1410de7e, 8: 1 | 860<<16}.Bytes(868)
	le.PutUint64(m[len(m)-8:], d.params)
	d.Write32(0x8f2ac0, 1<<24)
	for i := 0; i < len(m); i += 4 {
		d.Write32(0x8f2ac4, le.Uint32(m[i:]))
	}
	d.Write32(0x8f2c04, uint32(len(m)-4))
	d.Write32(0x8f2c00, 0)
	d.Write32(0x8f2ac0, 4|1<<25)
	kind, mailbox := d.Read32(0x8f2ac4), d.Read32(0x110040)
	if kind != 0x1510de7e || mailbox != 0 {
		d.Fail(fmt.Sprintf("guest/gh100: FSP answers %08x, GSP has %08x in its mailbox", kind, mailbox))
	}
	d.Reply(0x1001)
}

// Unload stops GSP, to go on later or for good, and waits until it has halted.
func (d *Driver) Unload(suspend bool) {
	p := Fields{}
	if suspend {
		p = Fields{0: 1, 4: 3}
	}
	d.Call(47, p.Bytes(8))
	d.Wait("halt of GSP", func() bool { return d.Read32(0x110040) == 1<<31 && d.Read32(0x111388)&(1<<4) != 0 })
}

// Suspend stops all channels and GSP.
func (d *Driver) Suspend() {
	d.runChannels(0)
	d.Unload(true)
}

// Resume starts GSP again, and then the channels.
func (d *Driver) Resume() {
	d.start(0x8a3bb9e6c6c39d93, 1)
	d.runChannels(1)
}

func (d *Driver) runChannels(on byte) {
	d.must(d.Control(d.internal[0], d.internal[2], 0x20800ac3, []byte{1 - on}))
}
