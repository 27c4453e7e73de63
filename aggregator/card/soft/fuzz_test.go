package soft_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// offsets are where the registers with consequences lie, and the windows.
var offsets = []uint32{
	0x100, 0x140, 0x200, 0x640, 0x1700, 0x1704, 0x1714, 0x2100, 0x2140, 0x2200, 0x2204, 0x2254, 0x2270, 0x2274, 0x227c,
	0x259c, 0x25a0, 0x25a8, 0x262c, 0x2630, 0x2634, 0x2640, 0x2a00, 0x2a30, 0x3000, 0x3004, 0x3008, 0x300c, 0x9140, 0x9400,
	0x9420, 0x400c0, 0x40108, 0x4010c, 0x70000, 0x88000, 0x88704, 0x100c80, 0x100cb8, 0x100cbc, 0x104000, 0x104004, 0x104100,
	0x10a000, 0x300000, 0x400100, 0x400500, 0x404488, 0x40448c, 0x409000, 0x409100, 0x409500, 0x409504, 0x700000, 0x7ffffc,
}

// FuzzBARs makes accesses of bytes. Each takes ten: BAR, kind and width, an
// offset, a value. The card must stay consistent and alive.
func FuzzBARs(f *testing.F) {
	access := func(bar, kind byte, off, v uint32) []byte {
		b := []byte{bar, kind}
		b = binary.LittleEndian.AppendUint32(b, off)
		return binary.LittleEndian.AppendUint32(b, v)
	}
	var all []byte
	for _, off := range offsets {
		all = append(all, access(0, 4, off, 0xffffffff)...)
		all = append(all, access(0, 4, off, 0x80000100)...)
		all = append(all, access(0, 0x14, off, 0)...)
	}
	f.Add(all)
	f.Add(append(access(0, 4, 0x3000, 0xc0000000|0x3fff), access(1, 4, 0x8c, 1)...))
	f.Add(append(access(0, 4, 0x1704, 0x8fffffff), access(1, 8, 0xfff, 1)...))
	f.Add(append(access(0, 4, 0x2254, 0xfffffff), access(1, 0x7f, 0x7fffff8, 1)...))
	r := newRig(f, soft.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r.t = t
		buf := make([]byte, 64)
		bars := []int{soft.BAR0, soft.BAR1, soft.BAR3, soft.BAR5}
		for n := 0; len(data) >= 10 && n < 300; n++ {
			bar, n := bars[data[0]%4], 1+int(data[1]&0xf)
			off := uint64(binary.LittleEndian.Uint32(data[2:]))
			if data[0]&0x40 != 0 {
				off = uint64(offsets[off%uint64(len(offsets))])
			}
			copy(buf, data[6:10])
			if data[1]&0x10 != 0 {
				r.card.ReadBAR(bar, off, buf[:n])
			} else {
				r.card.WriteBAR(bar, off, buf[:n])
			}
			data = data[10:]
		}
		require.NoError(t, r.card.Check())
		require.NoError(t, r.card.Reset())
		r.next = 1 << 20
		r.start()
		c := r.newChannel(1, r.bar1())
		r.runlist(1)
		c.alive()
	})
}

// FuzzPushbuffer gives a channel any words, acknowledges the results, and checks that the
// others and the card continue.
func FuzzPushbuffer(f *testing.F) {
	words := func(w ...uint32) []byte {
		var b []byte
		for _, v := range w {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	for _, w := range works {
		f.Add(words(w.words...))
	}
	f.Add(words(cat(incr(2, 0, classM2MF), incr(2, 0x238, 0, vaPush), incr(2, 0x30c, 0, vaPush), incr(2, 0x314, 0, 0),
		incr(2, 0x31c, 0xffff, 0xffffffff), incr(2, 0x300, 1<<4|1<<8))...))
	f.Add(words(cat(incr(0, 0x10, 0xff, 0xfffffffc, 0, opRelease))...))
	f.Add(words(header(3, 0x1fff, 2, 0x304), 1, 2, 3))
	r := newRig(f, soft.Config{})
	area := r.bar1()
	f.Fuzz(func(t *testing.T, data []byte) {
		r.t = t
		r.next = 2 << 20
		other := r.newChannel(2, area)
		c := r.newChannel(1, area)
		r.runlist(1, 2)
		r.flush()
		c.put, other.put = c.userd32(0x88), other.userd32(0x88)
		c.ramfc(func(b []byte) { binary.LittleEndian.PutUint32(b[0x14:], c.put) })
		other.ramfc(func(b []byte) { binary.LittleEndian.PutUint32(b[0x14:], other.put) })
		c.bind()
		other.bind()
		if len(data) > 4096 {
			data = data[:4096]
		}
		var w []uint32
		for ; len(data) >= 4; data = data[4:] {
			w = append(w, binary.LittleEndian.Uint32(data))
		}
		c.submit(w...)
		for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); time.Sleep(tick) {
			r.answer()
		}
		require.NoError(t, r.card.Check())
		other.alive()
		c.unbind()
		r.runlist(2)
		r.answer()
		r.card.WriteVRAM(c.userd+0x88, make([]byte, 8))
	})
}
