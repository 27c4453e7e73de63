package shim

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// image knows what memory held when it was last looked at.
type image struct {
	machine *Machine
	buffers map[uint64]*looked // by address
}

type looked struct {
	*Buffer
	was map[uint64][]byte // pages that are not all zero, by offset in the buffer
}

const lookPage = 4096

func newImage(m *Machine) *image { return &image{machine: m, buffers: make(map[uint64]*looked)} }

func (i *image) add(b *Buffer)    { i.buffers[b.VA] = &looked{Buffer: b, was: make(map[uint64][]byte)} }
func (i *image) remove(b *Buffer) { delete(i.buffers, b.VA) }

// changes returns what changed since the last call, by address.
func (i *image) changes() ([]Bytes, error) {
	var out []Bytes
	for _, b := range i.buffers {
		changed, err := b.changes(i.machine)
		if err != nil {
			return nil, err
		}
		out = append(out, changed...)
	}
	slices.SortFunc(out, func(a, b Bytes) int { return cmp.Compare(a.VA, b.VA) })
	return out, nil
}

var zeros [lookPage]byte

// changes looks at pages that were ever written: others take no memory, and reading them
// would allocate it.
func (b *looked) changes(m *Machine) (out []Bytes, err error) {
	fd, end := int(m.file.Fd()), int64(b.offset+b.Size)
	for from := int64(b.offset); from < end; {
		data, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= end {
			break
		}
		if err != nil {
			return nil, err
		}
		if from, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		from = min(from, end)
		for at := data &^ (lookPage - 1); at < from; at += lookPage {
			off := uint64(at) - b.offset
			out = b.page(off, out)
		}
	}
	return out, nil
}

// page appends what changed in the page at off.
func (b *looked) page(off uint64, out []Bytes) []Bytes {
	now, was := b.mem[off:off+lookPage], b.was[off]
	if was == nil {
		was = zeros[:]
	}
	if bytes.Equal(now, was) {
		return out
	}
	const word = 4
	for i := 0; i < lookPage; {
		if bytes.Equal(now[i:i+word], was[i:i+word]) {
			i += word
			continue
		}
		n := word
		for i+n < lookPage && !bytes.Equal(now[i+n:i+n+word], was[i+n:i+n+word]) {
			n += word
		}
		va := b.VA + off + uint64(i)
		if k := len(out) - 1; k >= 0 && out[k].VA+uint64(len(out[k].Data)) == va {
			out[k].Data = append(out[k].Data, now[i:i+n]...)
		} else {
			out = append(out, Bytes{va, bytes.Clone(now[i : i+n])})
		}
		i += n
	}
	b.was[off] = bytes.Clone(now)
	return out
}
