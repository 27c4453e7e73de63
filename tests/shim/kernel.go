package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Kernel carries out one process's requests to nouveau, on a Machine.
type Kernel struct {
	machine   *Machine
	recorder  *Recorder      // may be nil
	addresses vram.Allocator // free GPU addresses
	buffers   map[uint32]*gem
	closed    []*gem // that the card may still use, or whose memory nobody wanted yet
	last      uint32 // handle
	failed    error  // of a request that has no answer
	told      bool   // the program knows of a failure
	compiler  int32  // its processor clock, 0 while there is none
}

// gem is a buffer as its program knows it.
type gem struct {
	*Buffer
	handle, domain, tileMode, tileFlags uint32

	channel *Channel // that used it last
	fence   uint32   // of that submission
}

const (
	// firstAddress leaves a program's null pointer, with offsets, unmapped.
	firstAddress = 1 << 20
	// The windows of shared and local memory hide the buffers behind them.
	windowsFirst = 0xfe000000
	windowsEnd   = 1 << 32
)

// NewKernel returns the kernel of a process without buffers.
func NewKernel(m *Machine, recorder *Recorder) *Kernel {
	k := &Kernel{machine: m, recorder: recorder, buffers: make(map[uint32]*gem)}
	k.addresses.Release(card.Run{Addr: firstAddress, Size: windowsFirst - firstAddress},
		card.Run{Addr: windowsEnd, Size: ownFirst - windowsEnd})
	return k
}

// errElsewhere says that the noop shim is to answer.
var errElsewhere = errors.New("not answered here")

// requests has what is answered here, by the request's number.
var requests = map[uint8]struct {
	size   int
	do     func(k *Kernel, arg, rest []byte) error
	posted bool // it has no answer; preload/shim.c knows these
}{
	0x09: {8, (*Kernel).close, true},
	0x40: {16, (*Kernel).getParam, false},
	0x42: {88, (*Kernel).channelAlloc, false},
	0x43: {4, nothing, false}, // CHANNEL_FREE: channels end with the process
	0x80: {48, (*Kernel).gemNew, false},
	0x81: {64, (*Kernel).pushbuf, true},
	0x82: {8, (*Kernel).prepare, false},
	0x83: {4, nothing, false}, // CPU_FINI
	0x84: {40, (*Kernel).gemInfo, false},
	0x9f: {8, (*Kernel).processorTime, false}, // preload/shim.c's own
}

func nothing(*Kernel, []byte, []byte) error { return nil }

// Do carries out a request. It changes arg to the answer. An error that is a unix.Errno is the
// program's; others end it, and so does one of a posted request.
func (k *Kernel) Do(nr uint8, arg, rest []byte) error {
	r, ok := requests[nr]
	if !ok {
		return errElsewhere
	}
	if len(arg) != r.size {
		return unix.EINVAL
	}
	return r.do(k, arg, rest)
}

// Parameters of GETPARAM. Source: nouveau_drm.h.
const (
	paramFBSize     = 8
	paramAGPSize    = 9
	paramTimer      = 14
	paramGraphUnits = 13
)

func (k *Kernel) getParam(arg, _ []byte) error {
	var v uint64
	switch binary.LittleEndian.Uint64(arg) {
	case paramFBSize:
		v = cardMemory
	case paramAGPSize:
		v = systemMemory
	case paramTimer:
		v = k.machine.gpu.Time()
	case paramGraphUnits:
		v = 4 | 14<<8 | 6<<32 // GPCs, TPCs and ROP units of a Quadro 6000
	default:
		return errElsewhere
	}
	binary.LittleEndian.PutUint64(arg[8:], v)
	return nil
}

// Memory domains.
const (
	domainVRAM = 2
	domainGART = 4
)

func (k *Kernel) channelAlloc(arg, _ []byte) error {
	if _, err := k.machine.NewChannel(); err != nil {
		return err
	}
	notifier, err := k.newBuffer(4096, 0, domainGART)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(arg[8:], uint32(len(k.machine.channels)-1))
	binary.LittleEndian.PutUint32(arg[12:], domainVRAM|domainGART)
	binary.LittleEndian.PutUint32(arg[16:], notifier.handle)
	return nil
}

// newBuffer makes a buffer. It prefers VRAM if the domains allow both.
func (k *Kernel) newBuffer(size, align uint64, domain uint32) (*gem, error) {
	size = max(vram.WholePages(size), vram.PageSize)
	p := Place{Size: size, InVRAM: domain&domainVRAM != 0}
	align = max(align, vram.PageSize)
	if p.InVRAM && size >= shadowpt.BigPage {
		p.Size = (size + shadowpt.BigPage - 1) &^ (shadowpt.BigPage - 1)
		align = max(align, shadowpt.BigPage)
	}
	if align&(align-1) != 0 {
		return nil, unix.EINVAL
	}
	b := k.reuse(p, align)
	if b == nil {
		var err error
		if b, err = k.alloc(p, align); err != nil { // closed ones may have the memory
			if err = k.sweep(); err == nil {
				b, err = k.alloc(p, align)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
		}
	}
	k.last++
	g := &gem{Buffer: b, handle: k.last, domain: domainGART}
	if p.InVRAM {
		g.domain = domainVRAM
	}
	k.buffers[g.handle] = g
	if k.recorder != nil {
		k.recorder.alloc(b)
	}
	return g, nil
}

func (k *Kernel) alloc(p Place, align uint64) (*Buffer, error) {
	r, ok := k.addresses.Take(p.Size, align)
	if !ok {
		return nil, unix.ENOMEM
	}
	p.VA = r.Addr
	b, err := k.machine.Alloc(p)
	if err != nil {
		k.addresses.Release(r)
	}
	return b, err
}

// reuse returns a closed buffer of such a place, of zeros, nil if there is none: a launch of Mesa's makes and closes some. Closed
// buffers stay mapped until sweep frees them.
func (k *Kernel) reuse(p Place, align uint64) *Buffer {
	i := slices.IndexFunc(k.closed, func(g *gem) bool {
		return g.Size == p.Size && g.InVRAM == p.InVRAM && g.VA%align == 0 && !g.busy()
	})
	if i < 0 {
		return nil
	}
	b := k.closed[i].Buffer
	k.closed = slices.Delete(k.closed, i, i+1)
	clear(b.mem)
	return b
}

// gemNew reads drm_nouveau_gem_new: what gemInfo answers, a hint and an alignment.
func (k *Kernel) gemNew(arg, _ []byte) error {
	domain, size := binary.LittleEndian.Uint32(arg[4:]), binary.LittleEndian.Uint64(arg[8:])
	if size == 0 || size > 1<<addressBits {
		return unix.EINVAL
	}
	g, err := k.newBuffer(size, uint64(binary.LittleEndian.Uint32(arg[44:])), domain)
	if err != nil {
		return err
	}
	g.tileMode, g.tileFlags = binary.LittleEndian.Uint32(arg[32:]), binary.LittleEndian.Uint32(arg[36:])
	g.info(arg)
	return nil
}

func (k *Kernel) gemInfo(arg, _ []byte) error {
	g := k.buffers[binary.LittleEndian.Uint32(arg)]
	if g == nil {
		return unix.ENOENT
	}
	g.info(arg)
	return nil
}

// mapBase is where the device's file has the shared memory; preload/shim.c knows it.
const mapBase = 1 << 44

// info is drm_nouveau_gem_info.
func (g *gem) info(arg []byte) {
	binary.LittleEndian.PutUint32(arg, g.handle)
	binary.LittleEndian.PutUint32(arg[4:], g.domain)
	binary.LittleEndian.PutUint64(arg[8:], g.Size)
	binary.LittleEndian.PutUint64(arg[16:], g.VA)
	binary.LittleEndian.PutUint64(arg[24:], mapBase+g.offset)
	binary.LittleEndian.PutUint32(arg[32:], g.tileMode)
	binary.LittleEndian.PutUint32(arg[36:], g.tileFlags)
}

func (k *Kernel) close(arg, _ []byte) error {
	handle := binary.LittleEndian.Uint32(arg)
	g := k.buffers[handle]
	if g == nil {
		return unix.ENOENT
	}
	delete(k.buffers, handle)
	if k.recorder != nil {
		k.recorder.free(g.Buffer)
	}
	k.closed = append(k.closed, g)
	return nil
}

// sweep frees the closed buffers once the card needs them no longer.
func (k *Kernel) sweep() error {
	for _, g := range k.closed {
		if g.channel != nil {
			if err := g.channel.Wait(g.fence); err != nil {
				return err
			}
		}
		if err := k.machine.Free(g.Buffer); err != nil {
			return err
		}
		k.addresses.Release(card.Run{Addr: g.VA, Size: g.Size})
	}
	k.closed = nil
	return nil
}

// Sizes of what follows drm_nouveau_gem_pushbuf: its buffers and its parts.
const (
	pushbufBuffer = 40
	pushbufPart   = 24
	noPrefetch    = 1 << 23 // in a part's length
)

// pushbuf submits. Relocations are for older chips, whose buffers move.
func (k *Kernel) pushbuf(arg, rest []byte) error {
	channel, nb, nr := binary.LittleEndian.Uint32(arg), binary.LittleEndian.Uint32(arg[4:]), binary.LittleEndian.Uint32(arg[16:])
	np := binary.LittleEndian.Uint32(arg[20:])
	if nb > 1024 || np > ringSize-2 || nr != 0 || int(channel) >= len(k.machine.channels) ||
		len(rest) != int(nb*pushbufBuffer+np*pushbufPart) {
		return unix.EINVAL
	}
	buffers, parts := rest[:nb*pushbufBuffer], rest[nb*pushbufBuffer:]
	list := make([]Push, np)
	for i := range list {
		p := parts[i*pushbufPart:]
		index := binary.LittleEndian.Uint32(p)
		if index >= nb {
			return unix.EINVAL
		}
		g := k.buffers[binary.LittleEndian.Uint32(buffers[index*pushbufBuffer+8:])]
		offset, length := binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(p[16:])
		size := length &^ noPrefetch
		if g == nil || offset%4 != 0 || size%4 != 0 || size > g.Size || offset > g.Size-size {
			return unix.EINVAL
		}
		list[i] = Push{VA: g.VA + offset, Size: size, NoPrefetch: length&noPrefetch != 0}
	}
	if np == 0 { // a question for what is available
		return nil
	}
	if k.recorder != nil {
		return k.recorder.run(int(channel), list)
	}
	ch := k.machine.channels[channel]
	n, err := ch.Submit(list)
	for ; len(buffers) > 0; buffers = buffers[pushbufBuffer:] {
		if g := k.buffers[binary.LittleEndian.Uint32(buffers[8:])]; g != nil {
			g.channel, g.fence = ch, n
		}
	}
	return err
}

// busy reports whether the card may still use a buffer.
func (g *gem) busy() bool { return g.channel != nil && !g.channel.Done(g.fence) }

const prepareNoWait = 1 // a flag

// prepare is drm_nouveau_gem_cpu_prep: the program is about to use a buffer.
func (k *Kernel) prepare(arg, _ []byte) error {
	g := k.buffers[binary.LittleEndian.Uint32(arg)]
	switch {
	case g == nil:
		return unix.ENOENT
	case g.busy() && binary.LittleEndian.Uint32(arg[4:])&prepareNoWait != 0:
		return unix.EBUSY
	case g.channel == nil:
		return nil
	}
	return g.channel.Wait(g.fence)
}

// Finish returns when the card has done all. The error is a failure that the program was not told.
func (k *Kernel) Finish() error {
	switch {
	case k.told:
		return nil
	case k.failed != nil:
		return k.failed
	}
	for _, ch := range k.machine.channels {
		if err := ch.Wait(ch.fence); err != nil {
			return err
		}
	}
	return nil
}
