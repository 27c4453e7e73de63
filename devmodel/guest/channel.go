package guest

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// The driver's own mappings in every space that has channels.
const (
	driverVA  = 0xfe_0000_0000
	fencesVA  = driverVA
	channelVA = driverVA + 0x10_0000 // + id * chanSpan
	ringAt    = 0
	pushAt    = 0x4_0000
	chanSpan  = 0x8_0000
)

const (
	fenceSize   = 16 // bytes: payload, zero, time
	defaultPush = 64 << 10
	defaultRing = 10 // log2 of the entries, as the kernel's
)

// ChannelConfig configures a channel. The zero value is good.
type ChannelConfig struct {
	RingLog2 uint32 // entries of the ring; 0 means 10
	Push     uint64 // bytes of pushbuffer, 256 KiB at most; 0 means 64 KiB
	RingRAM  bool   // the ring lies in RAM
	PushRAM  bool   // the pushbuffer lies in RAM
	// Edit changes the instance block before it is written.
	Edit func(block []byte)
}

// Channel is a channel of the GPU with its ring and its pushbuffer.
type Channel struct {
	ID    int
	Space *Space

	g     *Guest
	cfg   ChannelConfig
	inst  *Buffer
	ring  *Buffer
	push  *Buffer
	put   uint32 // GP_PUT
	at    uint64 // next free byte of the pushbuffer
	seq   uint32 // of fences
	bound bool   // subchannels have their objects
	on    bool   // in the runlist
	err   error  // why the GPU stopped it
}

// ChannelError is the reason why the GPU stopped a channel.
type ChannelError struct {
	ID    int
	Fault Fault
}

func (e *ChannelError) Error() string { return fmt.Sprintf("guest: channel %d: %v", e.ID, e.Fault) }

// NewChannel makes channel id in a space and lets it run.
func (g *Guest) NewChannel(id int, s *Space) (*Channel, error) {
	return g.NewChannelWith(id, s, ChannelConfig{})
}

// NewChannelWith is NewChannel with choices.
func (g *Guest) NewChannelWith(id int, s *Space, cfg ChannelConfig) (*Channel, error) {
	if id < 0 || id >= gf100.Channels || g.channels[id] != nil {
		return nil, fmt.Errorf("guest: channel %d cannot be made: it exists, or is not one of 0 to %d", id, gf100.Channels-1)
	}
	cfg.RingLog2 = cmp.Or(cfg.RingLog2, defaultRing)
	cfg.Push = cmp.Or(cfg.Push, defaultPush)
	ch := &Channel{ID: id, Space: s, g: g, cfg: cfg}
	if err := ch.build(); err != nil {
		return nil, fmt.Errorf("guest: channel %d: %w", id, err)
	}
	g.channels[id] = ch
	s.chans++
	return ch, ch.Start()
}

func (ch *Channel) va() uint64 { return channelVA + uint64(ch.ID)*chanSpan }

// RingVA is where the channel's space has its ring.
func (ch *Channel) RingVA() uint64 { return ch.va() + ringAt }

// PushVA is where the channel's space has its pushbuffer.
func (ch *Channel) PushVA() uint64 { return ch.va() + pushAt }

// FenceVA is the address of the channel's fence in its space.
func (ch *Channel) FenceVA() uint64 { return fencesVA + uint64(ch.ID)*fenceSize }

// Instance returns the VRAM address of the instance block.
func (ch *Channel) Instance() uint64 { return ch.inst.Addr }

// Ring and PushBuffer are the channel's memory, for tests that write it themselves.
func (ch *Channel) Ring() *Buffer       { return ch.ring }
func (ch *Channel) PushBuffer() *Buffer { return ch.push }

func (ch *Channel) build() error {
	g := ch.g
	alloc := func(ram bool, n uint64) (*Buffer, error) {
		if ram {
			return g.AllocRAM(n)
		}
		return g.allocVRAM(n, pageSize, false)
	}
	var err error
	if ch.ring, err = alloc(ch.cfg.RingRAM, gf100.GPEntrySize<<ch.cfg.RingLog2); err != nil {
		return err
	}
	if ch.push, err = alloc(ch.cfg.PushRAM, ch.cfg.Push); err != nil {
		return err
	}
	if !ch.Space.fixed[fencesVA] {
		if err := ch.Space.Map(fencesVA, g.fences, Small|Volatile); err != nil {
			return err
		}
		ch.Space.fixed[fencesVA] = true
	}
	if err := ch.Space.Map(ch.RingVA(), ch.ring, Small); err != nil {
		return err
	}
	if err := ch.Space.Map(ch.PushVA(), ch.push, Small); err != nil {
		return err
	}
	if ch.inst, err = g.newInstance(gf100.InstanceSize); err != nil {
		return err
	}
	block := ch.block()
	if ch.cfg.Edit != nil {
		ch.cfg.Edit(block)
	}
	if err := ch.inst.Write(0, block); err != nil {
		return err
	}
	for _, off := range userdWords {
		g.bus.write(bar1, ch.userd(off), make([]byte, 4))
	}
	// The fence continues from the slot's value, even if another channel had it before.
	ch.seq, err = ch.signalled()
	return err
}

// block is the instance block as nouveau fills it.
func (ch *Channel) block() []byte {
	b := make([]byte, gf100.InstanceSize)
	userd := ch.g.userd.Addr + uint64(ch.ID)*gf100.USERDSize
	gf100.InstUSERDLo.Put(b, uint32(userd>>12))
	gf100.InstUSERDHi.Put(b, uint32(userd>>32))
	gf100.InstSignature.Put(b, gf100.InstanceSignature)
	gf100.InstGPBaseLo.Put(b, uint32(ch.RingVA()>>3))
	gf100.InstGPBaseHi.Put(b, uint32(ch.RingVA()>>32))
	gf100.InstGPLimit2.Put(b, ch.cfg.RingLog2)
	for _, w := range ramfcConstants {
		le.PutUint32(b[w.off:], w.v)
	}
	ch.Space.describe(b)
	return b
}

// ramfcConstants are words of RAMFC with a meaning only for the hardware.
var ramfcConstants = [...]struct{ off, v uint32 }{
	{0x30, 0xfffff902}, {0x54, 2}, {0x84, 0x20400000}, {0x94, 0x30000001}, {0x9c, 0x100},
	{0xa4, 0x1f1f1f1f}, {0xa8, 0x1f1f1f1f}, {0xac, 0x1f}, {0xb8, 0xf8000000},
	{0xf8, 0x10003080}, {0xfc, 0x10000010},
}

// userdWords are what a driver clears of USERD: the words of cl906f.h.
var userdWords = [...]uint64{
	gf100.USERDPut, gf100.USERDGet, gf100.USERDRef, gf100.USERDPutHi, gf100.USERDTopLevelGet,
	gf100.USERDTopLevelGetHi, gf100.USERDGetHi, gf100.USERDGPGet, gf100.USERDGPPut,
}

func (ch *Channel) userd(off uint64) uint64 {
	return ch.g.userd.at + uint64(ch.ID)*gf100.USERDSize + off
}

// Start binds the channel, enables it and puts it into the runlist.
func (ch *Channel) Start() error {
	g := ch.g
	g.wr32(uflushFlush, flushStart)
	if err := g.poll("the flush of host writes", uflushFlush, flushBusy, 0); err != nil {
		return err
	}
	g.wr32(pccsrInst+uint32(ch.ID)*chanStride, chanBind|uint32(ch.inst.Addr>>12))
	g.wr32(pccsrChannel+uint32(ch.ID)*chanStride, chanOn)
	ch.on = true
	return g.commitRunlist()
}

// commitRunlist writes the list of running channels to the list that is not in
// use, and waits until the GPU has taken it.
func (g *Guest) commitRunlist() error {
	var raw []byte
	n := uint32(0)
	for id := range gf100.Channels {
		if ch := g.channels[id]; ch != nil && ch.on {
			raw = le.AppendUint32(le.AppendUint32(raw, uint32(id)), 4)
			n++
		}
	}
	g.runlist ^= 1
	list := g.runlists[g.runlist]
	if err := list.Write(0, raw); err != nil {
		return err
	}
	g.wr32(pfifoRunlistBase, uint32(list.Addr>>12))
	g.wr32(pfifoRunlist, runlistCommit|n)
	return g.poll("the runlist", pfifoRunlistState, runlistBusy, 0)
}

// Preempt asks the channel to leave its PBDMA, and waits until it has.
func (ch *Channel) Preempt() error {
	ch.g.wr32(pfifoPreempt, uint32(ch.ID))
	return ch.g.poll("the preemption", pfifoPreempt, preemptBusy, 0)
}

// Stop takes the channel off the GPU, and keeps it bound.
func (ch *Channel) Stop() error {
	ch.g.mask(pccsrChannel+uint32(ch.ID)*chanStride, chanEnable, 0)
	if err := ch.Preempt(); err != nil {
		return err
	}
	ch.on = false
	return ch.g.commitRunlist()
}

// Close stops the channel, unbinds it and frees its memory.
func (ch *Channel) Close() error {
	g := ch.g
	if g.channels[ch.ID] != ch {
		return nil
	}
	if err := ch.Stop(); err != nil {
		return err
	}
	g.wr32(pccsrInst+uint32(ch.ID)*chanStride, 0)
	delete(g.channels, ch.ID)
	ch.Space.chans--
	err := errors.Join(
		ch.Space.Unmap(ch.RingVA(), ch.ring.Size, Small),
		ch.Space.Unmap(ch.PushVA(), ch.push.Size, Small))
	return errors.Join(err, ch.ring.Free(), ch.push.Free(), ch.inst.Free())
}

// Err returns why the GPU stopped the channel, if it did.
func (ch *Channel) Err() error { return ch.err }

// Submit puts words into the pushbuffer and writes the doorbell. The first submission binds
// the copy engines to their subchannels.
func (ch *Channel) Submit(words ...uint32) error {
	if !ch.bound {
		ch.bound = true
		words = append((&Push{}).Bind(CopyEngines...).Words, words...)
	}
	n := uint64(len(words)) * 4
	if n > ch.push.Size/2 {
		return fmt.Errorf("guest: %d words for a pushbuffer of %d bytes", len(words), ch.push.Size)
	}
	if ch.at+n > ch.push.Size-pushReserve {
		if err := ch.wrap(); err != nil {
			return err
		}
	}
	return ch.submit(words)
}

// pushReserve holds the fence that is waited for before the pushbuffer is used
// again from its start.
const pushReserve = 256

func (ch *Channel) submit(words []uint32) error {
	raw := make([]byte, 0, len(words)*4)
	for _, w := range words {
		raw = le.AppendUint32(raw, w)
	}
	if err := ch.push.Write(ch.at, raw); err != nil {
		return err
	}
	va := ch.PushVA() + ch.at
	ch.at += uint64(len(raw))
	return ch.SubmitAt(va, len(words))
}

func (ch *Channel) wrap() error {
	f, err := ch.fence(ch.submit)
	if err != nil {
		return err
	}
	if err := ch.g.Wait(f); err != nil {
		return err
	}
	ch.at = 0
	return nil
}

// SubmitAt submits words that lie at va already.
func (ch *Channel) SubmitAt(va uint64, words int) error { return ch.SubmitEntry(GPEntry(va, words)) }

// GPEntry is a GPFIFO entry for words at va.
func GPEntry(va uint64, words int) uint64 {
	return uint64(uint32(va)&^3) | uint64(uint32(va>>32)&0xff|uint32(words)<<10)<<32
}

// SubmitEntry puts any entry into the ring and writes the doorbell.
func (ch *Channel) SubmitEntry(q uint64) error {
	if err := ch.room(); err != nil {
		return err
	}
	if err := ch.ring.Write(uint64(ch.put)*gf100.GPEntrySize, le.AppendUint64(nil, q)); err != nil {
		return err
	}
	ch.put = (ch.put + 1) & ch.ringMask()
	return ch.Doorbell(ch.put)
}

func (ch *Channel) ringMask() uint32 { return 1<<ch.cfg.RingLog2 - 1 }

// room waits until the ring has a free entry.
func (ch *Channel) room() error {
	var p pause
	p.start(ch.g.cfg.Timeout)
	for (ch.put+1)&ch.ringMask() == ch.GPGet() {
		if err := ch.g.look(); err != nil {
			return err
		}
		if ch.err != nil {
			return ch.err
		}
		if !p.next() {
			return fmt.Errorf("guest: channel %d: the ring stays full", ch.ID)
		}
	}
	return ch.g.bus.failed()
}

// Doorbell writes any GP_PUT into USERD.
func (ch *Channel) Doorbell(put uint32) error {
	ch.g.bus.write(bar1, ch.userd(gf100.USERDGPPut), le.AppendUint32(nil, put))
	return ch.g.bus.sync()
}

// GPGet reads how far the GPU is in the ring.
func (ch *Channel) GPGet() uint32 { return ch.USERD(gf100.USERDGPGet) }

// USERD reads a word of the channel's poll area.
func (ch *Channel) USERD(off uint64) uint32 {
	var b [4]byte
	ch.g.bus.read(bar1, ch.userd(off), b[:])
	return le.Uint32(b[:])
}

// Copy submits a copy of n bytes.
func (ch *Channel) Copy(e Engine, dst, src, n uint64) error {
	var p Push
	return ch.Submit(p.Copy(e, dst, src, n).Words...)
}

// DoorbellOffset is where BAR1 has the channel's GP_PUT.
func (ch *Channel) DoorbellOffset() uint64 { return ch.userd(gf100.USERDGPPut) }
