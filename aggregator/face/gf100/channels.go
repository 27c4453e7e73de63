package gf100

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/report"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// place is where a channel has its structures in the guest's VRAM.
type place struct {
	mem         *memory.Memory
	inst, userd uint64
}

// Describe implements channels.Face: it reads the channel's instance block and its USERD.
func (f *Face) Describe(id uint32) (d channels.Description, ok bool) {
	p := &place{mem: f.guest.Memory()}
	f.locked(func(s *FaceState) { p.inst = s.Inst[id] })
	block := make([]byte, chip.InstanceSize)
	if !p.mem.Read(shadowpt.VRAM, p.inst, block) {
		f.guest.ChannelStats().BadInstance.Add(1)
		return d, false
	}
	in := structs.ReadInstance(block)
	p.userd = in.USERD
	var b [chip.USERDGPPut + 4]byte
	if _, ok := p.mem.Translate(shadowpt.VRAM, p.userd, chip.USERDSize, true); !ok || in.USERDTarget != shadowpt.VRAM {
		f.guest.ChannelStats().BadUSERD.Add(1)
		return d, false
	}
	p.mem.Read(shadowpt.VRAM, p.userd, b[:])
	d = channels.Description{Space: in.Space, Engine: card.NoEngine, Ring: in.Ring, State: in.State, Place: p.inst, Structures: p}
	d.Progress, d.Put = structs.ReadUSERD(b[:])
	return d, true
}

// Put implements channels.Structures.
func (p *place) Put(settled bool) (put uint32, ok bool) {
	return p.mem.Word(p.userd+chip.USERDGPPut, settled)
}

// Show implements channels.Structures.
func (p *place) Show(progress card.Progress) {
	words := structs.ProgressWords(progress)
	var list [len(words)]memory.Word
	for i, w := range words {
		list[i] = memory.Word(w)
	}
	p.mem.Update(p.userd, chip.USERDSize, list[:])
}

// Save implements channels.Structures.
func (p *place) Save(s card.State) {
	for _, w := range structs.SavedWords(s) {
		p.mem.Write(shadowpt.VRAM, p.inst+w.Offset, binary.LittleEndian.AppendUint32(nil, w.Value))
	}
}

// Notes of a round.
const (
	tookRunlist report.Notes = 1 << iota
	badRunlist
)

// Round implements aggregator.Face: the guest's runlist becomes which channels may run. Channels that
// are no longer on it leave the card. A runlist outside the guest's memory is empty and reported as an
// error.
func (f *Face) Round(list [2]uint32) (notes report.Notes) {
	notes = tookRunlist
	listed, ok := readRunlist(f.guest.Memory(), list[0], list[1])
	if !ok {
		f.guest.ChannelStats().BadRunlist.Add(1)
		notes |= badRunlist
	}
	var may, off channels.Set
	f.locked(func(s *FaceState) {
		off = s.Listed.Without(listed)
		s.Listed = listed
		may = s.may()
		f.guest.AllowNow(may, off)
	})
	f.guest.TakeOff(off)
	return notes
}

// readRunlist returns which of the guest's channels a runlist names, false if it is outside the
// guest's memory.
func readRunlist(m *memory.Memory, base, count uint32) (listed channels.Set, ok bool) {
	n := min(int(count&0xfff), chip.Channels)
	b := make([]byte, n*chip.RunlistEntrySize)
	if n > 0 && !m.Read(shadowpt.Target(base>>28&3), uint64(base&chip.InstanceAddr)<<12, b) {
		return listed, false
	}
	for ; len(b) > 0; b = b[chip.RunlistEntrySize:] {
		if id := binary.LittleEndian.Uint32(b); id < chip.Channels {
			listed.Add(id)
		}
	}
	return listed, true
}
