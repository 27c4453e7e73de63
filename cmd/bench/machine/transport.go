package machine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// A device property decides which writes QEMU posts, so it takes two machines. One guest without a
// driver has the cards of all transports at once.
var transportMachines = []struct {
	posted bool
	props  map[string]any
	kinds  []accessKind
}{
	{true, nil, []accessKind{
		{"read", false, 0},
		{"32-posted-writes-and-a-read", true, 32},
		{"1000-posted-writes-and-a-read", true, 1000},
	}},
	{false, map[string]any{"x-no-posted-writes": true}, []accessKind{{"write", true, 0}}},
}

// accessKind is a loop of accesses, with a read behind each burst.
type accessKind struct {
	name  string
	write bool
	burst int
}

// Registers that are accessed: the chip's first, and a scratch register without effect.
const (
	readRegister  = 0x000000
	writeRegister = 0x0014fc
)

// Transport measures a guest's accesses by each transport, by turns.
func Transport(ctx context.Context, turns int, quick bool, kernel string, progress io.Writer, add func(setup string, m Measured)) error {
	for i := range transportMachines {
		if err := transportMachine(ctx, i, turns, quick, kernel, progress, add); err != nil {
			return err
		}
	}
	return nil
}

func transportMachine(ctx context.Context, i, turns int, quick bool, kernel string, progress io.Writer, add func(string, Measured)) (err error) {
	m := &transportMachines[i]
	cfg := lab.Config{Kernel: kernel, DeviceProps: m.props, Progress: progress}
	var beds []*setup.Bed
	for _, row := range setup.Transports() {
		b, openErr := setup.Open(row, setup.Common)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		beds = append(beds, b)
		cfg.Sockets = append(cfg.Sockets, b.Endpoints[0].Socket)
	}
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	var cards proto.PCIResult // in the order of the sockets
	if err := vm.Agent().Call(ctx, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &cards); err != nil {
		return err
	}
	if len(cards.Functions) != len(beds) {
		return fmt.Errorf("the guest has %d cards, want %d", len(cards.Functions), len(beds))
	}
	count := 4000
	if quick {
		count = 400
	}
	for turn := range turns {
		for _, k := range m.kinds {
			for j := range beds {
				at := (turn + j) % len(beds)
				values, err := k.ask(ctx, vm, beds[at], cards.Functions[at].Address, count, m.posted)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", beds[at].Row.Name, k.name, err)
				}
				add(beds[at].Row.Name, Measured{result.Transport, "linux=" + kernel + "/" + k.name, values})
			}
		}
	}
	return nil
}

// ask has the guest make one round of accesses to one card.
func (k *accessKind) ask(ctx context.Context, vm *lab.VM, bed *setup.Bed, address string, count int, posted bool) ([]result.Value, error) {
	a := proto.TrapsArgs{Address: address, Offset: readRegister, Write: k.write, Count: count, Burst: k.burst}
	if k.write {
		a.Offset = writeRegister
	}
	t := &scene.Take{Bed: bed}
	var r proto.TrapsResult
	if err := t.Phase("accesses", func() error { return vm.Agent().Call(ctx, proto.CmdTraps, a, &r) }); err != nil {
		return nil, err
	}
	if n := t.Count(result.Traps); n < float64(r.Count+r.Reads) {
		return nil, fmt.Errorf("%v accesses arrived at the device, of %d", n, r.Count+r.Reads)
	}
	if k.write && r.Last != uint32(r.Count) {
		return nil, fmt.Errorf("the register reads %#x after %#x was written", r.Last, r.Count)
	}
	if bed.Row.Name == setup.Transports()[0].Name && k.write && posted != (t.Count("posted/op") > 0) {
		return nil, fmt.Errorf("QEMU posted %v writes; posting: %v", t.Count("posted/op"), posted)
	}
	t.Per(r.Count)
	t.Time(r.NS)
	return t.Values(), nil
}
