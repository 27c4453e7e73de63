package traps

import (
	"context"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// A guest cannot choose which writes QEMU waits for: the device's property says it for all of
// them. So there are two machines, one after the other.
var guestMachines = []struct {
	what  string
	props map[string]any
	kinds []guestKind
}{
	{"posted writes", nil, []guestKind{
		{"read", false, 0},
		{"32 posted writes and a read, each", true, 32},
		{"1,000 posted writes and a read, each", true, 1000},
	}},
	{"writes that QEMU waits for", map[string]any{"x-no-posted-writes": true}, []guestKind{
		{"write", true, 0},
	}},
}

// guestKind is a kind of access: a loop of them, with a read behind so many.
type guestKind struct {
	name  string
	write bool
	burst int
}

// throughGuest measures what a program in a guest sees.
func (o *Options) throughGuest(ctx context.Context, dir string, r *Report) error {
	for n := range guestMachines {
		if err := o.inMachine(ctx, fmt.Sprint(dir, n), n, r); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) inMachine(ctx context.Context, dir string, n int, r *Report) (err error) {
	seats, free, err := o.takeSeats(ctx, dir)
	if err != nil {
		return err
	}
	defer free()
	m := &guestMachines[n]
	cfg := lab.Config{DeviceProps: m.props, Progress: o.Progress}
	for _, s := range seats {
		cfg.Sockets = append(cfg.Sockets, s.path)
	}
	fmt.Fprintf(o.Progress, "through QEMU, machine %d of %d (%s): booting a guest with %d cards\n", n+1, len(guestMachines), m.what, len(seats))
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	ready, err := vm.Agent().Ready(ctx, 1)
	if err != nil {
		return err
	}
	r.Machine = &Machine{QEMU: vm.QEMUVersion(), Accel: vm.Accel().Name, Kernel: ready.Kernel}
	addresses, err := cardsOf(ctx, vm, len(seats))
	if err != nil {
		return err
	}
	for _, s := range seats {
		s.device.reads.Store(0) // the firmware's and the kernel's
		s.device.writes.Store(0)
	}
	for _, k := range m.kinds {
		fmt.Fprintf(o.Progress, "through QEMU: %s\n", k.name)
		f, err := o.figure(ctx, Guest, k.name, func(i int) (float64, error) {
			return seats[i].ask(ctx, vm, addresses[i], k, o.Count)
		})
		if err != nil {
			return err
		}
		r.Figures = append(r.Figures, f)
	}
	return checkPosting(seats, m.props == nil)
}

// cardsOf finds the cards on the guest's PCI bus, in the order in which QEMU was given them;
// that it was theirs, each card's counters tell.
func cardsOf(ctx context.Context, vm *lab.VM, n int) ([]string, error) {
	var found proto.PCIResult
	if err := vm.Agent().Call(ctx, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &found); err != nil {
		return nil, err
	}
	var out []string
	for _, f := range found.Functions {
		out = append(out, f.Address)
	}
	if len(out) != n {
		return nil, fmt.Errorf("the guest has the cards %v; %d were attached", out, n)
	}
	return out, nil
}

// ask has the guest make one round of accesses to one card.
func (s *seat) ask(ctx context.Context, vm *lab.VM, address string, k guestKind, count int) (float64, error) {
	a := proto.TrapsArgs{Address: address, Offset: readRegister, Write: k.write, Count: count, Burst: k.burst}
	if k.write {
		a.Offset = writeRegister
	}
	var res proto.TrapsResult
	if err := vm.Agent().Call(ctx, proto.CmdTraps, a, &res); err != nil {
		return 0, err
	}
	if !k.write {
		return res.NS, s.device.arrived(res.Reads+res.Count, 0)
	}
	if res.Last != uint32(res.Count) {
		return 0, fmt.Errorf("the register reads %#x after %#x was written", res.Last, res.Count)
	}
	return res.NS, s.device.arrived(res.Reads, res.Count)
}

// checkPosting: what a write is called must be what it was. Our own server counts that.
func checkPosting(seats []*seat, posted bool) error {
	for _, s := range seats {
		if _, ok := s.transport.(*vfiouser.Server); !ok {
			continue
		}
		st := s.transport.Stats()
		n := st.Commands[wire.RegionWrite].Posted + st.Commands[wire.RegionWriteMulti].Posted
		if posted != (n > 0) {
			return fmt.Errorf("QEMU posted %d messages with writes; posted: %v was asked for", n, posted)
		}
	}
	return nil
}
