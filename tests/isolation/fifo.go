package isolation

import (
	"bytes"
	"encoding/binary"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// userdWords are the words of a channel's page in the poll area that the card or the
// aggregator writes.
var userdWords = []uint64{
	gf100.USERDPut, gf100.USERDGet, gf100.USERDRef, gf100.USERDPutHi, gf100.USERDTopLevelGet, gf100.USERDTopLevelGetHi,
	gf100.USERDGetHi, gf100.USERDGPGet, gf100.USERDGPPut,
}

// checkFIFO checks the card's poll area and runlists, which change all the time: only
// some words of them are ever written.
func (w *Ward) checkFIFO() {
	if w.Driver == nil {
		return // the card has neither
	}
	area := w.Driver.PollArea()
	page := make([]byte, gf100.USERDSize)
	zero := make([]byte, gf100.USERDSize)
	for id := range uint64(gf100.Channels) {
		at := area.Addr + id*gf100.USERDSize
		w.Memory.ReadVRAM(at, page)
		for _, off := range userdWords {
			clear(page[off : off+4])
		}
		if !bytes.Equal(page, zero) {
			w.report("the poll area changed at %#x of the card, where nothing is ever written", at)
			w.Memory.WriteVRAM(at, zero)
		}
	}
	for _, e := range w.Driver.Runlists() {
		w.Memory.ReadVRAM(e.Addr, page)
		if !runlist(page) {
			w.report("the runlist changed at %#x of the card: it is none", e.Addr)
			w.Memory.WriteVRAM(e.Addr, zero)
		}
	}
}

// runlist reports whether a page is a runlist as the aggregator writes it: channels of the
// card, then entries of older lists, and zeros after the longest list.
func runlist(page []byte) bool {
	const flags = 4 // of every entry
	end := gf100.Channels * gf100.RunlistEntrySize
	for list := page[:end]; len(list) > 0; list = list[gf100.RunlistEntrySize:] {
		id, bits := binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:])
		if never := id == 0 && bits == 0; !never && (id >= gf100.Channels || bits != flags) {
			return false
		}
	}
	return bytes.Equal(page[end:], make([]byte, len(page)-end))
}
