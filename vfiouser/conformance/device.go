package conformance

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// device is the server's description of its device, by which cases are chosen.
type device struct {
	caps    client.Capabilities
	info    wire.DeviceInfo
	regions []wire.RegionInfo
	irqs    []wire.IRQInfo
	feature map[uint32]bool // DEVICE_FEATURE numbers that can be probed
}

// The indexes of PCI.
const (
	regionROM    = 6
	regionConfig = 7
	irqINTx      = 0
	irqMSIX      = 2
	irqErr       = 3
	irqReq       = 4
	numIRQs      = 5
)

// interruptLine is PCI's register for software to keep a number in.
const interruptLine = 0x3c

func discover(o *Options) (dev *device, err error) {
	s := &session{o: o}
	defer s.close()
	dev = &device{feature: make(map[uint32]bool)}
	return dev, stopped(func() { dev.discover(s.dial()) })
}

func (d *device) discover(c *client.Client) {
	tell := func(m message, least int) []byte {
		a := reply(c, m, -1, "%v", m.Command)
		if len(a.body) < least {
			panic(stop{fmt.Errorf("%v got %v", m.Command, a)})
		}
		return a.body
	}
	caps, err := client.ParseVersion(tell(versionMessage(0, 0, client.QEMUCapabilities), wire.VersionSize))
	must(err, "VERSION")
	d.caps = caps
	d.info = wire.Parse[wire.DeviceInfo](tell(deviceInfoMessage(wire.DeviceInfoSize), wire.DeviceInfoSize))
	for i := range min(d.info.NumRegions, 64) {
		d.regions = append(d.regions, wire.Parse[wire.RegionInfo](tell(regionInfoMessage(i, wire.RegionInfoSize), wire.RegionInfoSize)))
	}
	for i := range min(d.info.NumIRQs, 64) {
		d.irqs = append(d.irqs, wire.Parse[wire.IRQInfo](tell(irqInfoMessage(i, wire.IRQInfoSize), wire.IRQInfoSize)))
	}
	for _, n := range append(slices.Clone(migrates), logging...) {
		d.feature[n] = ask(c, featureMessage(n|wire.FeatureProbe, nil)).kind == answered
	}
}

// irq is the index with the most vectors, of INTx, MSI and MSI-X.
func (d *device) irq() (index, count uint32) {
	for i := range min(len(d.irqs), irqMSIX+1) {
		if n := d.irqs[i].Count; n >= count && n > 0 {
			index, count = uint32(i), n
		}
	}
	return index, count
}

// find returns the first of some regions that is as wanted.
func find(regions []wire.RegionInfo, is func(r wire.RegionInfo) bool) (r wire.RegionInfo, ok bool) {
	if i := slices.IndexFunc(regions, is); i >= 0 {
		return regions[i], true
	}
	return r, false
}

func (d *device) absentRegion() (uint32, bool) {
	i := slices.IndexFunc(d.regions, func(r wire.RegionInfo) bool { return r.Size == 0 })
	return uint32(i), i >= 0
}

func (d *device) mappable() (wire.RegionInfo, bool) {
	return find(d.regions, func(r wire.RegionInfo) bool { return r.Flags&wire.RegionFlagMmap != 0 })
}

func (d *device) bar() (wire.RegionInfo, bool) {
	return find(d.regions[:min(len(d.regions), regionROM)], func(r wire.RegionInfo) bool {
		return r.Size > 0 && r.Flags&wire.RegionFlagRead != 0
	})
}

func (d *device) config() (wire.RegionInfo, bool) {
	return find(d.regions[min(len(d.regions), regionConfig):min(len(d.regions), regionConfig+1)], func(r wire.RegionInfo) bool { return r.Size > 0 })
}

// page is the size of the pages that memory is mapped by.
const page = 4096

type memory struct{ fd int }

// memory makes n bytes that a server can map, and that can be sealed against writing once no
// writable mapping is left: so a case can check that the server has unmapped them.
func (s *session) memory(n int) memory {
	fd, err := unix.MemfdCreate("conformance", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(err, "memfd_create")
	s.undo = append(s.undo, func() { unix.Close(fd) })
	must(unix.Ftruncate(fd, int64(n)), "ftruncate")
	return memory{fd}
}

// mapped reports whether any process has a writable mapping of m. If not, m is sealed from
// then on.
func (m memory) mapped() bool {
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return err != nil
}

func (s *session) eventfd() *client.EventFD {
	e, err := client.NewEventFD()
	must(err, "eventfd")
	s.undo = append(s.undo, func() { e.Close() })
	return e
}

// pipe is a pipe whose read end reports when the last write end is closed.
type pipe struct {
	r, w     int
	patience time.Duration
}

func (s *session) pipe() *pipe {
	var p [2]int
	must(unix.Pipe2(p[:], unix.O_CLOEXEC), "pipe")
	t := &pipe{p[0], p[1], s.o.patience()}
	s.undo = append(s.undo, func() {
		unix.Close(t.r)
		t.drop()
	})
	return t
}

func (t *pipe) drop() {
	if t.w >= 0 {
		unix.Close(t.w)
		t.w = -1
	}
}

// closed reports whether every copy of the write end is closed, waiting as for an answer.
func (t *pipe) closed() bool {
	t.drop()
	return within(t.patience, func() bool {
		p := [1]unix.PollFd{{Fd: int32(t.r), Events: unix.POLLIN}}
		n, err := unix.Poll(p[:], 50)
		return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
	})
}

// within polls a condition every few milliseconds, and once more when the time is up,
// because this process may have been descheduled.
func within(patience time.Duration, is func() bool) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		late := time.Now().After(deadline)
		if is() {
			return true
		}
		if late {
			return false
		}
	}
}
