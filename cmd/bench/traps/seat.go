package traps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Registers of BAR0 that are accessed: the chip's first, and the last of PBUS's scratch
// registers, which has no effect.
const (
	readRegister  = 0x000000
	writeRegister = 0x0014fc
)

// counted is a card that counts the accesses to BAR0 that arrive.
type counted struct {
	*serve.Device
	reads, writes atomic.Uint64
}

func (d *counted) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR0 {
		d.reads.Add(1)
	}
	return d.Device.ReadRegion(index, off, p)
}

func (d *counted) WriteRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR0 {
		d.writes.Add(1)
	}
	return d.Device.WriteRegion(index, off, p)
}

var (
	_ vfiouser.Device      = (*counted)(nil)
	_ vfiouser.IRQObserver = (*counted)(nil)
)

// arrived says what has arrived since the last call, if it is not what was sent. The device has
// seen everything: the last access was a read.
func (d *counted) arrived(reads, writes int) error {
	r, w := d.reads.Swap(0), d.writes.Swap(0)
	if r != uint64(reads) || w != uint64(writes) {
		return fmt.Errorf("%d reads and %d writes arrived at the device; %d and %d were made", r, w, reads, writes)
	}
	return nil
}

// seat is a card behind one transport, served at a path.
type seat struct {
	path      string
	device    *counted
	transport vfiouser.Transport
	close     func()
}

// takeSeats serves a card by each transport, in a new folder.
func (o *Options) takeSeats(ctx context.Context, dir string) (seats []*seat, free func(), err error) {
	free = func() {
		for _, s := range seats {
			s.close()
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, free, err
	}
	for i, name := range o.Transports {
		s, err := takeSeat(ctx, name, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			free()
			return nil, func() {}, fmt.Errorf("%s: %w", name, err)
		}
		seats = append(seats, s)
	}
	return seats, free, nil
}

func takeSeat(ctx context.Context, name, path string) (*seat, error) {
	by, _, err := serve.TransportNamed(name)
	if err != nil {
		return nil, err
	}
	card, err := soft.New(soft.Config{VRAM: soft.MinVRAM})
	if err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	s := &seat{path: path, device: &counted{Device: serve.NewPassThrough(card)}}
	s.transport, err = by(s.device, vfiouser.Options{Listening: func() { close(listening) }})
	if err != nil {
		return nil, errors.Join(err, card.Close())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until close, so that its end is no error of a client's
	served := make(chan error, 1)
	go func() { served <- s.transport.ListenAndServe(serving, path) }()
	s.close = func() {
		cancel()
		<-served
		s.transport.Close()
		card.Close()
	}
	select {
	case <-listening:
		return s, nil
	case err := <-served:
		served <- err // for close
		s.close()
		return nil, err
	}
}
