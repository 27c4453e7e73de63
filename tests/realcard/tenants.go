package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// tenant is a guest in this process: the driver of the suites on a GPU of a server.
type tenant struct {
	*rig.Copier
	seq uint32
}

// tenantsOf attaches one to each GPU. They end with the server.
func tenantsOf(s *server) (out []*tenant, err error) {
	for i, socket := range s.sockets {
		c, err := rig.NewCopier(rig.Hopper, socket, guest.Config{RAM: 512 << 20, Map: true}, i)
		if err != nil {
			return out, err
		}
		out = append(out, &tenant{Copier: c})
	}
	return out, nil
}

// with makes a step with a server and its tenants.
func (r *run) with(name string, weights []int, do func(ctx context.Context, s *result, srv *server, t []*tenant) error) {
	r.step(name, 4*time.Minute, func(ctx context.Context, s *result) error {
		srv, err := r.serve(ctx, strings.ReplaceAll(name, "/", "-"), weights...)
		if err != nil {
			return err
		}
		defer func() { srv.Kill(); srv.keep() }()
		t, err := tenantsOf(srv)
		if err != nil {
			return err
		}
		return do(ctx, s, srv, t)
	})
}

// latencies are the times from a submission until its semaphore is there.
func (t *tenant) latencies(ctx context.Context, n int) ([]time.Duration, error) {
	va, p, err := t.MapRAM(4096)
	if err != nil {
		return nil, err
	}
	out := make([]time.Duration, 0, n)
	for range n {
		t.seq++
		began := time.Now()
		if err := t.Ch.Release(va, t.seq); err != nil {
			return out, err
		}
		for binary.LittleEndian.Uint32(p) != t.seq {
			if time.Since(began) > 10*time.Second || ctx.Err() != nil {
				return out, errors.Join(errors.New("a release did not arrive"), context.Cause(ctx), t.Ch.Finish())
			}
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}

func (s *result) notePercentiles(name string, times []time.Duration) {
	slices.Sort(times)
	s.note(name+" p50", float64(times[len(times)/2])/1e3, "us")
	s.note(name+" p99", float64(times[len(times)*99/100])/1e3, "us")
	s.note(name+" worst", float64(times[len(times)-1])/1e3, "us")
}

// figures measures one tenant alone.
func (r *run) figures() {
	r.with("figures/latency", equal(1), func(ctx context.Context, s *result, _ *server, t []*tenant) error {
		times, err := t[0].latencies(ctx, 3000)
		if err != nil {
			return err
		}
		s.notePercentiles("submission to semaphore", times)
		for i := range times {
			began := time.Now()
			t[0].ReadBAR(0, 0, make([]byte, 4))
			times[i] = time.Since(began)
		}
		s.notePercentiles("one trapped read", times)
		if r.card != nvidia {
			return nil
		}
		d, err := MeasureDirect(0)
		s.note("without Umbra p50", float64(d.Latency.P50)/1e3, "us")
		s.note("without Umbra p99", float64(d.Latency.P99)/1e3, "us")
		s.note("without Umbra, card to card", d.Copy, "GB/s")
		s.note("without Umbra, RAM to card", d.Upload, "GB/s")
		s.note("without Umbra, programs", float64(d.Jobs)/1e6/jobsInRow, "ms each")
		return err
	})
	if r.card == soft {
		return
	}
	r.with("figures/programs", equal(1), func(ctx context.Context, s *result, _ *server, t []*tenant) error {
		p, err := t[0].newRunner(3, figureJob)
		if err == nil {
			err = errors.Join(p.start(), p.finish()) // it makes the context
		}
		if err != nil {
			return err
		}
		clear(p.result)
		began := time.Now()
		for range jobsInRow {
			if err := p.start(); err != nil {
				return err
			}
		}
		err = p.Finish()
		s.note("programs", float64(time.Since(began))/1e6/jobsInRow, "ms each")
		return errors.Join(err, p.check(p.result))
	})
	r.with("figures/bandwidth", equal(1), func(ctx context.Context, s *result, _ *server, t []*tenant) error {
		const size = 64 << 20
		card, err := t[0].MapVRAM(2 * size)
		ram, _, ramErr := t[0].MapRAM(size)
		ch, openErr := t[0].Open(copies)
		if err := errors.Join(err, ramErr, openErr); err != nil {
			return err
		}
		for _, c := range []struct {
			name     string
			dst, src uint64
		}{{"card to card", card + size, card}, {"RAM to card", card, ram}, {"card to RAM", ram, card}} {
			const times = 16
			began := time.Now()
			for range times {
				if err := ch.Copy(c.dst, c.src, size); err != nil {
					return err
				}
			}
			if err := ch.Finish(); err != nil {
				return err
			}
			s.note(c.name, times*size/time.Since(began).Seconds()/1e9, "GB/s")
		}
		return nil
	})
	r.with("figures/maps", equal(1), func(ctx context.Context, s *result, _ *server, t []*tenant) error {
		began := time.Now()
		va, err := t[0].MapVRAM(256 << 20)
		if err == nil {
			err = errors.Join(t[0].Ch.Copy(va, t[0].Src, rig.CopySize), t[0].Ch.Finish())
		}
		s.note("256 MiB mapped and used", float64(time.Since(began))/1e6, "ms")
		if err != nil {
			return err
		}
		const pages = 1024
		va, written, err := t[0].Driver.(interface {
			MapPages(int) (uint64, time.Time, error)
		}).MapPages(pages)
		err = errors.Join(err, t[0].Ch.Copy(va+(pages-1)*4096, t[0].Src, 4096), t[0].Ch.Finish())
		s.note("a page of many that lie apart, until the last is used", float64(time.Since(written))/1e3/pages, "us")
		return err
	})
}

// copies is a channel of the engine that all tenants compete for.
const copies = 4

// shareTime is how long tenants work side by side.
const shareTime = 10 * time.Second

// tenants measures several side by side.
func (r *run) tenants() {
	for _, weights := range [][]int{{100, 100}, {100, 300}, equal(8)} {
		name := fmt.Sprintf("tenants/shares-%d-%d", len(weights), weights[len(weights)-1]/100)
		r.with(name, weights, func(ctx context.Context, s *result, srv *server, t []*tenant) error {
			return shares(ctx, s, weights, t, copying)
		})
	}
	r.with("tenants/storm", equal(2), storm)
	r.with("tenants/channels", equal(2), channels)
	if r.card == soft {
		return // it executes no programs of SM90
	}
	for _, weights := range [][]int{{100, 100}, {100, 300}} {
		name := fmt.Sprintf("tenants/programs-2-%d", weights[1]/100)
		r.with(name, weights, func(ctx context.Context, s *result, srv *server, t []*tenant) error {
			return shares(ctx, s, weights, t, computing)
		})
	}
	r.with("tenants/wild", equal(2), wild)
	r.with("tenants/endless", equal(2), endless)
	r.with("tenants/memory", equal(2), memory)
}

// copying is work of 64 MiB a piece, computing is programs.
func copying(t *tenant) (rig.Channel, func() error, error) {
	const size = 64 << 20
	va, err := t.MapVRAM(2 * size)
	ch, openErr := t.Open(copies)
	return ch, func() error { return ch.Copy(va+size, va, size) }, errors.Join(err, openErr)
}

func computing(t *tenant) (rig.Channel, func() error, error) {
	p, err := t.newRunner(3, figureJob)
	if err != nil {
		return nil, nil, err
	}
	return p, p.start, errors.Join(p.start(), p.finish())
}

// shares has all tenants work without a pause, and compares what each got done with its weight.
func shares(ctx context.Context, s *result, weights []int, t []*tenant, work func(*tenant) (rig.Channel, func() error, error)) error {
	moved, errs := make([]float64, len(t)), make(chan error)
	until := time.Now().Add(shareTime)
	for i, t := range t {
		go func() {
			ch, start, err := work(t)
			var wait []func() error // of submissions, whose work takes longer than a time slice
			for err == nil && time.Now().Before(until) && ctx.Err() == nil {
				if err = start(); err != nil {
					break
				}
				var mark func() error
				if mark, err = ch.Mark(); err == nil {
					wait = append(wait, mark)
				}
				if err == nil && len(wait) > 40 {
					err = wait[0]()
					wait = wait[1:]
					moved[i]++
				}
			}
			errs <- err
		}()
	}
	var err error
	for range t {
		err = errors.Join(err, <-errs)
	}
	var all, heaviest float64
	sum := 0
	for i, m := range moved {
		all += m
		sum += weights[i]
	}
	for i, m := range moved {
		got, want := 100*m/max(1, all), 100*float64(weights[i])/float64(sum)
		s.note("share "+vmName(i), got, "%")
		heaviest = max(heaviest, got-want, want-got)
	}
	s.note("all", all/shareTime.Seconds(), "pieces of work a second")
	if heaviest > 3 {
		err = errors.Join(err, fmt.Errorf("a share is %.1f points off", heaviest))
	}
	return err
}

// storm has one tenant fault again and again, and measures the other before and meanwhile.
func storm(ctx context.Context, s *result, _ *server, t []*tenant) error {
	times, err := t[1].latencies(ctx, 1000)
	if err != nil {
		return err
	}
	s.notePercentiles("alone", times)
	stop, faults := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { faults <- n }()
		for id := 10; ; id++ {
			select {
			case <-stop:
				return
			default:
			}
			ch, err := t[0].Open(id%20 + 10)
			if err != nil {
				return
			}
			if ch.Copy(1<<40, t[0].Src, 4096) == nil && ch.Finish() != nil {
				n++
			}
			ch.Close() // fails for a channel that the GPU stopped
		}
	}()
	times, err = t[1].latencies(ctx, 1000)
	for range 20 {
		err = errors.Join(err, t[1].Copy())
	}
	close(stop)
	n := <-faults
	s.note("faults", float64(n), "")
	if len(times) > 0 {
		s.notePercentiles("beside faults", times)
	}
	if n == 0 {
		err = errors.Join(err, errors.New("no fault was caused"))
	}
	return err
}

// manyChannels is as many as a card has, nearly.
const manyChannels = 2000

// channels has one tenant open and use many channels, as many at a time as it may have, and measures the other before and meanwhile.
func channels(ctx context.Context, s *result, _ *server, t []*tenant) error {
	times, err := t[1].latencies(ctx, 1000)
	if err != nil {
		return err
	}
	s.notePercentiles("alone", times)
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		held, err := t[0].useChannels(ctx, manyChannels)
		s.note("channels at a time", float64(held), "")
		done <- err
	}()
	times, copied := nil, 0
	for over := false; !over; {
		more, beside := t[1].latencies(ctx, 100)
		times = append(times, more...)
		err = errors.Join(err, beside, t[1].Copy())
		copied++
		select {
		case wrong := <-done:
			err, over = errors.Join(err, wrong), true
		default:
			over = err != nil
		}
	}
	s.note(fmt.Sprintf("%d channels", manyChannels), time.Since(began).Seconds(), "s")
	s.note("copies beside them", float64(copied), "")
	if len(times) > 0 {
		s.notePercentiles("beside channels", times)
	}
	return err
}

// useChannels opens so many channels. Each copies a page, and stays open until the tenant may have no more.
func (t *tenant) useChannels(ctx context.Context, n int) (most int, err error) {
	type numbered struct {
		rig.Channel
		id int
	}
	var open []numbered
	for next := 10; n > 0 && ctx.Err() == nil; {
		id := next
		ch, err := t.Open(id)
		if err != nil && len(open) == 0 {
			return most, err
		} else if err != nil {
			next = open[0].id
			if err := open[0].Close(); err != nil {
				return most, err
			}
			open = open[1:]
			continue
		}
		if err := errors.Join(ch.Copy(t.Via, t.Src, 4096), ch.Finish()); err != nil {
			return most, fmt.Errorf("channel %d: %w", id, err)
		}
		open, next = append(open, numbered{ch, id}), next+1
		most = max(most, len(open))
		n--
	}
	return most, context.Cause(ctx)
}

// beside measures a tenant's submissions, and checks its copies and programs, while something else goes on.
func (t *tenant) beside(ctx context.Context, s *result, p *runner) error {
	times, err := t.latencies(ctx, 1000)
	if err != nil {
		return err
	}
	s.notePercentiles("beside it", times)
	clear(p.result)
	began := time.Now()
	err = errors.Join(t.Copy(), p.start(), p.finish())
	s.note("a program beside it", time.Since(began).Seconds()*1e3, "ms")
	return err
}

// wild has a tenant's program write where nothing is mapped.
func wild(ctx context.Context, s *result, _ *server, t []*tenant) error {
	bad, err := t[0].newRunner(3, job{blocks: 2048, times: 10, words: 1 << 44})
	good, goodErr := t[1].newRunner(3, figureJob)
	if err := errors.Join(err, goodErr); err != nil {
		return err
	}
	if err := errors.Join(good.start(), good.finish(), bad.start()); err != nil {
		return err
	}
	err = t[1].beside(ctx, s, good)
	if bad.Finish() == nil {
		err = errors.Join(err, errors.New("a program that wrote nowhere was not stopped"))
	}
	clear(good.result)
	return errors.Join(err, good.start(), good.finish())
}

// endless has a tenant's program never end.
func endless(ctx context.Context, s *result, _ *server, t []*tenant) error {
	bad, err := t[0].newRunner(3, job{blocks: 2048, times: 1 << 62})
	good, goodErr := t[1].newRunner(3, figureJob)
	if err := errors.Join(err, goodErr); err != nil {
		return err
	}
	if err := errors.Join(good.start(), good.finish(), bad.start()); err != nil {
		return err
	}
	began := time.Now()
	err = t[1].beside(ctx, s, good)
	if bad.Finish() == nil {
		err = errors.Join(err, errors.New("a program without an end was not stopped"))
	}
	s.note("until it is stopped", time.Since(began).Seconds(), "s")
	clear(good.result)
	return errors.Join(err, good.start(), good.finish(), t[1].Copy(), t[0].Copy())
}

// memory has a tenant take all memory and all channels that it may have.
func memory(ctx context.Context, s *result, _ *server, t []*tenant) error {
	good, err := t[1].newRunner(3, figureJob)
	if err != nil {
		return err
	}
	const most = 3 << 30 // the tables and structures of channels take the rest of 4 GiB
	if _, err := t[0].MapVRAM(most); err != nil {
		return err
	}
	channels := 0
	for id := 10; id < 2100; id++ {
		if _, err := t[0].Open(id); err != nil {
			break
		}
		channels++
	}
	s.note("channels taken", float64(channels), "")
	return t[1].beside(ctx, s, good)
}
