package driver

import (
	"encoding/binary"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// member is a channel in the driver's table.
type member interface {
	card.Channel
	common() *bound
}

// bound is what every channel has.
type bound struct {
	driver *Driver
	share  *share
	ev     card.ChannelEvents
	id     uint32
	page   uint64 // of the share's memory
	userd  uint64 // in VRAM

	// mu guards what follows. A look at whether the channel is quiet holds it, so that
	// nothing starts the channel meanwhile.
	mu    sync.Mutex
	quiet bool // the card showed it without work, and nothing has started it since
}

func (b *bound) common() *bound { return b }

// channel is a channel that the card's registers bind.
type channel struct {
	bound
	inst uint64 // instance block: its page

	fresh, listed bool // to be listed by Share.Commit; on the runlist; guarded by Driver.table
}

// enter gives a new channel its page and its number.
func (d *Driver) enter(ch member, s *share, prefer uint32, ev card.ChannelEvents) error {
	page, ok := s.take(channelPage)
	if !ok {
		return card.ErrTables
	}
	b := ch.common()
	b.driver, b.share, b.ev, b.page = d, s, ev, page
	if !d.takeNumber(ch, prefer) {
		s.giveBack(page, channelPage)
		return card.ErrChannels
	}
	return nil
}

// leave is the reverse of enter.
func (b *bound) leave() {
	b.driver.WriteVRAM(b.page, make([]byte, channelPage))
	b.share.giveBack(b.page, channelPage)
	b.driver.table.Lock()
	defer b.driver.table.Unlock()
	b.driver.channels[b.id] = nil
}

// NewChannel implements card.Share.
func (s *share) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	d := s.driver
	ch := new(channel)
	if err := d.enter(ch, s, c.Prefer, ev); err != nil {
		return nil, err
	}
	ch.inst, ch.userd = ch.page, d.pollArea+uint64(ch.id)*gf100.USERDSize
	d.WriteVRAM(ch.userd, newUSERD(&c))
	d.WriteVRAM(ch.inst, ch.instance(&c, c.Space.(*space).root.addr))
	d.wr(ch.reg(regChannelInst), instanceBound|uint32(ch.inst>>12))
	d.meter.add(ch, &c)
	d.table.Lock()
	defer d.table.Unlock()
	ch.fresh = true
	return ch, nil
}

// Commit implements card.Share.
func (s *share) Commit() bool {
	d := s.driver
	list := d.members(s)
	d.table.Lock()
	for _, m := range list {
		if ch := m.(*channel); ch.fresh {
			ch.fresh, ch.listed = false, true
		}
	}
	d.table.Unlock()
	return d.commitRunlist()
}

// members lists the channels of a share by number.
func (d *Driver) members(s *share) (list []member) {
	d.table.Lock()
	defer d.table.Unlock()
	for _, m := range d.channels {
		if m != nil && m.common().share == s {
			list = append(list, m)
		}
	}
	return list
}

// instance makes the channel's instance block. Fields that are not named here are zero: the
// channel begins at a GPFIFO entry, reads GP_PUT from USERD, and the card keeps engine
// contexts of its own.
func (ch *channel) instance(c *card.ChannelConfig, dir uint64) []byte {
	b := make([]byte, gf100.InstanceSize)
	for _, f := range []struct {
		gf100.Word
		value uint64
	}{
		{gf100.InstUSERDLo, ch.userd >> 12}, {gf100.InstUSERDHi, ch.userd >> 32}, {gf100.InstUSERDTarget, uint64(shadowpt.VRAM)},
		{gf100.InstSignature, gf100.InstanceSignature},
		{gf100.InstGPGet, uint64(c.State.GPGet)}, {gf100.InstRef, uint64(c.State.Ref)},
		{gf100.InstGPBaseLo, c.Ring.Base >> 3}, {gf100.InstGPBaseHi, c.Ring.Base >> 32}, {gf100.InstGPLimit2, uint64(c.Ring.Log2)},
		{gf100.InstPDBLo, dir >> 12}, {gf100.InstPDBHi, dir >> 32}, {gf100.InstPDBTarget, uint64(shadowpt.VRAM)},
		{gf100.InstLimitLo, c.Limit >> 12}, {gf100.InstLimitHi, c.Limit >> 32},
		{gf100.InstTokenLo, c.State.Token}, {gf100.InstTokenHi, c.State.Token >> 32},
		{gf100.InstOwner, uint64(ch.share.cfg.Number)}, {gf100.InstKeep, uint64(ch.share.cfg.Channels)},
	} {
		f.Put(b, uint32(f.value))
	}
	return b
}

// userd is a buffer for the part of USERD that has fields.
type userd [gf100.USERDGPPut + 4]byte

// newUSERD makes the channel's page of the poll area.
func newUSERD(c *card.ChannelConfig) []byte {
	b := make([]byte, gf100.USERDSize)
	binary.LittleEndian.PutUint32(b[gf100.USERDGPPut:], c.Put)
	for _, w := range structs.ProgressWords(c.Progress) {
		binary.LittleEndian.PutUint32(b[w.Offset:], w.Value)
	}
	return b
}

// USERD implements card.Channel.
func (b *bound) USERD() card.Run { return card.Run{Addr: b.userd, Size: gf100.USERDSize} }

func (ch *channel) reg(base uint32) uint32 { return base + ch.id*strideChannel }

// ID implements card.Channel.
func (b *bound) ID() uint32 { return b.id }

// Enable implements card.Channel.
func (ch *channel) Enable() { ch.set(true) }

// Disable implements card.Channel.
func (ch *channel) Disable() { ch.set(false) }

func (ch *channel) set(enabled bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	v := uint32(channelStart &^ gf100.ChannelEnabled)
	if enabled {
		v = channelStart
		ch.quiet = false
	}
	ch.driver.wr(ch.reg(regChannel), v)
	ch.driver.meter.enabled(ch, enabled)
}

// Doorbell implements card.Channel.
func (ch *channel) Doorbell(put uint32) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.quiet = false
	ch.driver.Write32(card.BAR1, pollAreaBAR1+uint64(ch.id)*gf100.USERDSize+gf100.USERDGPPut, put)
	ch.driver.meter.submitted(ch, put)
}

// Running implements card.Channel.
func (ch *channel) Running() bool {
	return ch.driver.rd(ch.reg(regChannel))&gf100.ChannelBusy != 0
}

// Quiet implements card.Channel. It reads the card only if something may have made the
// channel run since it was last found quiet.
func (ch *channel) Quiet() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.quiet = ch.quiet || ch.driver.rd(ch.reg(regChannel))&(gf100.ChannelBusy|gf100.ChannelStatus) == 0
	return ch.quiet
}

// Progress implements card.Channel.
func (b *bound) Progress() card.Progress {
	buf := b.driver.userds.Get().(*userd)
	defer b.driver.userds.Put(buf)
	b.driver.ReadVRAM(b.userd, buf[:])
	p, _ := structs.ReadUSERD(buf[:])
	return p
}

// State implements card.Channel.
func (ch *channel) State() card.State {
	b := make([]byte, gf100.InstanceSize)
	ch.driver.ReadVRAM(ch.inst, b)
	return structs.ReadState(b)
}

// Stop implements card.Channel. Without a wait, the next runlist omits the channel.
func (ch *channel) Stop(wait bool) (left, inTime bool) {
	d := ch.driver
	d.table.Lock()
	ch.fresh, ch.listed = false, false
	d.table.Unlock()
	if wait {
		inTime = d.commitRunlist()
		inTime = d.preempt([]uint32{ch.id}) && inTime
	}
	return inTime || !ch.Running(), inTime
}

// Unbind implements card.Channel.
func (ch *channel) Unbind() { ch.driver.wr(ch.reg(regChannelInst), 0) }

// Free implements card.Channel.
func (ch *channel) Free() {
	ch.driver.meter.remove(ch)
	ch.driver.WriteVRAM(ch.userd, make([]byte, gf100.USERDSize))
	ch.leave()
}
