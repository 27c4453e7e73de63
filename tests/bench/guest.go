package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// mappedPage is where the variant of the device has its mappable page: the last one
// of BAR0, in which the chip has no register.
const mappedPage = 0xfff000

// pageSize of the mappable page.
const pageSize = 4096

// withPage is a card with one page of BAR0 that QEMU maps into the guest. From then
// on QEMU waits for the reply to each write of any BAR.
type withPage struct {
	*serve.Device
	file *os.File
	page []byte
}

func newWithPage(c *soft.Card) (*withPage, error) {
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	d := &withPage{Device: serve.NewPassThrough(c), file: os.NewFile(uintptr(fd), "page")}
	if err := d.file.Truncate(mappedPage + pageSize); err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	d.page, err = unix.Mmap(fd, mappedPage, pageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), d.file.Close())
	}
	return d, nil
}

func (d *withPage) close() error { return errors.Join(unix.Munmap(d.page), d.file.Close()) }

// Regions implements vfiouser.Device.
func (d *withPage) Regions() []vfiouser.Region {
	r := d.Device.Regions()
	bar := &r[vfiouser.RegionBAR0]
	bar.Flags |= vfiouser.RegionMmap
	bar.File = d.file
	bar.Areas = []vfiouser.SparseArea{{Offset: mappedPage, Size: pageSize}}
	return r
}

var _ vfiouser.IRQObserver = (*withPage)(nil)

// accessKernel is the kernel whose guest program measures accesses.
const accessKernel = "6.12"

// Each repetition is the median of some runs of so many accesses of each kind.
const (
	accesses = 500
	runs     = 5
)

// guestFigures are what is taken from the guest's bench, of which device.
var guestFigures = []struct {
	mapped bool
	what   string
	name   string
}{
	{false, "bar0-read NV_PMC_BOOT_0", "trapped read, nothing mapped"},
	{false, "bar0-write NV_PBUS_SW_SCRATCH(63)", "posted write, nothing mapped"},
	{false, "bar1-write vram", "posted write to VRAM through BAR1"},
	{false, "bar1-read vram", "trapped read of VRAM through BAR1"},
	{true, "bar0-read NV_PMC_BOOT_0", "trapped read, a region mapped"},
	{true, "bar0-write NV_PBUS_SW_SCRATCH(63)", "write, a region mapped: QEMU waits for the reply"},
	{true, fmt.Sprintf("bar0-write %#x", mappedPage), "write to the mapped page"},
	{true, fmt.Sprintf("bar0-read %#x", mappedPage), "read of the mapped page"},
}

// qemu measures a guest's accesses, on a plain card and on one with a mapped page.
func (b *bench) qemu(ctx context.Context) error {
	values := map[bool]map[string][]float64{}
	for _, mapped := range []bool{false, true} {
		var err error
		if values[mapped], err = b.accesses(ctx, mapped); err != nil {
			return fmt.Errorf("region mapped: %v: %w", mapped, err)
		}
	}
	for _, f := range guestFigures {
		v := values[f.mapped][f.what]
		if len(v) != b.repeat {
			return fmt.Errorf("the guest gave %d figures for %s, want %d", len(v), f.what, b.repeat)
		}
		b.add(f.name, nanoseconds, v)
	}
	return nil
}

func (b *bench) accesses(ctx context.Context, mapped bool) (values map[string][]float64, err error) {
	var page *withPage
	cfg := stand.Config{Machine: lab.Config{Kernel: accessKernel, Progress: b.log}}
	args := proto.BenchArgs{Engines: []string{"m2mf"}, Sizes: []uint32{4096}, Rounds: 1, Registers: accesses}
	if mapped {
		args.Offsets = []uint32{mappedPage}
		var failed error
		cfg.Device = func(c *soft.Card) vfiouser.Device {
			if page, failed = newWithPage(c); failed != nil {
				return serve.NewPassThrough(c)
			}
			return page
		}
		defer func() {
			if err = errors.Join(err, failed); page != nil {
				err = errors.Join(err, page.close())
			}
		}()
	}
	s, err := b.boot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.VM.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil); err != nil {
		return nil, err
	}
	values = map[string][]float64{}
	posted := s.Server.Stats().Commands[wire.RegionWrite].Posted
	for range b.repeat {
		several := map[string][]float64{}
		for range runs {
			var r proto.BenchResult
			if err := s.VM.Agent().Call(ctx, proto.CmdBench, args, &r); err != nil {
				return nil, err
			}
			if len(r.Skipped) > 0 {
				return nil, fmt.Errorf("the guest could not measure: %s", strings.Join(r.Skipped, "; "))
			}
			for _, a := range r.Access {
				several[a.What] = append(several[a.What], a.NS)
			}
		}
		for what, v := range several {
			values[what] = append(values[what], median(v))
		}
	}
	// What a write is called must be what it was.
	stats := s.Server.Stats()
	posted = stats.Commands[wire.RegionWrite].Posted - posted
	if multi := stats.Commands[wire.RegionWriteMulti].Messages; mapped && posted+multi > 0 {
		return nil, fmt.Errorf("%d writes were posted although a region is mapped", posted+multi)
	} else if !mapped && posted == 0 {
		return nil, errors.New("no write was posted although no region is mapped")
	}
	// The page is the guest's own window: what it wrote last is in the file.
	if page != nil {
		if got := le.Uint32(page.page); got != accesses-1 {
			return nil, fmt.Errorf("the mapped page holds %d, the guest wrote %d: it was not mapped", got, accesses-1)
		}
	}
	return values, nil
}

// boot starts a machine on a card, and notes what machines run on.
func (b *bench) boot(ctx context.Context, cfg stand.Config) (*stand.Stand, error) {
	s, err := stand.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b.res.QEMU, b.res.Accel = s.VM.QEMUVersion(), s.VM.Accel().Name
	return s, nil
}
