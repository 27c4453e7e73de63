package soft

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// sent is a method as it leaves the decoder.
type sent struct {
	subch  uint8
	method uint16
	data   uint32
}

// naive decodes segments directly as the format is described, and returns the methods up to
// an invalid header.
func naive(segments [][]uint32) (out []sent, bad bool) {
	mask, kept := uint32(0xfff), uint32(0)
	left, kind, subch, method := uint32(0), uint32(0), uint32(0), uint32(0)
	put := func(subch, method, data uint32) {
		if mask&1 != 0 {
			out = append(out, sent{uint8(subch), uint16(method), data})
		}
	}
	for _, words := range segments {
		for i := 0; i < len(words); i++ {
			w := words[i]
			if left > 0 {
				left--
				put(subch, method, w)
				if kind == 1 || kind == 5 {
					method = (method + 4) % 0x4000
				}
				if kind == 5 {
					kind = 3
				}
				continue
			}
			subch, method = w/0x2000%8, w%0x1000*4
			switch op := w >> 29; {
			case w == 0:
			case op == 0 && w>>16&3 == 1:
				mask = w >> 4 & 0xfff
			case op == 0 && w>>16&3 == 2:
				kept = w >> 4 & 0xfff
			case op == 0 && w>>16&3 == 3:
				mask = kept
			case op == 6 || op == 2 && w>>16&3 != 0 || (op == 0 || op == 2) && w&3 != 0:
				return out, true
			case op == 0 || op == 2:
				method, left = w%0x2000, w>>18&0x7ff
				kind = 1 + op
			case op == 4:
				put(subch, method, w>>16&0x1fff)
			case op == 7:
				i = len(words)
			default:
				kind, left = op, w>>16&0x1fff
			}
		}
	}
	return out, false
}

// drawWords draws pushbuffer words. Methods have no object, so that the decoder stops at
// each; after a segment that ends early, data can become headers.
func drawWords(t *rapid.T) (words []uint32) {
	for range rapid.IntRange(0, 12).Draw(t, "packets") {
		subch := rapid.Uint32Range(0, 7).Draw(t, "subchannel")
		method := rapid.Uint32Range(0x40, 0xf00).Draw(t, "method")
		count := rapid.Uint32Range(0, 9).Draw(t, "count")
		op := rapid.SampledFrom([]uint32{0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 9}).Draw(t, "op")
		switch op {
		case 0, 2:
			words = append(words, op<<29|count<<18|subch<<13|method%0x800*4%0x2000|0x100)
		case 4:
			words = append(words, op<<29|count<<16|subch<<13|method)
			count = 0
		case 7:
			words = append(words, op<<29|rapid.Uint32Range(0, 1<<29-1).Draw(t, "rest"))
			count = 0
		case 8:
			words = append(words, 0)
			count = 0
		case 9:
			words = append(words, rapid.Uint32Range(1, 3).Draw(t, "mask op")<<16|rapid.SampledFrom([]uint32{1, 2, 3, 0xfff}).Draw(t, "mask")<<4)
			count = 0
		default:
			words = append(words, op<<29|count<<16|subch<<13|method)
		}
		for range count {
			// As a header it would name no host method.
			words = append(words, rapid.Uint32().Draw(t, "data")&^0xe00|0x140)
		}
	}
	return words
}

func TestDecoderAgainstNaive(t *testing.T) {
	v, err := newVRAM(MinVRAM)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.close()) }()
	const dir, table, push, userd = 0x100000, 0x110000, 0x400000, 0x3ff000
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}
	write64(v.slice(dir, 8), pde.Encode())
	for i := range uint64(64) { // no two pages lie together
		write64(v.slice(table+i*8, 8), shadowpt.PTE{Valid: true, Addr: push + (63-i)*0x1000}.Encode())
	}
	at := func(va uint64) []byte { return v.slice(push+(63-va>>12)*0x1000+va&0xfff, 4) }

	rapid.Check(t, func(t *rapid.T) {
		c := &Card{vram: v}
		ch := &channel{card: c}
		ch.vm.card = c
		ch.vm.tlb.Bind(shadowpt.Fermi, shadowpt.Space{Dir: dir, Limit: shadowpt.VASize - 1})
		block := make([]byte, gf100.InstanceSize)
		gf100.InstUSERDLo.Put(block, userd>>12)
		gf100.InstGPLimit2.Put(block, 9)
		ch.ramfc(block)

		words := drawWords(t)
		var segments [][]uint32
		for len(words) > 0 {
			n := rapid.IntRange(1, len(words)).Draw(t, "cut")
			segments = append(segments, words[:n])
			words = words[n:]
		}
		// The ring at VA 0, then segments with unmapped pages between them.
		va := uint64(0x1000)
		for i, s := range segments {
			va += uint64(rapid.IntRange(0, 1100).Draw(t, "gap")) * 4
			entry := va | uint64(len(s))<<42
			binary.LittleEndian.PutUint32(at(uint64(i)*8), uint32(entry))
			binary.LittleEndian.PutUint32(at(uint64(i)*8+4), uint32(entry>>32))
			for _, w := range s {
				binary.LittleEndian.PutUint32(at(va), w)
				va += 4
			}
		}
		binary.LittleEndian.PutUint32(v.slice(userd+gf100.USERDGPPut, 4), uint32(len(segments)))

		want, bad := naive(segments)
		var got []sent
		refused := false
		x := &run{channel: ch}
		for x.verdict != empty && !refused {
			x.step = step{}
			x.loop()
			require.Contains(t, []verdict{more, empty, held}, x.verdict)
			if x.verdict == held {
				if refused = ch.Held.Intr == gf100.PBDMAIntrPBEntry; refused {
					break
				}
				require.EqualValues(t, gf100.PBDMAIntrEmptySubch, ch.Held.Intr)
				got = append(got, sent{ch.Held.Subch, ch.Held.Method, ch.Held.Data})
				ch.Held = heldMethod{}
			}
			require.LessOrEqual(t, len(got), len(want))
		}
		require.Equal(t, bad, refused)
		require.Equal(t, want, got)
		if bad || len(segments) == 0 {
			return
		}
		require.EqualValues(t, len(segments), binary.LittleEndian.Uint32(v.slice(userd+gf100.USERDGPGet, 4)))
	})
}
