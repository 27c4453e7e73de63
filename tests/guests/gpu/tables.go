package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Bounds of what Tables maps: a guest's memory, and the buffers of one submission.
const (
	tableBytes   = 256 << 20
	tableBuffers = 4096
)

// usedBuffers is through how many buffers the GPU writes, at both ends of each.
const usedBuffers = 32

// Tables maps buffers of system memory into an address space that a channel uses, has
// the GPU write through some of them, and unmaps them.
func (e *Env) Tables(a proto.TablesArgs) (res proto.TablesResult, err error) {
	if a.Buffers < 1 || a.Buffers > tableBuffers || a.Bytes < 4096 || a.Bytes%4096 != 0 || a.Bytes > tableBytes/uint64(a.Buffers) {
		return res, fmt.Errorf("%d buffers of %d bytes: want 1 to %d, of whole pages of 4096 bytes, and %d MiB at most", a.Buffers, a.Bytes, tableBuffers, tableBytes>>20)
	}
	s, err := e.client()
	if err != nil {
		return res, err
	}
	defer closeInto(s, &err)
	var all []Buffer
	start := time.Now()
	for range a.Buffers {
		b, nerr := s.dev.NewBuffer(a.Bytes, drm.DomainGART)
		if nerr != nil {
			err = fmt.Errorf("buffer %d: %w", len(all), nerr)
			break
		}
		all = append(all, b)
	}
	res.MapNS = time.Since(start).Nanoseconds()
	if err == nil {
		start = time.Now()
		step := max(len(all)/usedBuffers, 1)
		for i := 0; i < len(all) && err == nil; i += step {
			if err = s.writes(all[i], []uint64{0, a.Bytes - 4}, uint32(i)+1); err != nil {
				err = fmt.Errorf("buffer %d: %w", i, err)
			}
		}
		res.UseNS = time.Since(start).Nanoseconds()
	}
	start = time.Now()
	for _, b := range all {
		err = errors.Join(err, b.Close())
	}
	res.UnmapNS = time.Since(start).Nanoseconds()
	return res, err
}
