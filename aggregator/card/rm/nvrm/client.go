package nvrm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Handle names an object of a client.
type Handle uint32

// Client is a client of the resource manager, with one card.
type Client struct {
	sys       System
	ctl, card File
	minor     int
	root      Handle
	device    Handle
	subdevice Handle
	last      Handle
}

// Error is an answer of the resource manager that refuses a call.
type Error struct {
	Call   string
	Status uint32 // of nvstatuscodes.h
}

func (e *Error) Error() string {
	if name := statusNames[e.Status]; name != "" {
		return fmt.Sprintf("%s: the NVIDIA driver answers %s", e.Call, name)
	}
	return fmt.Sprintf("%s: the NVIDIA driver answers status %#x", e.Call, e.Status)
}

// Statuses that callers tell apart.
const (
	StatusBusy      = 0x03 // NV_ERR_BUSY_RETRY
	StatusLost      = 0x0f // NV_ERR_GPU_IS_LOST
	StatusInUse     = 0x17
	StatusResources = 0x1a // NV_ERR_INSUFFICIENT_RESOURCES
	StatusForbidden = 0x1b // NV_ERR_INSUFFICIENT_PERMISSIONS
	StatusNoMemory  = 0x51
	StatusTimeout   = 0x65
)

var statusNames = map[uint32]string{
	StatusBusy: "busy", StatusLost: "that the card has fallen off the bus", StatusInUse: "in use", StatusResources: "insufficient resources",
	StatusForbidden: "insufficient permissions", 0x1e: "invalid address", 0x1f: "invalid argument", 0x22: "invalid class", 0x2e: "invalid limit",
	0x31: "invalid object", 0x37: "invalid offset", 0x3a: "invalid structure", 0x40: "invalid state", StatusNoMemory: "no memory",
	0x56: "not supported", 0x57: "object not found", StatusTimeout: "timeout",
}

// Is reports whether err is an answer with the status.
func Is(err error, status uint32) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// again makes a call, and makes it again while it is answered with a status that passes, for as long as patience lasts.
func again(status uint32, patience time.Duration, do func() error) error {
	const pause = 5 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if err := do(); !Is(err, status) || time.Now().After(end) {
			return err
		}
	}
}

// crowded is how long to try for page tables. All clients share the driver's stock of memory for them, and each fills it
// only before its own call: clients that make contexts or map at the same moment find it empty (seen with eight on an H200).
const crowded = 50 * time.Millisecond

func check(call string, err error, status uint32) error {
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if status != nvgpu.NV_OK {
		return &Error{call, status}
	}
	return nil
}

// Open makes a client for the card /dev/nvidia<minor>. A release that was never tried is refused, unless untried.
func Open(sys System, minor int, untried bool) (*Client, error) {
	release, err := sys.Release()
	if err != nil {
		return nil, err
	}
	if err := CheckRelease(release, untried); err != nil {
		return nil, err
	}
	c := &Client{sys: sys, minor: minor}
	if err := c.open(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) open() (err error) {
	if c.ctl, err = open(c.sys, "nvidiactl"); err != nil {
		return err
	}
	if c.root, err = alloc(c, "make a client", 0, classRoot, new(struct{})); err != nil {
		return err
	}
	id, err := c.cardID()
	if err != nil {
		return err
	}
	if c.card, err = c.newFile(); err != nil {
		return err
	}
	number := idParams{GPU: id}
	if err := control(c, "number the card", c.root, ctrlID, &number); err != nil {
		return err
	}
	// Each channel names its address space.
	const spacesByChannel = 2 // NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES
	c.device, err = alloc(c, "open the card", c.root, classDevice, &nvgpu.NV0080_ALLOC_PARAMETERS{DeviceID: number.Device, HClientShare: handle(c.root), VAMode: spacesByChannel})
	if err != nil {
		return err
	}
	if c.subdevice, err = alloc(c, "open the card", c.device, classSubdevice, &nvgpu.NV2080_ALLOC_PARAMETERS{}); err != nil {
		return err
	}
	var arch archParams
	if err := control(c, "ask the card's architecture", c.subdevice, ctrlArch, &arch); err != nil {
		return err
	}
	if arch.Architecture != archHopper {
		return fmt.Errorf("the card nvidia%d has architecture %#x, and channels of a GH100 need a Hopper, %#x: name another card", c.minor, arch.Architecture, archHopper)
	}
	return nil
}

// newFile opens the card's device file for the client.
func (c *Client) newFile() (File, error) {
	f, err := open(c.sys, fmt.Sprintf("nvidia%d", c.minor))
	if err != nil {
		return nil, err
	}
	if err := call(f, nvgpu.NV_ESC_REGISTER_FD, &nvgpu.IoctlRegisterFD{CtlFD: int32(c.ctl.OS().Fd())}); err != nil {
		f.Close()
		return nil, fmt.Errorf("register nvidia%d: %w", c.minor, err)
	}
	return f, nil
}

// Close ends the client: the driver frees all that it has.
func (c *Client) Close() error {
	var err error
	for _, f := range []File{c.card, c.ctl} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

func (c *Client) newHandle() Handle {
	c.last++
	return 0xca000000 + c.last
}

func handle(h Handle) nvgpu.Handle { return nvgpu.Handle{Val: uint32(h)} }

// alloc makes an object with the parameters of its class.
func alloc[T any](c *Client, what string, parent Handle, class nvgpu.ClassID, p *T) (Handle, error) {
	h := c.newHandle()
	if class == classRoot {
		h = 0 // the driver chooses
	}
	a := nvgpu.NVOS64_PARAMETERS{HRoot: handle(c.root), HObjectParent: handle(parent), HObjectNew: handle(h), HClass: class}
	err := pinned(p, func(addr uint64, size uint32) error {
		if size > 0 {
			a.PAllocParms, a.ParamsSize = nvgpu.P64(addr), size
		}
		return call(c.ctl, nvgpu.NV_ESC_RM_ALLOC, &a)
	})
	return Handle(a.HObjectNew.Val), check(what, err, a.Status)
}

// control asks or changes an object.
func control[T any](c *Client, what string, object Handle, cmd uint32, p *T) error {
	a := nvgpu.NVOS54_PARAMETERS{HClient: handle(c.root), HObject: handle(object), Cmd: cmd}
	err := pinned(p, func(addr uint64, size uint32) error {
		a.Params, a.ParamsSize = nvgpu.P64(addr), size
		return call(c.ctl, nvgpu.NV_ESC_RM_CONTROL, &a)
	})
	return check(what, err, a.Status)
}

// free ends an object and those below it.
func (c *Client) free(what string, parent, h Handle) error {
	a := nvgpu.NVOS00_PARAMETERS{HRoot: handle(c.root), HObjectParent: handle(parent), HObjectOld: handle(h)}
	return check(what, call(c.ctl, nvgpu.NV_ESC_RM_FREE, &a), a.Status)
}

// cardID finds the driver's name of the card.
func (c *Client) cardID() (uint32, error) {
	var cards [nvgpu.NV_MAX_DEVICES]nvgpu.IoctlCardInfo
	if err := call(c.ctl, nvgpu.NV_ESC_CARD_INFO, &cards); err != nil {
		return 0, fmt.Errorf("list the cards: %w", err)
	}
	var has []string
	for i := range cards {
		if k := &cards[i]; k.Valid != 0 && int(k.MinorNumber) == c.minor {
			return k.GPUID, nil
		} else if k.Valid != 0 {
			has = append(has, fmt.Sprintf("nvidia%d", k.MinorNumber))
		}
	}
	return 0, fmt.Errorf("the NVIDIA driver has no card nvidia%d; its cards: %s", c.minor, cmp.Or(strings.Join(has, ", "), "none"))
}

// Info describes a card.
type Info struct {
	Name        string
	Total, Free uint64 // bytes
	Copies      []int  // its copy engines, by number
	Culling     Culling
}

// Culling is what the hardware that culls by depth needs of a program: NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS,
// and the bytes in which a channel's part of it is saved.
type Culling struct {
	Words   [10]uint32
	Context uint32
}

// Info asks what the card is and has.
func (c *Client) Info() (Info, error) {
	var name nameParams
	if err := control(c, "ask the card's name", c.subdevice, ctrlName, &name); err != nil {
		return Info{}, err
	}
	fb := fbInfoParams{N: 2, Items: [128]infoItem{{Index: fbTotal}, {Index: fbFree}}}
	if err := control(c, "ask the card's memory", c.subdevice, ctrlFBInfo, &fb); err != nil {
		return Info{}, err
	}
	var list enginesParams
	if err := control(c, "ask the card's engines", c.subdevice, ctrlEngines, &list); err != nil {
		return Info{}, err
	}
	info := Info{Name: cString(name.Name[:]), Total: uint64(fb.Items[0].Value) << 10, Free: uint64(fb.Items[1].Value) << 10}
	for _, e := range list.List[:min(list.N, uint32(len(list.List)))] {
		if e >= engineCopy && e < engineCopy+10 {
			info.Copies = append(info.Copies, int(e-engineCopy))
		}
	}
	slices.Sort(info.Copies)
	var cull cullingParams
	if err := control(c, "ask about culling by depth", c.subdevice, ctrlCulling, &cull); err != nil {
		return Info{}, err
	}
	context := contextParams{ID: contextCulling}
	if err := control(c, "ask the size of a context", c.device, ctrlContext, &context); err != nil {
		return Info{}, err
	}
	info.Culling = Culling{cull.Words, context.Size}
	return info, nil
}
