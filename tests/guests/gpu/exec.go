package gpu

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Buffers of Exec lie at own addresses, far enough apart for the largest pages.
const (
	execFirst  = 1 << 33
	execStride = 64 << 20
)

// execWay has the memories of the buffers: the first has commands, and the data goes from each other one to
// the next, between all pairs of memories.
var execWay = []drm.Domain{drm.DomainGART, drm.DomainGART, drm.DomainGART, drm.DomainVRAM, drm.DomainVRAM, drm.DomainGART}

// Exec copies as Vulkan does: the program maps buffers where it likes, and maps and copies wait for each
// other in a timeline. The CPU waits once, for the end.
func (e *Env) Exec(a proto.CopyArgs) (res proto.CopyResult, err error) {
	size := uint64(cmp.Or(a.Bytes, 256<<10+4))
	if size > execStride/2 {
		return res, fmt.Errorf("copies of %d bytes: at most %d MiB", size, execStride/2>>20)
	}
	dev, err := e.Open()
	if err != nil {
		return res, err
	}
	defer closeInto(dev, &err)
	chip, err := chipOf(dev)
	if err := errors.Join(err, dev.ManageSpace()); err != nil {
		return res, err
	}
	ch, err := dev.NewChannel()
	if err != nil {
		return res, err
	}
	defer closeInto(ch, &err)
	timeline, err := dev.NewTimeline()
	if err != nil {
		return res, err
	}
	defer closeInto(timeline, &err)
	if err := ch.NewObject(chip.mover.Object().Class); err != nil {
		return res, err
	}
	buffers, at := make([]Buffer, len(execWay)), make([][]byte, len(execWay))
	for i, domain := range execWay {
		if buffers[i], err = dev.NewBuffer(size+guard, domain); err != nil {
			return res, err
		}
		defer closeInto(buffers[i], &err)
		if at[i], err = buffers[i].Bytes(); err != nil {
			return res, err
		}
		if err := dev.Bind(buffers[i], execFirst+uint64(i)*execStride, false, timeline.Next()); err != nil {
			return res, err
		}
	}
	want, out := make([]byte, size+guard), at[len(at)-1]
	fill(want, a.Seed)
	copy(at[1], want)
	complement(out[:size], want[:size])
	copy(out[size:], want[size:])

	start, written := time.Now(), 0
	for i := range buffers[2:] {
		var b push.Buffer
		b.SetObject(chip.mover.Object()).Copy(chip.mover, buffers[i+2].VA(), buffers[i+1].VA(), size)
		begin := written
		for _, w := range b.Words {
			binary.LittleEndian.PutUint32(at[0][written:], w)
			written += 4
		}
		if err := ch.Exec(buffers[0].VA()+uint64(begin), written-begin, timeline.Next()); err != nil {
			return res, err
		}
		res.Bytes += size
	}
	for _, b := range buffers {
		if err := dev.Bind(b, b.VA(), true, timeline.Next()); err != nil {
			return res, err
		}
	}
	if err := timeline.Wait(patience); err != nil {
		return res, err
	}
	res.Cases = []proto.CopyOutcome{{Name: "exec", OK: true, Bytes: res.Bytes, NS: time.Since(start).Nanoseconds()}}
	if wrong, first := differ(out, want); wrong > 0 {
		err = fmt.Errorf("%d of %d bytes wrong, the first at %#x", wrong, len(want), first)
		res = proto.CopyResult{Cases: []proto.CopyOutcome{{Name: "exec", Error: err.Error()}}, Failed: 1}
	}
	return res, err
}
