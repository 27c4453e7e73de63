package fakerm

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// escapes are the calls by number: the size of the structure and where its status is, as nvos.h and nv-ioctl.h of
// release 580 have them. A call begins with the client's handle, unless it is free.
var escapes = map[uint8]struct {
	size, status int
	free         bool
	do           func(*Driver, *client, *file, []byte) uint32
}{
	200:  {72 * 32, 0, true, (*Driver).cardInfo},
	201:  {4, 0, true, func(*Driver, *client, *file, []byte) uint32 { return 0 }},
	206:  {16, 12, false, (*Driver).allocEvents},
	0x27: {56, 40, false, (*Driver).register},
	0x29: {16, 12, false, (*Driver).free},
	0x2a: {32, 28, false, (*Driver).control},
	0x2b: {48, 40, true, (*Driver).alloc},
	0x4e: {56, 40, false, (*Driver).mapFile},
	0x52: {16, 12, true, (*Driver).eventData},
	0x57: {64, 56, false, (*Driver).mapMemory},
	0x58: {48, 40, false, (*Driver).unmapMemory},
}

const (
	classSpace   = 0x90f1
	classVRAM    = 0x40
	classWhole   = 0x70
	classRange   = 0x50a0
	classBell    = 0xc661
	classGroup   = 0xa06c
	classChannel = 0xc86f
	classEvent   = 0x79
	classHost    = 0x71 // of registered memory
	notifyError  = 37
	nonStall     = 1 << 27
	page         = 4096
)

// classes are the sizes of the parameters with which objects are made.
var classes = map[uint32]int{
	0x41: 0, 0x80: 56, 0x2080: 4, classSpace: 56, classVRAM: 128, classRange: 128, classWhole: 24, classBell: 2, classGroup: 20, 0x9067: 12, classChannel: 368, classEvent: 24,
	0xc8b5: 8, 0xcb97: 8, 0xcbc0: 8, 0x902d: 8, 0xa140: 8,
}

// controls are the calls of objects, with the sizes of their parameters.
var controls = map[uint32]struct {
	size int
	do   func(d *Driver, c *client, o *object, p []byte) uint32
}{
	0x205: {32, nothing},
	0x80180c: {8, func(d *Driver, c *client, o *object, p []byte) uint32 {
		if s := c.objects[binary.LittleEndian.Uint32(p)]; s != nil {
			s.stale = false
		}
		return 0
	}},
	0xa06c0101: {3, nothing},
	0xa06c0103: {8, func(d *Driver, c *client, o *object, p []byte) uint32 {
		o.slice = binary.LittleEndian.Uint64(p)
		return 0
	}},
	0x20800301: {20, nothing},
	0x20801210: {32, nothing},
	0xc36f0108: {4, func(d *Driver, c *client, o *object, p []byte) uint32 { return put(p, 0, o.event) }},
	0x2080110b: {536, disable},
	0x906f0102: {16, reset},
	0x906f0106: {104, func(d *Driver, c *client, o *object, p []byte) uint32 {
		copy(p[12:44], "FAULT_PDE")
		return put(p, 0, uint32(o.channel.fault>>32)) | put(p, 4, uint32(o.channel.fault)) | put(p, 8, 1)
	}},
	0x20801303: {4 + 128*8, func(d *Driver, c *client, o *object, p []byte) uint32 {
		for i := 4; i < len(p); i += 8 {
			put(p, i+4, uint32(d.size()>>10))
		}
		return 0
	}},
	0x20800110: {132, func(d *Driver, c *client, o *object, p []byte) uint32 {
		copy(p[4:], "Fake H200")
		return 0
	}},
	0x20800170: {340, func(d *Driver, c *client, o *object, p []byte) uint32 {
		return put(p, 0, 4) | put(p, 4, 1) | put(p, 8, 9) | put(p, 12, 11) | put(p, 16, 13) // graphics, copy engines 0, 2, 4
	}},
	0x20801206: {40, func(d *Driver, c *client, o *object, p []byte) uint32 { return put(p, 0, 16) | put(p, 28, 16) }},
	0x801707:   {12, func(d *Driver, c *client, o *object, p []byte) uint32 { return put(p, 8, 5<<12) }},
	0x20801701: {16, func(d *Driver, c *client, o *object, p []byte) uint32 { return put(p, 0, cmp.Or(d.Arch, 0x180)) }},
}

func (d *Driver) size() uint64 { return cmp.Or(d.VRAM, 1<<30) }

func nothing(*Driver, *client, *object, []byte) uint32 { return 0 }

func put(p []byte, at int, v uint32) uint32 {
	binary.LittleEndian.PutUint32(p[at:], v)
	return 0
}

func as[T any](b []byte) *T {
	if len(b) < int(unsafe.Sizeof(*new(T))) {
		panic("fakerm: a structure is larger than its table says")
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// bytesAt is memory at an address that a structure has.
func bytesAt(addr uint64, n int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n) }

func (d *Driver) cardInfo(_ *client, _ *file, arg []byte) uint32 {
	k := as[[32]nvgpu.IoctlCardInfo](arg)
	k[0].Valid, k[0].GPUID, k[0].MinorNumber = 1, 0x100, 0
	return 0
}

func (d *Driver) alloc(c *client, f *file, arg []byte) uint32 {
	p := as[nvgpu.NVOS64_PARAMETERS](arg)
	class := uint32(p.HClass)
	if size, ok := classes[class]; !ok {
		return badClass
	} else if int(p.ParamsSize) != size {
		return badStruct
	}
	o := &object{parent: p.HObjectParent.Val, class: class}
	if class == 0x41 {
		d.next++
		p.HObjectNew.Val = 0xc1d00000 + d.next
		d.clients[p.HObjectNew.Val] = &client{f, map[uint32]*object{p.HObjectNew.Val: o}}
		return 0
	}
	if c == nil || c.objects[o.parent] == nil || c.objects[p.HObjectNew.Val] != nil || p.HObjectNew.Val == 0 {
		return badObject
	}
	if status := d.fill(c, o, bytesAt(uint64(p.PAllocParms), int(p.ParamsSize))); status != 0 {
		return status
	}
	c.objects[p.HObjectNew.Val] = o
	return 0
}

// fill makes what is special to a class.
func (d *Driver) fill(c *client, o *object, params []byte) uint32 {
	var err error
	switch o.class {
	case classVRAM:
		p := as[nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545](params)
		if p.Size == 0 || p.Size%(2<<20) != 0 {
			return badOffset
		}
		if p.Size > d.size() {
			return nvrm.StatusNoMemory
		}
		err = o.back(p.Size)
	case classBell:
		if err = o.back(nvrm.DoorbellBytes); err == nil {
			go d.run(c, o)
		}
	case classRange:
		p := as[nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545](params)
		o.space, o.first, o.size = c.objects[p.HVASpace.Val], p.Offset, p.Size
		if o.space == nil || o.space.class != classSpace || p.Offset < 64<<10 || p.Offset < 4608<<20 && p.Offset+p.Size > 4<<30 {
			return badAddress
		}
	case classWhole:
		o.space, o.first, o.size = c.objects[as[nvgpu.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS](params).HVASpace.Val], 0x1000, 1<<57-0x1000
		if o.space == nil || o.space.class != classSpace {
			return badObject
		}
	case classGroup:
		p := as[nvgpu.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS](params)
		o.space, o.engine = c.objects[p.HVASpace.Val], p.EngineType
		if o.space == nil || o.space.class != classSpace {
			return badObject
		}
	case classChannel:
		p := as[nvgpu.NV_CHANNEL_ALLOC_PARAMS_V570](params)
		m, group := c.objects[p.HUserdMemory[0].Val], c.objects[o.parent]
		if m == nil || c.objects[p.HObjectError.Val] != m || group.class != classGroup || p.UserdOffset[0] > m.size-nvrm.USERDBytes {
			return badObject
		}
		d.next++
		o.event, o.engine = d.next, p.EngineType // the token
		o.channel = &channel{
			driver: d, client: c, engine: p.EngineType, space: group.space, own: m, userd: p.UserdOffset[0], ring: p.GPFIFOOffset, entries: p.GPFIFOEntries, fault: 0x77_7000_0000,
		}
	case classEvent:
		p := as[nvgpu.NV0005_ALLOC_PARAMETERS](params)
		if o.event, o.file = p.NotifyIndex, d.files[int32(p.Data)]; o.file == nil {
			return badObject
		}
	}
	if err != nil {
		return nvrm.StatusNoMemory
	}
	return 0
}

func (d *Driver) register(c *client, _ *file, arg []byte) uint32 {
	p := &as[nvgpu.IoctlNVOS02ParametersWithFD](arg).Params
	if c.objects[p.HObjectNew.Val] != nil || p.HClass != classHost {
		return badObject
	}
	if addr := uint64(p.PMemory); addr == 0 || addr%page != 0 || (p.Limit+1)%page != 0 {
		return badAddress
	}
	c.objects[p.HObjectNew.Val] = &object{
		parent: p.HObjectParent.Val, class: classHost, view: bytesAt(uint64(p.PMemory), int(p.Limit+1)), size: p.Limit + 1,
	}
	return 0
}

func (d *Driver) free(c *client, _ *file, arg []byte) uint32 {
	p := as[nvgpu.NVOS00_PARAMETERS](arg)
	o := c.objects[p.HObjectOld.Val]
	if o == nil {
		return badObject
	}
	if o.stale { // the driver would free it, and give its directory to another space
		return nvrm.StatusInUse
	}
	for _, other := range c.objects {
		if other.space == o || o.view != nil && other.stale || slices.ContainsFunc(other.maps, func(m mapped) bool { return m.memory == o }) {
			return nvrm.StatusInUse
		}
	}
	c.free(p.HObjectOld.Val)
	return 0
}

func (d *Driver) control(c *client, _ *file, arg []byte) uint32 {
	p := as[nvgpu.NVOS54_PARAMETERS](arg)
	k := controls[p.Cmd]
	if c.objects[p.HObject.Val] == nil {
		return badObject
	} else if k.do == nil || int(p.ParamsSize) != k.size {
		return badStruct
	}
	return k.do(d, c, c.objects[p.HObject.Val], bytesAt(uint64(p.Params), k.size))
}

func disable(d *Driver, c *client, _ *object, params []byte) uint32 {
	p := as[nvgpu.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS](params)
	for _, h := range p.HChannelList[:p.NumChannels] {
		o := c.objects[h.Val]
		if o == nil || o.class != classChannel {
			return badObject
		}
		o.channel.disabled = p.BDisable != 0
		if !o.channel.disabled {
			d.post(c, notifierOf(o.engine)|nonStall)
		}
	}
	return 0
}

func notifierOf(engine uint32) uint32 {
	if engine == 1 {
		return 12
	}
	return 23 + engine - 9
}

func reset(d *Driver, _ *client, o *object, _ []byte) uint32 {
	o.channel.stop(cmp.Or(d.Xid, 43))
	return 0
}

// back gives an object memory of the card.
func (o *object) back(size uint64) (err error) {
	if o.mem, err = memory(size); err == nil {
		o.size = size
		o.view, err = unix.Mmap(int(o.mem.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	return err
}

func word(mem []byte, off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

func load(mem []byte, off uint64) uint32 { return atomic.LoadUint32(word(mem, off)) }

func store(mem []byte, off uint64, v uint32) { atomic.StoreUint32(word(mem, off), v) }

// mapFile makes a file map an object from now on.
func (d *Driver) mapFile(c *client, _ *file, arg []byte) uint32 {
	p := as[nvgpu.IoctlNVOS33ParametersWithFD](arg)
	f, o := d.files[p.FD], c.objects[p.Params.HMemory.Val]
	if f == nil || o == nil || o.mem == nil || p.Params.Length != o.size {
		return badObject
	}
	return become(f, int(o.mem.Fd()))
}

// allocEvents makes a file one of events.
func (d *Driver) allocEvents(_ *client, f *file, _ []byte) uint32 {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nvrm.StatusNoMemory
	}
	defer unix.Close(fd)
	return become(f, fd)
}

func become(f *file, fd int) uint32 {
	if err := unix.Dup3(fd, int(f.os.Fd()), unix.O_CLOEXEC); err != nil {
		return nvrm.StatusNoMemory
	}
	return 0
}

func (d *Driver) eventData(_ *client, f *file, arg []byte) uint32 {
	if len(f.events) == 0 {
		return notFound
	}
	e := f.events[0]
	if f.events = f.events[1:]; len(f.events) == 0 {
		unix.Read(int(f.os.Fd()), make([]byte, 8))
	}
	p := bytesAt(binary.LittleEndian.Uint64(arg), 16)
	return put(p, 0, e.object) | put(p, 4, e.notifier)
}
