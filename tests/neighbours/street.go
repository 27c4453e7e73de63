package neighbours

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/stand"
)

const (
	houses  = 8 // the nuisance's is one of them
	houseMB = 64
	tables  = 4 << 20
)

// Street is a card with residents, and one house for a nuisance.
type Street struct {
	*stand.Shared
	Residents []*Resident
	Nuisance  *guest.Guest
	Seat      *stand.Endpoint // the nuisance's

	options options.Combination
	limits  aggregator.Options
}

// NewStreet makes one where all have such options. set, if not nil, changes limits.
func NewStreet(c options.Combination, set func(*aggregator.Options)) (s *Street, err error) {
	s = &Street{options: c}
	if s.limits, err = c.Limits(); err != nil {
		return nil, err
	}
	if set != nil {
		set(&s.limits)
	}
	s.Shared, err = stand.NewSharedWith(stand.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: s.limits})
	if err != nil {
		return nil, err
	}
	for i := range houses {
		if err := s.move(i); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// move has a guest move into house i: the nuisance into the first.
func (s *Street) move(i int) error {
	gpu, err := s.options.GPU(fmt.Sprintf("house%d", i), houseMB<<20)
	if err != nil {
		return err
	}
	gpu.Share.Tables = tables
	seat, err := s.Add(gpu)
	if err != nil {
		return err
	}
	g, err := guest.Attach(context.Background(), seat.Socket, guest.Config{RAM: 2 << 20, Map: s.options.Maps(), Timeout: time.Minute})
	if err != nil {
		return err
	}
	if i == 0 {
		s.Nuisance, s.Seat = g, seat
		return nil
	}
	r := &Resident{g: g, seat: seat}
	s.Residents = append(s.Residents, r)
	return r.prepare(byte(i))
}

// Close ends it all.
func (s *Street) Close() error {
	var errs []error
	for _, r := range s.Residents {
		errs = append(errs, r.g.Close())
	}
	if s.Nuisance != nil {
		errs = append(errs, s.Nuisance.Close())
	}
	return errors.Join(append(errs, s.Shared.Close())...)
}

// Live has the residents live until the street's nuisance, or whatever f does, has
// ended, and returns how long each of their copies took.
func (s *Street) Live(f func() error) (took []time.Duration, err error) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(s.Residents))
	times := make([][]time.Duration, len(s.Residents))
	for i, r := range s.Residents {
		wg.Go(func() { times[i], errs[i] = r.live(stop.Load) })
	}
	err = f()
	stop.Store(true)
	wg.Wait()
	return slices.Concat(times...), errors.Join(append(errs, err)...)
}

// Resident copies a little now and then, and looks whether it was done.
type Resident struct {
	g         *guest.Guest
	seat      *stand.Endpoint
	ch        *guest.Channel
	src, back *guest.Buffer
	done      uint64
}

const (
	srcVA, viaVA, backVA = 0x1000_0000, 0x1100_0000, 0x1200_0000
	copySize             = 16 << 10
	// rest is how long a resident does nothing: all together leave the processors alone
	// for most of the time.
	rest = 10 * time.Millisecond
)

func (r *Resident) prepare(seed byte) (err error) {
	space, err := r.g.NewSpace()
	if err != nil {
		return err
	}
	if r.src, err = r.g.AllocRAM(copySize); err != nil {
		return err
	}
	if r.back, err = r.g.AllocRAM(copySize); err != nil {
		return err
	}
	via, err := r.g.AllocVRAM(copySize)
	if err != nil {
		return err
	}
	for i := range r.src.Data {
		r.src.Data[i] = seed ^ byte(i*7)
	}
	if err := errors.Join(space.Map(srcVA, r.src, guest.Small), space.Map(viaVA, via, guest.Small), space.Map(backVA, r.back, guest.Small)); err != nil {
		return err
	}
	r.ch, err = r.g.NewChannelWith(1, space, guest.ChannelConfig{RingRAM: true, PushRAM: true})
	return err
}

// live copies once at least: the others may have ended before it gets a processor.
func (r *Resident) live(stop func() bool) (took []time.Duration, err error) {
	for ended := false; !ended; ended = stop() {
		time.Sleep(rest)
		begin := time.Now()
		if err := r.copy(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

func (r *Resident) copy() error {
	clear(r.back.Data)
	e := guest.CopyEngines[r.done%uint64(len(guest.CopyEngines))]
	r.done++
	if err := errors.Join(r.ch.Copy(e, viaVA, srcVA, copySize), r.ch.Copy(e, backVA, viaVA, copySize), r.ch.Finish()); err != nil {
		return err
	}
	if !bytes.Equal(r.src.Data, r.back.Data) {
		return fmt.Errorf("%s: copy %d came back changed", r.seat.Guest.Name(), r.done)
	}
	return nil
}
