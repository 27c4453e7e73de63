package mmio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A trace file is a header and then records of one size up to the end of the
// file. All numbers are little-endian.
//
//	header            record
//	0  magic [8]      0  sequence number    u64
//	8  version u16    8  time               i64
//	10 header size    16 value              u64
//	12 record size    24 offset             u32
//	14 0              28 size               u16
//	16 epoch   i64    30 flags, 1 = write   u8
//	                  31 0
//
// The epoch is the wall clock at time 0, in nanoseconds since 1970. Sequence
// numbers rise by one for each traced access, so a gap tells how many records
// the ring had lost before it could be written.
const (
	TraceMagic   = "UMBRATRC"
	TraceVersion = 1
	HeaderSize   = 24
	RecordSize   = 32

	flagWrite = 1
)

func fileHeader() []byte {
	b := make([]byte, HeaderSize)
	copy(b, TraceMagic)
	binary.LittleEndian.PutUint16(b[8:], TraceVersion)
	binary.LittleEndian.PutUint16(b[10:], HeaderSize)
	binary.LittleEndian.PutUint16(b[12:], RecordSize)
	binary.LittleEndian.PutUint64(b[16:], uint64(epoch.UnixNano()))
	return b
}

// put encodes r into the first RecordSize bytes of b.
func (r *Record) put(b []byte) {
	_ = b[RecordSize-1]
	binary.LittleEndian.PutUint64(b[0:], r.Seq)
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Time))
	binary.LittleEndian.PutUint64(b[16:], r.Value)
	binary.LittleEndian.PutUint32(b[24:], r.Offset)
	binary.LittleEndian.PutUint16(b[28:], r.Size)
	b[30], b[31] = 0, 0
	if r.Write {
		b[30] = flagWrite
	}
}

func getRecord(b []byte) Record {
	return Record{
		Seq:    binary.LittleEndian.Uint64(b[0:]),
		Time:   int64(binary.LittleEndian.Uint64(b[8:])),
		Value:  binary.LittleEndian.Uint64(b[16:]),
		Offset: binary.LittleEndian.Uint32(b[24:]),
		Size:   binary.LittleEndian.Uint16(b[28:]),
		Write:  b[30]&flagWrite != 0,
	}
}

// TraceFile is the content of a trace file.
type TraceFile struct {
	Epoch   int64    `json:"epoch_ns"` // wall clock at time 0, nanoseconds since 1970
	Records []Record `json:"records"`
}

// ReadTrace decodes a trace file. It refuses what is not one: another magic,
// version or size, unknown flags, sequence numbers that do not rise, a record
// cut short. The error names the place; the records before it come with it.
func ReadTrace(r io.Reader) (TraceFile, error) {
	var f TraceFile
	head := make([]byte, HeaderSize)
	if n, err := io.ReadFull(r, head); err != nil {
		return f, fmt.Errorf("mmio: trace header has %d of %d bytes: %w", n, HeaderSize, err)
	}
	if magic := string(head[:8]); magic != TraceMagic {
		return f, fmt.Errorf("mmio: trace starts with %q, not with %q: not a trace file", magic, TraceMagic)
	}
	if v := binary.LittleEndian.Uint16(head[8:]); v != TraceVersion {
		return f, fmt.Errorf("mmio: trace has version %d; this program reads version %d", v, TraceVersion)
	}
	if v := binary.LittleEndian.Uint16(head[14:]); v != 0 {
		return f, fmt.Errorf("mmio: trace header has %#x at offset 14, where version %d has 0", v, TraceVersion)
	}
	if h, rec := binary.LittleEndian.Uint16(head[10:]), binary.LittleEndian.Uint16(head[12:]); h != HeaderSize || rec != RecordSize {
		return f, fmt.Errorf("mmio: trace has a header of %d and records of %d bytes; version %d has %d and %d",
			h, rec, TraceVersion, HeaderSize, RecordSize)
	}
	f.Epoch = int64(binary.LittleEndian.Uint64(head[16:]))
	b := make([]byte, RecordSize)
	for i := 0; ; i++ {
		n, err := io.ReadFull(r, b)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, fmt.Errorf("mmio: trace record %d has %d of %d bytes: %w", i, n, RecordSize, err)
		}
		if b[30]&^flagWrite != 0 || b[31] != 0 {
			return f, fmt.Errorf("mmio: trace record %d has the unknown flags %#x", i, binary.LittleEndian.Uint16(b[30:]))
		}
		rec := getRecord(b)
		if i > 0 && rec.Seq <= f.Records[i-1].Seq {
			return f, fmt.Errorf("mmio: trace record %d has the number %d after %d", i, rec.Seq, f.Records[i-1].Seq)
		}
		f.Records = append(f.Records, rec)
	}
}
