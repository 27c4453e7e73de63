package client

import (
	"fmt"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Read reads len(p) bytes of a region.
func (c *Client) Read(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.access(wire.RegionRead, 0, access(region, off, len(p)), nil)
	if err != nil {
		return err
	}
	return takeRead(m, p)
}

func takeRead(m Message, p []byte) error {
	if len(m.Payload) != wire.RegionAccessSize+len(p) || int(wire.Parse[wire.RegionAccess](m.Payload).Count) != len(p) {
		return fmt.Errorf("%w: REGION_READ reply of %d bytes for %d", ErrProtocol, len(m.Payload), len(p))
	}
	copy(p, m.Payload[wire.RegionAccessSize:])
	return nil
}

func access(region int, off uint64, n int) wire.RegionAccess {
	return wire.RegionAccess{Offset: off, Region: uint32(region), Count: uint32(n)}
}

// access sends one access and returns its reply, unless it is posted.
//
// Preconditions: c.mu held.
func (c *Client) access(cmd wire.Command, flags uint32, a wire.RegionAccess, data []byte) (Message, error) {
	id := c.begin(cmd, flags, wire.RegionAccessSize+len(data))
	c.out = append(wire.Append(c.out, a), data...)
	if err := c.send(c.out, nil); err != nil || flags&wire.NoReply != 0 {
		return Message{}, err
	}
	return c.reply(id, cmd)
}

// Write writes p to a region and waits for the reply.
func (c *Client) Write(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.access(wire.RegionWrite, 0, access(region, off, len(p)), p)
	if err != nil {
		return err
	}
	return takeWrite(m, len(p))
}

func takeWrite(m Message, n int) error {
	if len(m.Payload) != wire.RegionAccessSize || int(wire.Parse[wire.RegionAccess](m.Payload).Count) != n {
		return fmt.Errorf("%w: REGION_WRITE reply of %d bytes", ErrProtocol, len(m.Payload))
	}
	return nil
}

// Post writes p to a region without a reply, as QEMU does to a device with no mappable region.
func (c *Client) Post(region int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.access(wire.RegionWrite, wire.NoReply, access(region, off, len(p)), p)
	return err
}

// Read32 reads 4 bytes of a region.
func (c *Client) Read32(region int, off uint64) (uint32, error) {
	var b [4]byte
	err := c.Read(region, off, b[:])
	return le.Uint32(b[:]), err
}

// Write32 writes 4 bytes of a region.
func (c *Client) Write32(region int, off uint64, v uint32) error {
	return c.Write(region, off, le.AppendUint32(nil, v))
}

// Post32 writes 4 bytes of a region without a reply.
func (c *Client) Post32(region int, off uint64, v uint32) error {
	return c.Post(region, off, le.AppendUint32(nil, v))
}

// MultiWrite is one entry of REGION_WRITE_MULTI, of 8 bytes at most.
type MultiWrite struct {
	Region int
	Offset uint64
	Data   []byte
}

func appendMulti(b []byte, ws []MultiWrite) []byte {
	b = le.AppendUint64(b, uint64(len(ws)))
	for _, w := range ws {
		b = wire.Append(b, access(w.Region, w.Offset, len(w.Data)))
		var data [wire.WriteMultiMaxData]byte
		copy(data[:], w.Data)
		b = append(b, data[:]...)
	}
	return b
}

// WriteMulti sends one REGION_WRITE_MULTI and returns how many writes the server did.
func (c *Client) WriteMulti(ws []MultiWrite) (int, error) {
	m, err := c.Call(wire.RegionWriteMulti, appendMulti(nil, ws))
	if err != nil {
		return 0, err
	}
	if len(m.Payload) != wire.WriteMultiSize {
		return 0, fmt.Errorf("%w: REGION_WRITE_MULTI reply of %d bytes", ErrProtocol, len(m.Payload))
	}
	return int(le.Uint64(m.Payload)), nil
}

// PostMulti sends one REGION_WRITE_MULTI without a reply.
func (c *Client) PostMulti(ws []MultiWrite) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(wire.RegionWriteMulti, wire.NoReply, wire.WriteMultiSize+len(ws)*wire.WriteMultiEntry)
	c.out = appendMulti(c.out, ws)
	return c.send(c.out, nil)
}

// Batch is a number of accesses sent in one write. It may be used again after Do.
type Batch struct {
	c   *Client
	raw []byte
	ops []batchOp
}

type batchOp struct {
	id  uint16
	cmd wire.Command
	n   int
	p   []byte // of a read
}

// Batch returns an empty batch.
func (c *Client) Batch() *Batch { return &Batch{c: c} }

// Read adds a read; p is filled by Do.
func (b *Batch) Read(region int, off uint64, p []byte) {
	b.add(wire.RegionRead, 0, access(region, off, len(p)), nil, p)
}

// Write adds a write with a reply.
func (b *Batch) Write(region int, off uint64, p []byte) {
	b.add(wire.RegionWrite, 0, access(region, off, len(p)), p, nil)
}

// Post adds a write without a reply.
func (b *Batch) Post(region int, off uint64, p []byte) {
	b.add(wire.RegionWrite, wire.NoReply, access(region, off, len(p)), p, nil)
}

func (b *Batch) add(cmd wire.Command, flags uint32, a wire.RegionAccess, data, into []byte) {
	id := uint16(len(b.ops))
	b.raw = wire.Append(b.raw, wire.Header{ID: id, Command: cmd, Size: uint32(wire.HeaderSize + wire.RegionAccessSize + len(data)), Flags: flags})
	b.raw = append(wire.Append(b.raw, a), data...)
	if flags&wire.NoReply == 0 {
		b.ops = append(b.ops, batchOp{id, cmd, len(data), into})
	}
}

// Do sends the batch and receives its replies, in order. It returns the first error of an
// access after all replies have arrived. A batch whose replies exceed a socket's buffer (some
// 100 KiB) can deadlock: both sides would write.
func (b *Batch) Do() error {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.send(b.raw, nil); err != nil {
		return err
	}
	var first error
	for i := range b.ops {
		if err := b.take(&b.ops[i]); err != nil && first == nil {
			first = fmt.Errorf("access %d of the batch: %w", i, err)
		}
	}
	return first
}

func (b *Batch) take(op *batchOp) error {
	m, err := b.c.reply(op.id, op.cmd)
	switch {
	case err != nil:
		return err
	case op.cmd == wire.RegionRead:
		return takeRead(m, op.p)
	default:
		return takeWrite(m, op.n)
	}
}

// Clear empties the batch.
func (b *Batch) Clear() { b.raw, b.ops = b.raw[:0], b.ops[:0] }
