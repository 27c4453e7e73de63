// Package fakerm is a fake of the host's NVIDIA driver for tests: a nvrm.System without a card. It knows the calls that
// package nvrm makes, checks the sizes of their structures against numbers of its own, and refuses what the driver
// refuses or does not survive: parts of parts of maps without end, and memory that is freed before an invalidate. Memory of
// the card is a memfd. Channels execute copies of class c8b5 and the methods of the host of c86f. Enabling one also reports
// that its engine completed work.
//
// Driver.mu guards all state. Each client with a doorbell has a goroutine that executes its channels, and takes the mutex for
// each piece of work.
package fakerm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Driver is a driver with one card, nvidia0. The exported fields are set before its use.
type Driver struct {
	Version string            // its release, the first that was tried if empty
	Arch    uint32            // of the card, a Hopper's if 0
	Missing map[string]string // errors of device files by name: "missing" or "forbidden"
	Fail    map[int]uint32    // the nth call, from 1, is answered with a status
	Hang    int               // the nth call does not return
	Die     int               // the nth call kills the process
	Xid     uint32            // of a channel that is reset, 43 if 0
	VRAM    uint64            // bytes of the card's memory, 1 GiB if 0

	// Refuse, unless nil, is called with the mutex for each map, and makes it fail by a status.
	Refuse func() uint32 `json:"-"`

	mu      sync.Mutex
	calls   int
	depth   int
	clients map[uint32]*client
	files   map[int32]*file
	next    uint32
	frozen  bool
}

// Calls are the system calls of the fake itself, for a process that may make few.
var Calls = []uint32{unix.SYS_MEMFD_CREATE, unix.SYS_FTRUNCATE, unix.SYS_DUP3}

type client struct {
	ctl     *file
	objects map[uint32]*object
}

type object struct {
	parent, class, event uint32
	size                 uint64   // of memory, and of reserved addresses
	first                uint64   // of those
	space                *object  // of those, and of a group
	maps                 []mapped // of a space, by address
	stale                bool     // they changed since the last invalidate
	mem                  *os.File // of the card's memory
	view                 []byte   // of that, or registered memory
	engine               uint32
	slice                uint64 // of a group
	channel              *channel
	file                 *file // of an event
}

type mapped struct {
	va, end, off, page uint64
	memory             *object
	readOnly           bool
	depth              int
}

// maxDepth is how many levels of parts of a map the driver survives.
const maxDepth = 16

type file struct {
	driver *Driver
	name   string
	os     *os.File
	events []event
}

type event struct{ object, notifier uint32 }

// Statuses, from nvstatuscodes.h.
const (
	badAddress = 0x1e
	badClass   = 0x22
	badObject  = 0x31
	badValue   = 0x1f
	badOffset  = 0x37
	badStruct  = 0x3a
	notFound   = 0x57
)

// Release implements nvrm.System.
func (d *Driver) Release() (string, error) {
	return cmp.Or(d.Version, nvrm.Tried[0]), nil
}

// Open implements nvrm.System.
func (d *Driver) Open(name string) (nvrm.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.Missing[name] == "forbidden":
		return nil, &fs.PathError{Op: "open", Path: "/dev/" + name, Err: unix.EACCES}
	case d.Missing[name] != "" || name != "nvidiactl" && name != "nvidia0":
		return nil, &fs.PathError{Op: "open", Path: "/dev/" + name, Err: unix.ENOENT}
	}
	f, err := memory(0)
	if err != nil {
		return nil, err
	}
	if d.files == nil {
		d.files, d.clients = make(map[int32]*file), make(map[uint32]*client)
	}
	k := &file{driver: d, name: name, os: f}
	d.files[int32(f.Fd())] = k
	return k, nil
}

func memory(size uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate("fakerm", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "fakerm"), nil
}

// Stats are numbers of a driver.
type Stats struct {
	Calls                      int // that were made
	Depth                      int // most levels of parts of maps, ever
	Objects                    int // of all classes, and those of some:
	Memories, Spaces, Channels int
	Running                    int    // channels that are not disabled
	Slice                      uint64 // of some channel
	Pages                      int    // that are mapped below nvrm.OwnFirst
}

// Stats returns the driver's numbers.
func (d *Driver) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Calls: d.calls, Depth: d.depth}
	for _, c := range d.clients {
		s.Objects += len(c.objects)
		for _, o := range c.objects {
			switch o.class {
			case classVRAM, classHost:
				s.Memories++
			case classSpace:
				s.Spaces++
				for _, m := range o.maps {
					if m.va < nvrm.OwnFirst {
						s.Pages += int((m.end - m.va) / page)
					}
				}
			case classGroup:
				s.Slice = o.slice
			case classChannel:
				if s.Channels++; !o.channel.disabled {
					s.Running++
				}
			}
		}
	}
	return s
}

// Freeze makes channels execute nothing, as while others have the card.
func (d *Driver) Freeze(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen = on
}

// At returns the memory behind an address of the only space from there to the end of its page, nil if nothing is mapped.
func (d *Driver) At(va uint64) (mem []byte, readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		for _, o := range c.objects {
			if o.class == classSpace {
				return o.at(va)
			}
		}
	}
	return nil, false
}

// OS implements nvrm.File.
func (f *file) OS() *os.File { return f.os }

// Close implements nvrm.File. That of a client's control file frees all that the client has.
func (f *file) Close() error {
	d := f.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, int32(f.os.Fd()))
	for root, c := range d.clients {
		if c.ctl == f {
			c.free(root)
			delete(d.clients, root)
		}
	}
	return f.os.Close()
}

// Ioctl implements nvrm.File.
func (f *file) Ioctl(number uint8, arg []byte) error {
	d := f.driver
	d.mu.Lock()
	d.calls++
	n := d.calls
	d.mu.Unlock()
	switch n {
	case d.Hang:
		time.Sleep(time.Hour)
	case d.Die:
		unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGKILL)
	}
	k, ok := escapes[number]
	if !ok || len(arg) != k.size {
		return fmt.Errorf("fakerm: call %#x with a structure of %d bytes: %w", number, len(arg), unix.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	status := d.Fail[n]
	if c := d.clients[binary.LittleEndian.Uint32(arg)]; status == 0 && (c != nil || k.free) {
		status = k.do(d, c, f, arg)
	} else if status == 0 {
		status = badObject
	}
	if k.status > 0 {
		binary.LittleEndian.PutUint32(arg[k.status:], status)
	} else if status != 0 {
		return unix.EIO
	}
	return nil
}

// free ends an object and those below it, the memory's maps too.
func (c *client) free(h uint32) {
	for child, o := range c.objects {
		if o.parent == h && child != h {
			c.free(child)
		}
	}
	if o := c.objects[h]; o != nil && o.mem != nil {
		o.mem.Close()
		unix.Munmap(o.view)
		o.view = nil
	} else if o != nil && o.channel != nil {
		o.channel.stopped = true
	}
	delete(c.objects, h)
}

// post reports an event to the files that listen to it: those of the client for an error, else those of all.
func (d *Driver) post(c *client, notifier uint32) {
	for _, other := range d.clients {
		for h, o := range other.objects {
			if o.class == classEvent && o.event == notifier && (other == c || notifier != notifyError) {
				o.file.events = append(o.file.events, event{h, notifier &^ nonStall})
				unix.Write(int(o.file.os.Fd()), []byte{1, 0, 0, 0, 0, 0, 0, 0})
			}
		}
	}
}

// mapMemory maps memory where nothing is mapped.
func (d *Driver) mapMemory(c *client, _ *file, arg []byte) uint32 {
	const fixed = 1 << 15
	p := as[nvgpu.NVOS46_PARAMETERS_V580](arg)
	r, m := c.objects[p.Dma.Val], c.objects[p.Memory.Val]
	size := uint64(page)
	switch p.Flags >> 8 & 0xf {
	case 2:
		size = 64 << 10
	case 4:
		size = 2 << 20
	}
	switch {
	case r == nil || r.class != classRange && r.class != classWhole || m == nil || m.view == nil:
		return badObject
	case p.Flags&fixed == 0 || p.DmaOffset < r.first || p.Length == 0 || p.Length > r.first+r.size-p.DmaOffset || (p.DmaOffset|p.Length|p.Offset)%size != 0:
		return badAddress
	case p.Offset > m.size || p.Length > m.size-p.Offset || m.mem == nil && size != page:
		return badOffset
	}
	s, end := r.space, p.DmaOffset+p.Length
	i := sort.Search(len(s.maps), func(i int) bool { return s.maps[i].va >= end })
	if i > 0 && s.maps[i-1].end > p.DmaOffset {
		return badValue
	}
	if d.Refuse != nil {
		if status := d.Refuse(); status != 0 {
			return status
		}
	}
	s.maps, s.stale = slices.Insert(s.maps, i, mapped{p.DmaOffset, end, p.Offset, size, m, p.Flags&1 != 0, 0}), true
	return 0
}

// unmapMemory unmaps what maps of the memory map in a range. What is left of a map is a level deeper.
func (d *Driver) unmapMemory(c *client, _ *file, arg []byte) uint32 {
	p := as[nvgpu.NVOS47_PARAMETERS_V550](arg)
	r, m := c.objects[p.Dma.Val], c.objects[p.Memory.Val]
	if r == nil || r.class != classRange && r.class != classWhole || m == nil {
		return badObject
	}
	var left []mapped
	found := uint64(0)
	for _, k := range r.space.maps {
		va, end := max(k.va, p.DmaOffset), min(k.end, p.DmaOffset+p.Size)
		if k.memory != m || va >= end {
			left = append(left, k)
			continue
		}
		if r.class == classWhole && (k.va < va || end < k.end) || (va|end)%k.page != 0 || k.depth == maxDepth {
			return badAddress // parts of maps can be unmapped in reserved ranges only
		}
		found += end - va
		low, high := k, k
		low.end, high.va, high.off = va, end, k.off+end-k.va
		for _, rest := range []mapped{low, high} {
			if rest.depth++; rest.va < rest.end {
				left, d.depth = append(left, rest), max(d.depth, rest.depth)
			}
		}
	}
	if r.space.maps, r.space.stale = left, true; found != p.Size {
		return notFound
	}
	return 0
}

// at returns the memory that a space maps at an address, to the end of its page.
func (o *object) at(va uint64) (mem []byte, readOnly bool) {
	i := sort.Search(len(o.maps), func(i int) bool { return o.maps[i].end > va })
	if i == len(o.maps) || o.maps[i].va > va {
		return nil, false
	}
	m := &o.maps[i]
	off := m.off + va - m.va
	return m.memory.view[off : off&^(page-1)+page], m.readOnly
}
