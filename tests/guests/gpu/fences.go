package gpu

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Fences makes many small submissions, waits for each batch, and finds in memory what
// each must have written by then. Unless told not to, it then chains copies across channels,
// where only the kernel's own semaphores keep the order.
func (e *Env) Fences(a proto.FencesArgs) (res proto.FencesResult, err error) {
	count, batch := cmp.Or(a.Count, 500), cmp.Or(a.Batch, 1)
	dev, err := e.Open()
	if err != nil {
		return res, err
	}
	defer closeInto(dev, &err)
	if err := fenceWaits(dev, count, batch, &res); err != nil {
		return res, err
	}
	if !a.SubmitOnly {
		if err := fenceChain(dev, &res); err != nil {
			return res, err
		}
	}
	if res.Wrong+res.CrossWrong > 0 {
		err = fmt.Errorf("%d of %d waits ended early, %d of %d copies across channels came out wrong", res.Wrong, res.Waits, res.CrossWrong, res.CrossCopies)
	}
	return res, err
}

func fenceWaits(dev Device, count, batch int, res *proto.FencesResult) (err error) {
	s, err := NewStream(dev)
	if err != nil {
		return err
	}
	defer closeInto(s, &err)
	page, err := dev.NewBuffer(4096, drm.DomainGART)
	if err != nil {
		return err
	}
	defer closeInto(page, &err)
	m, err := page.Bytes()
	if err != nil {
		return err
	}
	var b push.Buffer
	latencies := make([]int64, 0, count)
	word(m, 0).Store(^uint32(0))
	for i := range count {
		start := time.Now()
		for k := range batch {
			b.Reset()
			s.chip.release(&b, page.VA(), uint32(i*batch+k))
			if err := s.Submit(&b, ref(page, drm.DomainGART, true)); err != nil {
				return err
			}
		}
		if err := wait(page, false); err != nil {
			return err
		}
		latencies = append(latencies, time.Since(start).Nanoseconds())
		res.Pushes += batch
		res.Waits++
		if got := word(m, 0).Load(); got != uint32(i*batch+batch-1) {
			res.Wrong++
		}
	}
	res.MedianNS, res.P99NS = quantiles(latencies)
	return s.ch.Alive()
}

// A chain of copies goes round its channels several times.
const (
	chainBytes  = 64 << 10 // of each buffer
	chainRounds = 4
	channels    = 3
)

func fenceChain(dev Device, res *proto.FencesResult) (err error) {
	s, err := NewStream(dev)
	if err != nil {
		return err
	}
	k := &copier{s: s}
	defer closeInto(k, &err)
	streams := make([]*Stream, channels)
	for i := range streams {
		if streams[i], err = NewStream(dev); err != nil {
			return err
		}
		defer closeInto(streams[i], &err)
		if err := streams[i].use(streams[i].chip.mover.Object()); err != nil {
			return err
		}
	}
	want := make([]byte, chainBytes)
	fill(want, 0xc0ffee)
	poison := make([]byte, chainBytes)
	complement(poison, want)
	buffers := make([]Buffer, chainRounds*channels+1)
	for i := range buffers {
		if buffers[i], err = dev.NewBuffer(chainBytes, drm.DomainVRAM); err != nil {
			return err
		}
		defer closeInto(buffers[i], &err)
		data := poison
		if i == 0 {
			data = want
		}
		if err := k.upload(k.s.chip.mover, buffers[i], drm.DomainVRAM, data); err != nil {
			return err
		}
	}
	for i := range buffers[1:] {
		var b push.Buffer
		b.Copy(k.s.chip.mover, buffers[i+1].VA(), buffers[i].VA(), chainBytes)
		refs := []Ref{ref(buffers[i], drm.DomainVRAM, false), ref(buffers[i+1], drm.DomainVRAM, true)}
		if err := streams[i%channels].Submit(&b, refs...); err != nil {
			return err
		}
		res.CrossCopies++
	}
	for _, b := range buffers[1:] {
		got, err := k.download(k.s.chip.mover, b, drm.DomainVRAM, want)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			res.CrossWrong++
		}
	}
	return nil
}

func quantiles(each []int64) (p50, p99 int64) {
	slices.Sort(each)
	return each[len(each)/2], each[len(each)*99/100]
}
