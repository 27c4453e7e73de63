package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// program is what a program that uses a GPU does, in the phases of GPUvm's
// evaluation.
var program = scene.Scenario{
	Scenario: report.Scenario{
		Name: "program", Title: "A program: work by data",
		About: "Init: address space, buffers, channel; host-to-device: the data to VRAM by a copy engine; launch: so many milliseconds " +
			"of busy work; device-to-host: the data back; close: all is given back. Busy work is copies inside VRAM of calibrated length",
	},
	Busy: true,
	Cases: func(run report.Run) (out []scene.Case) {
		for _, ms := range pick(run, []uint64{1, 10}, []uint64{1, 10, 100, 1000}) {
			for _, n := range pick(run, []uint64{0, 1 << 20}, []uint64{0, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
				out = append(out, scene.Case{
					Name:       fmt.Sprintf("%d ms, %s", ms, size(n)),
					Parameters: map[string]string{"work_ms": fmt.Sprint(ms), "bytes": fmt.Sprint(n), "busy_bytes_per_ms": fmt.Sprint(run.BusyBytes)},
					Shape:      setup.Common,
					Run: func(ctx context.Context, t *scene.Take) error {
						cfg := guest.Config{RAM: 2*n + 1<<20, Timeout: patience}
						return attach(ctx, t, cfg, func(g *guest.Guest) error { return runProgram(t, g, ms*run.BusyBytes, n) })
					},
				})
			}
		}
		return out
	},
}

// job is what the program has on the GPU.
type job struct {
	g       *guest.Guest
	space   *guest.Space
	ch      *guest.Channel
	buffers []buffer
}

// start makes the address space, buffers for n bytes, and the channel.
func (j *job) start(n uint64) (err error) {
	if j.space, err = j.g.NewSpace(); err != nil {
		return err
	}
	for _, b := range []struct {
		va, size uint64
		ram      bool
	}{{vaWork, busyBuffer, false}, {vaWork2, busyBuffer, false}, {vaSource, n, true}, {vaVRAM, n, false}, {vaBack, n, true}} {
		if b.size == 0 {
			continue
		}
		m, err := mapped(j.g, j.space, b.va, b.size, b.ram)
		if err != nil {
			return err
		}
		j.buffers = append(j.buffers, m)
	}
	j.ch, err = j.g.NewChannelWith(1, j.space, guest.ChannelConfig{Push: 256 << 10})
	return err
}

func (j *job) end() error {
	if err := errors.Join(j.ch.Close(), unmap(j.space, j.buffers...), j.space.Free()); err != nil {
		return err
	}
	for _, b := range j.buffers {
		if err := b.Free(); err != nil {
			return err
		}
	}
	return nil
}

func runProgram(t *scene.Take, g *guest.Guest, work, n uint64) error {
	j := &job{g: g}
	if err := t.Phase("init", func() error { return errors.Join(j.start(n), settle(g)) }); err != nil {
		return err
	}
	var src, back []byte
	if n > 0 {
		src, back = j.buffers[2].Data, j.buffers[4].Data
		pattern(src, n)
	}
	move := func(dst, from uint64) func() error {
		return func() error {
			if n > 0 {
				if err := j.ch.Copy(guest.CE0, dst, from, n); err != nil {
					return err
				}
			}
			return j.ch.Finish()
		}
	}
	for _, p := range []struct {
		name string
		do   func() error
	}{
		{"host-to-device", move(vaVRAM, vaSource)},
		{"launch", func() error { return busy(j.ch, work) }},
		{"device-to-host", move(vaBack, vaVRAM)},
		{"close", j.end},
	} {
		if err := t.Phase(p.name, func() error { return errors.Join(p.do(), settle(g)) }); err != nil {
			return err
		}
	}
	if !bytes.Equal(src, back) {
		return errors.New("the bytes that came back are not those that were sent")
	}
	return nil
}

// busyBuffer is what busy work copies to and fro, and busyBatch how many copies
// it submits at a time.
const (
	busyBuffer = 2 << 20
	busyBatch  = 64
)

// busy has the first copy engine copy n bytes inside VRAM, and waits.
func busy(ch *guest.Channel, n uint64) error {
	for n > 0 {
		var p guest.Push
		for i := 0; i < busyBatch && n > 0; i++ {
			k := min(n, busyBuffer)
			p.Copy(guest.CE0, vaWork2, vaWork, k)
			n -= k
		}
		if err := ch.Submit(p.Words...); err != nil {
			return err
		}
	}
	return ch.Finish()
}

// Calibrate measures how many bytes of busy work the whole card does in a
// millisecond: the median of some rounds, each long enough that its submission
// does not count.
func Calibrate(ctx context.Context) (bytesPerMS uint64, err error) {
	rows, err := setup.Choose([]string{report.PassThrough})
	if err != nil {
		return 0, err
	}
	b, err := setup.Open(rows[0], setup.Common)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	g, err := b.Seats[0].Attach(ctx, guest.Config{Timeout: patience})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	j := &job{g: g}
	if err := j.start(0); err != nil {
		return 0, err
	}
	const (
		round = 128 << 20
		line  = 4096
	)
	var rates []float64
	for range 7 {
		at := time.Now()
		if err := busy(j.ch, round); err != nil {
			return 0, err
		}
		rates = append(rates, round/(float64(time.Since(at))/1e6))
	}
	// Whole lines, one at least: a copy's last line would be a launch of its own, and without
	// any there would be no work.
	return max(uint64(median(rates))&^(line-1), line), nil
}
