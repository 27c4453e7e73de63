package mmio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// untimed returns the records without their times, which must not fall.
func untimed(t require.TestingT, records []Record) []Record {
	var last int64
	for i := range records {
		require.GreaterOrEqual(t, records[i].Time, last)
		last = records[i].Time
		records[i].Time = 0
	}
	return records
}

func TestTraceRecords(t *testing.T) {
	s := smallSpace(t)
	tr, err := NewTrace(5)
	require.NoError(t, err)
	s.Read32(0) // not attached yet
	s.SetTrace(tr)
	records, dropped := tr.Records()
	require.Empty(t, records)
	require.Zero(t, dropped)

	s.Read32(0)
	s.Write32(0x1420, 1)
	s.Write(0x3000, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	s.Read(0x2ffc, make([]byte, 8)) // half a hole, half in the window
	s.Read(0x101, make([]byte, 1))
	s.SetTrace(nil)
	s.Read32(0)

	records, dropped = tr.Records()
	require.EqualValues(t, 1, dropped)
	require.Equal(t, []Record{
		{Seq: 1, Offset: 0x1420, Value: 1, Size: 4, Write: true},
		{Seq: 2, Offset: 0x3000, Value: 0x0807060504030201, Size: 9, Write: true},
		{Seq: 3, Offset: 0x2ffc, Size: 4},
		{Seq: 4, Offset: 0x3000, Value: 0x04030201, Size: 4},
		{Seq: 5, Offset: 0x101, Size: 1},
	}, untimed(t, records))
}

func TestTraceSelects(t *testing.T) {
	s := smallSpace(t)
	pmc, err := s.BlockRanges("PMC")
	require.NoError(t, err)
	require.Equal(t, []Range{{0, 3}, {0x100, 0x103}, {0x200, 0x203}, {0x210, 0x210}, {0x212, 0x213}}, pmc)
	both, err := s.BlockRanges("PRAMIN", "PTIMER")
	require.NoError(t, err)
	require.Equal(t, []Range{{0x1400, 0x1403}, {0x1420, 0x1423}, {0x1428, 0x142b}, {0x1430, 0x1433}, {0x1438, 0x143b}, {0x3000, 0x3fff}}, both)
	_, err = s.BlockRanges("PMC", "PNOTHING")
	require.ErrorContains(t, err, "PNOTHING")
	require.ErrorContains(t, err, "PTIMER")

	tr, err := NewTrace(100, pmc...)
	require.NoError(t, err)
	s.SetTrace(tr)
	touch := func() (offsets []uint32) {
		before := len(untimedSeqs(tr))
		for _, off := range []uint32{0, 0x100, 0x210, 0x1430, 0x1434, 0x3000} {
			s.Read32(off)
		}
		s.Read(0x2ffe, make([]byte, 4))
		records, _ := tr.Records()
		for _, r := range records[before:] {
			offsets = append(offsets, r.Offset)
		}
		return offsets
	}
	require.Equal(t, []uint32{0, 0x100, 0x210}, touch())
	require.NoError(t, tr.Select(both...))
	require.Equal(t, []uint32{0x1430, 0x3000, 0x3000}, touch())
	require.NoError(t, tr.Select(Range{0x212, 0x212}, Range{0x2fff, 0x2fff}), "the accesses' last bytes")
	require.Equal(t, []uint32{0x210, 0x2ffe}, touch())
	require.NoError(t, tr.Select())
	require.Len(t, touch(), 8)

	require.ErrorContains(t, tr.Select(Range{4, 3}), "0x4-0x3")
	_, err = NewTrace(0)
	require.ErrorContains(t, err, "0 records")
	_, err = NewTrace(maxTraceRecords + 1)
	require.ErrorContains(t, err, "records")
	_, err = NewTrace(1, Range{4, 3})
	require.ErrorContains(t, err, "0x4-0x3")
}

// Neighbours become one range, which keeps the search in the trap short.
func TestRangesAreJoined(t *testing.T) {
	require.Equal(t, []Range{{0, 11}, {13, 20}, {0xfffffff0, 0xffffffff}}, mergeRanges([]Range{
		{8, 11}, {0xfffffff8, 0xffffffff}, {13, 20}, {0, 3}, {4, 7}, {14, 15}, {0xfffffff0, 0xfffffff7}, {0xfffffff4, 0xffffffff}}))
}

func untimedSeqs(tr *Trace) (seqs []uint64) {
	records, _ := tr.Records()
	for _, r := range records {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// wants is a binary search in merged ranges; the twin tries every range.
func TestTraceRangesEqualLinearSearch(t *testing.T) {
	offset := rapid.OneOf(rapid.Uint32Range(0, 64), rapid.Uint32Range(0xffffffc0, 0xffffffff))
	rapid.Check(t, func(t *rapid.T) {
		ranges := make([]Range, rapid.IntRange(1, 8).Draw(t, "ranges"))
		for i := range ranges {
			a, b := offset.Draw(t, "a"), offset.Draw(t, "b")
			ranges[i] = Range{min(a, b), min(max(a, b), min(a, b)+6)}
		}
		for i := range ranges {
			ranges[i].Last = max(ranges[i].First, ranges[i].Last)
		}
		tr, err := NewTrace(1, ranges...)
		require.NoError(t, err)
		for range 20 {
			off, n := offset.Draw(t, "offset"), rapid.IntRange(1, 8).Draw(t, "size")
			want := false
			for _, r := range ranges {
				for b := uint64(off); b < uint64(off)+uint64(n); b++ {
					want = want || uint64(r.First) <= b && b <= uint64(r.Last)
				}
			}
			require.Equal(t, want, tr.wants(off, n), "%d bytes at %#x in %x", n, off, ranges)
		}
	})
}

// The file's bytes, held against the documented layout field by field.
func TestRecordLayout(t *testing.T) {
	r := Record{Seq: 0x0102030405060708, Time: 0x1112131415161718, Value: 0x2122232425262728, Offset: 0x31323334, Size: 0x4142, Write: true}
	b := make([]byte, RecordSize)
	r.put(b)
	require.Equal(t, []byte{
		8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0x42, 0x41, 1, 0,
	}, b)
	head := fileHeader()
	require.Equal(t, "UMBRATRC\x01\x00\x18\x00\x20\x00\x00\x00", string(head[:16]))
	require.EqualValues(t, epoch.UnixNano(), binary.LittleEndian.Uint64(head[16:]))
	require.Len(t, head, HeaderSize)
}

func TestTraceFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 7, copyAtOnce, 3*copyAtOnce + 1}).Draw(t, "size")
		tr, err := NewTrace(size)
		require.NoError(t, err)
		n := rapid.IntRange(0, 2*size).Draw(t, "accesses")
		for i := range n {
			tr.add(uint32(i), i%9, uint64(i)*0x0101010101, i%2 == 1)
		}
		var file bytes.Buffer
		written, err := tr.WriteTo(&file)
		require.NoError(t, err)
		require.EqualValues(t, file.Len(), written)
		require.Equal(t, HeaderSize+min(n, size)*RecordSize, file.Len())
		got, err := ReadTrace(&file)
		require.NoError(t, err)
		want, dropped := tr.Records()
		require.Equal(t, want, got.Records)
		require.EqualValues(t, max(n-size, 0), dropped)
		require.Equal(t, epoch.UnixNano(), got.Epoch)
	})
}

// traceFile is a file of two records.
func traceFile(t testing.TB) []byte {
	tr, err := NewTrace(2)
	require.NoError(t, err)
	tr.add(0x100, 4, 7, true)
	tr.add(0x200, 8, 9, false)
	var b bytes.Buffer
	_, err = tr.WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

func TestReadTraceRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(b []byte) []byte
		want    string
		records int
	}{
		{"nothing", func(b []byte) []byte { return nil }, "header has 0 of 24 bytes", 0},
		{"half a header", func(b []byte) []byte { return b[:10] }, "header has 10 of 24 bytes", 0},
		{"magic", func(b []byte) []byte { b[0] = 'u'; return b }, `"uMBRATRC"`, 0},
		{"version", func(b []byte) []byte { b[8] = 2; return b }, "version 2; this program reads version 1", 0},
		{"header size", func(b []byte) []byte { b[10] = 32; return b }, "header of 32 and records of 32", 0},
		{"record size", func(b []byte) []byte { b[12] = 40; return b }, "header of 24 and records of 40", 0},
		{"reserved", func(b []byte) []byte { b[14] = 5; return b }, "0x5 at offset 14", 0},
		{"half a record", func(b []byte) []byte { return b[:len(b)-5] }, "record 1 has 27 of 32 bytes", 1},
		{"flags", func(b []byte) []byte { b[HeaderSize+RecordSize+30] = 3; return b }, "record 1 has the unknown flags 0x3", 1},
		{"order", func(b []byte) []byte { b[HeaderSize] = 1; return b }, "record 1 has the number 1 after 1", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := ReadTrace(bytes.NewReader(c.change(traceFile(t))))
			require.ErrorContains(t, err, c.want)
			require.Len(t, f.Records, c.records)
		})
	}
}

// failAfter takes n writes and fails the next.
type failAfter struct{ n int }

var errFull = errors.New("disk full")

func (w *failAfter) Write(p []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteToReportsErrors(t *testing.T) {
	tr, err := NewTrace(2 * copyAtOnce)
	require.NoError(t, err)
	for i := range uint32(2 * copyAtOnce) {
		tr.add(i, 1, 0, false)
	}
	for n, want := range []int64{0, HeaderSize, HeaderSize + copyAtOnce*RecordSize} {
		got, err := tr.WriteTo(&failAfter{n})
		require.ErrorIs(t, err, errFull)
		require.Equal(t, want, got)
	}
}

// One goroutine accesses under the owner's lock; others attach, select, write
// out and read all counters. For the race detector; and no record may be torn.
func TestTogglingWhileAccessesRun(t *testing.T) {
	s := smallSpace(t)
	tr, err := NewTrace(300)
	require.NoError(t, err)
	var owner sync.Mutex
	const rounds = 3000
	var others sync.WaitGroup
	done := make(chan struct{})
	spin := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f()
				}
			}
		})
	}
	var failed error
	spin(func() {
		ranges, _ := s.BlockRanges("PMC")
		_ = tr.Select(ranges...)
		s.SetTrace(nil)
		_ = tr.Select()
		s.SetTrace(tr)
	})
	spin(func() {
		reader, writer := io.Pipe()
		go func() { _, err := tr.WriteTo(writer); writer.CloseWithError(err) }()
		f, err := ReadTrace(reader)
		reader.Close()
		for _, r := range f.Records {
			if r.Value != uint64(r.Offset*0x11111111) {
				err = errors.New("a torn record")
			}
		}
		if err != nil {
			failed = err
		}
	})
	spin(func() {
		_, _ = s.Report(ByTime)
		_ = s.NameOf(0x104)
	})
	for i := range uint32(rounds) {
		owner.Lock()
		for _, off := range []uint32{0x104, 0x108, 0x1428, 0x200, 0x500 + i%256*4} {
			s.Write32(off, off*0x11111111)
		}
		owner.Unlock()
	}
	close(done)
	others.Wait()
	require.NoError(t, failed)
	require.EqualValues(t, rounds, s.Counts()[0].Writes)
}
