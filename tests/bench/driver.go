package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var le = binary.LittleEndian

// driver drives a card in this process as a guest's driver does: registers, page
// tables, a ring and doorbells. It has one channel.
type driver struct {
	card *soft.Card
	bus  *bus
	next uint64 // VRAM handed out so far

	dir    uint64            // page directory
	tables map[uint64]uint64 // small tables by directory index
	ring   uint64
	push   uint64
	put    uint32
	fence  uint32
}

// Virtual addresses of the channel. The data areas start a directory entry each.
const (
	vaRing = 0x10000
	vaSem  = 0x20000  // one page of guest memory, the first one
	vaPush = 0x200000 // pushbuffer

	vaVRAMSrc = 2 * shadowpt.DirSpan
	vaVRAMDst = 3 * shadowpt.DirSpan
	vaRAMSrc  = 4 * shadowpt.DirSpan
	vaRAMDst  = 5 * shadowpt.DirSpan

	pushSize = 1 << 20
	ringLog2 = 6
	channel  = 1
)

// areaSize of each data area.
const areaSize = 64 << 20

// Where the data areas lie, in VRAM and in guest memory.
const (
	vramSrc, vramDst = 64 << 20, 128 << 20
	ramSrc, ramDst   = 1 << 20, 1<<20 + areaSize
	vramSize         = 256 << 20
	ramSize          = 1<<20 + 2*areaSize
)

// bus is guest memory at bus address 0, in a memory file as QEMU has it, and the
// card's interrupt.
type bus struct {
	mem    []byte
	raised chan struct{} // holds one
}

func newBus() (*bus, error) {
	mem, err := memory("guest", ramSize)
	return &bus{mem, make(chan struct{}, 1)}, err
}

// memory is n bytes of a memory file, of which every page is there.
func memory(name string, n int) ([]byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	return mem, os.NewSyscallError("mmap", err)
}

func (b *bus) Acquire() {}
func (b *bus) Release() {}

func (b *bus) Slice(addr uint64, n int, _ bool) []byte {
	if addr > uint64(len(b.mem)) || uint64(n) > uint64(len(b.mem))-addr {
		return nil
	}
	return b.mem[addr : addr+uint64(n)]
}

func (b *bus) Interrupt(l card.Line) {
	if !l.Edge {
		return
	}
	select {
	case b.raised <- struct{}{}:
	default:
	}
}

// Registers of the driver.
const (
	regPMCIntrEnable  = 0x000140
	regPFIFOIntr      = 0x002100
	regPFIFOIntrMask  = 0x002140
	regPFIFOEnable    = 0x002200
	regUserdBase      = 0x002254
	regRunlist        = 0x002270
	regRunlistSubmit  = 0x002274
	regEngineEvent    = 0x0025a4
	regEventAck       = 0x0025a8
	regEventUnmask    = 0x002628
	regRunlistDone    = 0x002a00
	regChannel        = 0x003000
	regBAR1Instance   = 0x001704
	regPBDMAIntrMask  = 0x04010c
	pbdmaStride       = 0x2000
	runlistUpdateDone = 1 << 28
)

// newDriver powers a card on and starts the channel.
func newDriver(cfg soft.Config) (*driver, error) {
	cfg.VRAM = vramSize
	c, err := soft.New(cfg)
	if err != nil {
		return nil, err
	}
	b, err := newBus()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	d := &driver{card: c, bus: b, next: 1 << 20, tables: map[uint64]uint64{}}
	c.AttachHost(b)
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *driver) close() error {
	d.card.DetachHost()
	return errors.Join(d.card.Close(), unix.Munmap(d.bus.mem))
}

func (d *driver) rd(off uint64) uint32 {
	var b [4]byte
	d.card.ReadBAR(soft.BAR0, off, b[:])
	return le.Uint32(b[:])
}

func (d *driver) wr(off uint64, v uint32) {
	var b [4]byte
	le.PutUint32(b[:], v)
	d.card.WriteBAR(soft.BAR0, off, b[:])
}

// vram64 writes eight bytes of VRAM.
func (d *driver) vram64(addr, v uint64) {
	d.card.WriteVRAM(addr, le.AppendUint64(nil, v))
}

func (d *driver) alloc(n uint64) uint64 {
	a := d.next
	d.next += (n + 0xfff) &^ 0xfff
	return a
}

// mapSmall maps n bytes in pages of 4 KiB.
func (d *driver) mapSmall(dir uint64, tables map[uint64]uint64, va, addr, n uint64, t shadowpt.Target) {
	for off := uint64(0); off < n; off += shadowpt.SmallPage {
		at := va + off
		i := at / shadowpt.DirSpan
		pt, ok := tables[i]
		if !ok {
			pt = d.alloc(shadowpt.SmallEntries * 8)
			tables[i] = pt
			d.vram64(dir+i*8, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: pt}}.Encode())
		}
		d.vram64(pt+at%shadowpt.DirSpan/shadowpt.SmallPage*8, shadowpt.PTE{Valid: true, Addr: addr + off, Target: t}.Encode())
	}
}

// mapBig maps VRAM in pages of 128 KiB, as nouveau does with large buffers.
func (d *driver) mapBig(va, addr, n uint64) {
	pt := d.alloc(shadowpt.BigEntries * 8)
	d.vram64(d.dir+va/shadowpt.DirSpan*8, shadowpt.PDE{Big: shadowpt.Table{Present: true, Addr: pt}}.Encode())
	for off := uint64(0); off < n; off += shadowpt.BigPage {
		d.vram64(pt+off/shadowpt.BigPage*8, shadowpt.PTE{Valid: true, Addr: addr + off}.Encode())
	}
}

func (d *driver) instance(dir, limit uint64) (addr uint64, block []byte) {
	b := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(b, uint32(dir>>12))
	gf100.InstPDBHi.Put(b, uint32(dir>>32))
	gf100.InstLimitLo.Put(b, uint32(limit>>12))
	gf100.InstLimitHi.Put(b, uint32(limit>>32))
	return d.alloc(gf100.InstanceSize), b
}

func (d *driver) start() error {
	d.wr(regPFIFOIntr, ^uint32(0))
	d.wr(regPFIFOIntrMask, ^uint32(0))
	d.wr(regEventUnmask, 1)
	for i := range uint64(gf100.PBDMAs) {
		d.wr(regPBDMAIntrMask+i*pbdmaStride, 0xfffffeff)
	}
	d.wr(regPMCIntrEnable, 1)
	d.wr(regPFIFOEnable, 1)
	d.wr(regUserdBase, 1<<28)

	// BAR1, with the poll area at its start.
	area := d.alloc(gf100.Channels * gf100.USERDSize)
	dir := d.alloc(shadowpt.DirSize)
	d.mapSmall(dir, map[uint64]uint64{}, 0, area, gf100.Channels*gf100.USERDSize, shadowpt.VRAM)
	inst, block := d.instance(dir, 128<<20-1)
	d.card.WriteVRAM(inst, block)
	d.wr(regBAR1Instance, 1<<31|uint32(inst>>12))

	// The channel.
	d.dir = d.alloc(shadowpt.DirSize)
	d.ring, d.push = d.alloc(0x1000), d.alloc(pushSize)
	d.mapSmall(d.dir, d.tables, vaRing, d.ring, 0x1000, shadowpt.VRAM)
	d.mapSmall(d.dir, d.tables, vaPush, d.push, pushSize, shadowpt.VRAM)
	d.mapSmall(d.dir, d.tables, vaSem, 0, 0x1000, shadowpt.SystemNonCoherent)
	d.mapBig(vaVRAMSrc, vramSrc, areaSize)
	d.mapBig(vaVRAMDst, vramDst, areaSize)
	d.mapSmall(d.dir, d.tables, vaRAMSrc, ramSrc, areaSize, shadowpt.SystemNonCoherent)
	d.mapSmall(d.dir, d.tables, vaRAMDst, ramDst, areaSize, shadowpt.SystemNonCoherent)
	inst, block = d.instance(d.dir, shadowpt.VASize-1)
	gf100.InstUSERDLo.Put(block, uint32((area+channel*gf100.USERDSize)>>12))
	gf100.InstSignature.Put(block, gf100.InstanceSignature)
	gf100.InstGPBaseLo.Put(block, vaRing>>3)
	gf100.InstGPLimit2.Put(block, ringLog2)
	d.card.WriteVRAM(inst, block)
	d.wr(regChannel+channel*8, 0xc0000000|uint32(inst>>12))
	d.wr(regChannel+channel*8+4, 0x001f0001)

	list := d.alloc(0x1000)
	d.vram64(list, 4<<32|channel)
	d.wr(regRunlist, uint32(list>>12))
	d.wr(regRunlistSubmit, 0x01f00001)
	for at := time.Now(); d.rd(regRunlistDone)&runlistUpdateDone == 0; time.Sleep(100 * time.Microsecond) {
		if time.Since(at) > patience {
			return errors.New("the card did not take the runlist")
		}
	}
	d.wr(regRunlistDone, runlistUpdateDone)
	return nil
}

// patience ends a wait for a card that does nothing.
const patience = time.Minute

// submit runs words, and returns how long it took from the doorbell to the interrupt
// behind them.
func (d *driver) submit(words []uint32) (time.Duration, error) {
	d.fence++
	words = append(append([]uint32{}, words...), semaphoreRelease(vaSem, d.fence)...)
	words = append(words, incr(0, hostNonStallInterrupt, 0)...)
	if len(words)*4 > pushSize {
		return 0, fmt.Errorf("%d words; the pushbuffer has %d", len(words), pushSize/4)
	}
	b := make([]byte, 0, 4*len(words))
	for _, w := range words {
		b = le.AppendUint32(b, w)
	}
	d.card.WriteVRAM(d.push, b)
	d.vram64(d.ring+uint64(d.put)*8, vaPush|uint64(len(words))<<42)
	d.put = (d.put + 1) & (1<<ringLog2 - 1)

	var put [4]byte
	le.PutUint32(put[:], d.put)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-d.bus.raised: // of something before
	default:
	}
	at := time.Now()
	d.card.WriteBAR(soft.BAR1, channel*gf100.USERDSize+gf100.USERDGPPut, put[:])
	select {
	case <-d.bus.raised:
	case <-timeout.C:
		return 0, fmt.Errorf("no interrupt; PFIFO says %#x", d.rd(regPFIFOIntr))
	}
	took := time.Since(at)
	d.wr(regEventAck, d.rd(regEngineEvent))
	if got := le.Uint32(d.bus.mem); got != d.fence {
		return 0, fmt.Errorf("the semaphore holds %d, want %d", got, d.fence)
	}
	return took, nil
}

// Methods, as cl906f.h, cl9039.h and nouveau's copy microcode have them.
const (
	hostSemaphoreA        = 0x10
	hostNonStallInterrupt = 0x20
)

func incr(subchannel, method uint32, data ...uint32) []uint32 {
	return append([]uint32{1<<29 | uint32(len(data))<<16 | subchannel<<13 | method>>2}, data...)
}

func semaphoreRelease(va uint64, payload uint32) []uint32 {
	return incr(0, hostSemaphoreA, uint32(va>>32), uint32(va), payload, 2|1<<24)
}

// mover is an engine that copies.
type mover struct {
	name   string
	class  uint16
	object uint32 // of SET_OBJECT
	copy   func(subchannel uint32, src, dst uint64, width, lines uint32) []uint32
}

var movers = []mover{
	{"M2MF", 0x9039, 0x9039, copyM2MF},
	{"CE0", 0x90b5, 0x04_90b5, copyCE},
	{"CE1", 0x90b8, 0x05_90b8, copyCE},
}

// copyM2MF copies lines that lie without gaps.
func copyM2MF(subchannel uint32, src, dst uint64, width, lines uint32) (w []uint32) {
	w = append(w, incr(subchannel, 0x238, uint32(dst>>32), uint32(dst))...)
	w = append(w, incr(subchannel, 0x30c, uint32(src>>32), uint32(src), width, width, width, lines)...)
	return append(w, incr(subchannel, 0x300, 1<<4|1<<8)...)
}

func copyCE(subchannel uint32, src, dst uint64, width, lines uint32) (w []uint32) {
	w = append(w, incr(subchannel, 0x30c, uint32(src>>32), uint32(src), uint32(dst>>32), uint32(dst), width, width, width, lines)...)
	return append(w, incr(subchannel, 0x300, 1<<4|1<<8)...)
}

// Linear copies are cut as nouveau cuts them: lines of 4 KiB, at most 2,047 at a time.
const (
	lineBytes = 4096
	maxLines  = 2047
)

// words are the launches that copy n bytes, a multiple of 4 KiB.
func (m *mover) words(src, dst, n uint64) (w []uint32) {
	for n > 0 {
		lines := min(n/lineBytes, maxLines)
		w = append(w, m.copy(2, src, dst, lineBytes, uint32(lines))...)
		src, dst, n = src+lines*lineBytes, dst+lines*lineBytes, n-lines*lineBytes
	}
	return w
}

var _ card.Host = (*bus)(nil)
