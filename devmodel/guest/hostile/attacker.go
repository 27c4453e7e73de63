package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

var le = binary.LittleEndian

// The attacker's mappings.
const (
	lootVA   = 0x1000_0000               // RAM that stolen bytes are copied to
	victimVA = 0x1800_0000               // entries and directory entries of any bits
	mineVA   = 0x2000_0000               // VRAM
	bigVA    = mineVA + shadowpt.BigPage // big entries of any bits
	marksVA  = 0x2800_0000               // where each submission signals its end
	lootSize = 256 << 10
)

// Attacker breaks rules.
type Attacker struct {
	Guest *guest.Guest
	// Seen is called with every byte that the attacker reads. It must not keep p.
	Seen func(what Action, p []byte)

	raw   guest.Raw
	s     *guest.Space
	ch    *target // its tables are in VRAM
	ram   *target // its directory and a table are in RAM
	loot  *guest.Buffer
	marks *guest.Buffer
	mine  *guest.Buffer
	dir   *guest.Buffer // the directory in RAM, then its small table
	hole  hole
	made  int // actions done since the start
}

// target is a channel to attack with, and how far it has been submitted.
type target struct {
	*guest.Channel
	put, seq uint32
	block    []byte // the instance block as it was made
}

// New makes the attacker's own channels and memory on a guest that is up.
func New(g *guest.Guest) (*Attacker, error) {
	a := &Attacker{Guest: g, raw: g.Raw(), Seen: func(Action, []byte) {}}
	return a, a.prepare()
}

func (a *Attacker) prepare() (err error) {
	g := a.Guest
	if a.s, err = g.NewSpace(); err != nil {
		return err
	}
	if err := a.dig(); err != nil {
		return err
	}
	if a.loot, err = g.AllocRAM(lootSize); err != nil {
		return err
	}
	if a.mine, err = g.AllocVRAM(shadowpt.BigPage); err != nil {
		return err
	}
	if a.marks, err = g.AllocRAM(4096); err != nil {
		return err
	}
	if err := errors.Join(
		a.s.Map(marksVA, a.marks, guest.Small),
		a.s.Map(lootVA, a.loot, guest.Small),
		a.s.Map(mineVA, a.mine, guest.Big),
		a.s.MapPart(victimVA, a.mine, 0, shadowpt.BigPage, guest.Small),
	); err != nil {
		return err
	}
	if a.ch, err = a.channel(1, guest.ChannelConfig{}); err != nil {
		return err
	}
	return a.prepareRAM()
}

func (a *Attacker) channel(id int, cfg guest.ChannelConfig) (*target, error) {
	t := &target{}
	edit := cfg.Edit
	cfg.Edit = func(block []byte) {
		if edit != nil {
			edit(block)
		}
		t.block = append([]byte(nil), block...)
	}
	var err error
	t.Channel, err = a.Guest.NewChannelWith(id, a.s, cfg)
	return t, err
}

// prepareRAM makes a channel whose directory is in RAM: a copy of the other's.
func (a *Attacker) prepareRAM() (err error) {
	g := a.Guest
	if a.dir, err = g.AllocRAM(shadowpt.DirSize + shadowpt.SmallTableSize); err != nil {
		return err
	}
	a.ram, err = a.channel(2, guest.ChannelConfig{PushRAM: true, RingRAM: true, Edit: func(block []byte) {
		gf100.InstPDBTarget.Put(block, uint32(shadowpt.SystemCoherent))
		gf100.InstPDBLo.Put(block, uint32(a.dir.Addr>>12))
		gf100.InstPDBHi.Put(block, uint32(a.dir.Addr>>32))
	}})
	if err != nil {
		return err
	}
	for _, va := range []uint64{lootVA, mineVA, marksVA, a.ram.RingVA()} {
		d := va / shadowpt.DirSpan
		a.putDir(d, a.s.PDE(d))
	}
	table := shadowpt.Table{Present: true, Target: shadowpt.SystemCoherent, Addr: a.dir.Addr + shadowpt.DirSize}
	a.putDir(victimVA/shadowpt.DirSpan, shadowpt.PDE{Small: table}.Encode())
	return nil
}

func (a *Attacker) putDir(d, pde uint64) { le.PutUint64(a.dir.Data[d*8:], pde) }

// value converts a Value to a number.
func (a *Attacker) value(v Value) uint64 {
	g := a.Guest
	ram := uint64(len(g.Memory().Data))
	base := map[Base]uint64{
		VRAMEnd: g.VRAM(), Mapped: lootVA, RAMBase: a.loot.Addr, RAMEnd: a.loot.Addr + ram, Mine: a.mine.Addr,
		Hole: a.hole.addr, TopVA: shadowpt.VASize, Guests: g.VRAM() * (v.Or & 7),
	}[v.Base]
	return (base+uint64(v.Off))>>v.Shift | v.Or
}

// tolerate ignores an error that a server may answer. A lost connection is none.
func tolerate(err error) error {
	var errno client.Errno
	if errors.As(err, &errno) && !disconnected(errno) {
		return nil
	}
	return err
}

// Do does one action. An error means that the server dropped this guest.
func (a *Attacker) Do(act Action) error {
	a.made++
	if err := tolerate(deeds[act.Kind](a, act)); err != nil {
		return fmt.Errorf("hostile: action %d, %v: %w", a.made, act, err)
	}
	return nil
}

var deeds = [...]func(*Attacker, Action) error{
	Access: (*Attacker).access, Register: (*Attacker).register, Window: (*Attacker).window,
	Entry: (*Attacker).entry, BigEntry: (*Attacker).bigEntry, Dir: (*Attacker).directory, Block: (*Attacker).block,
	Ring: (*Attacker).ring, Push: (*Attacker).push, Engine: (*Attacker).engine, List: (*Attacker).list,
	Tables: (*Attacker).tables, Unmap: (*Attacker).unmap, Elsewhere: (*Attacker).elsewhere, Restart: (*Attacker).restart,
}

// fill makes n bytes of a value.
func (a *Attacker) fill(v Value, n int) []byte {
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		le.PutUint64(p[i:], a.value(v))
	}
	return p[:n]
}

func (a *Attacker) access(act Action) error {
	if act.Write {
		return a.raw.Post(act.Region, act.Off, a.fill(act.V, act.Width))
	}
	p := make([]byte, act.Width)
	err := a.raw.Read(act.Region, act.Off, p)
	if err == nil {
		a.see(act, p)
	}
	return err
}

func (a *Attacker) register(act Action) error {
	if act.Write {
		return a.raw.SetReg(act.Reg, uint32(a.value(act.V)))
	}
	p := make([]byte, 4)
	err := a.raw.Read(0, uint64(act.Reg), p)
	if err == nil {
		a.see(act, p)
	}
	return err
}

func (a *Attacker) window(act Action) error {
	win := uint32(a.value(act.V))
	off := act.Off & 0xff8
	if act.Write {
		return a.raw.SetPRAMIN(win, off, a.fill(act.W, 64))
	}
	p := make([]byte, 64)
	err := a.raw.PRAMIN(win, off, p)
	if err == nil {
		a.see(act, p)
	}
	return err
}

// use has both channels copy from and to what was just put at va.
func (a *Attacker) use(act Action, va uint64) error {
	loot := lootVA + act.Off&0x1f000
	for _, ch := range []*target{a.ch, a.ram} {
		var p guest.Push
		p.Bind(guest.CopyEngines...)
		if act.Write {
			p.Copy(act.Engine, va, mineVA, 256)
		} else {
			p.Copy(act.Engine, loot, va, 256)
		}
		if err := a.submit(ch, &p); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of one submission: slots of the pushbuffer that are used in turn.
const (
	slots     = 16
	slotSize  = 2048
	ringMask  = 1<<10 - 1
	markWords = 5
)

// submit has a channel execute words and then release a semaphore. It binds a channel again
// that did not execute its previous words.
func (a *Attacker) submit(ch *target, p *guest.Push) error {
	if a.settle(ch); a.mark(ch) != ch.seq {
		if err := a.revive(ch); err != nil {
			return err
		}
	}
	ch.seq++
	words := p.Words[:min(len(p.Words), slotSize/4-markWords)]
	words = (&guest.Push{Words: words}).Semaphore(marksVA+uint64(ch.ID)*16, ch.seq, guest.SemRelease|guest.SemOneWord).Words
	raw := make([]byte, 0, slotSize)
	for _, w := range words {
		raw = le.AppendUint32(raw, w)
	}
	slot := uint64(ch.put%slots) * slotSize
	if err := a.put(ch.PushBuffer(), slot, raw); err != nil {
		return err
	}
	return a.kick(ch, guest.GPEntry(ch.PushVA()+slot, len(words)))
}

// settle gives a channel time to execute its work: until it is done, or some channel has an
// error.
func (a *Attacker) settle(ch *target) {
	const pfifoIntr, rounds = 0x2100, 50
	for range rounds {
		if a.mark(ch) == ch.seq || a.raw.Reg(pfifoIntr) != 0 {
			return
		}
	}
}

func (a *Attacker) mark(ch *target) uint32 { return le.Uint32(a.marks.Data[ch.ID*16:]) }

// silence is a driver's register writes that acknowledge every possible error: of PBDMAs,
// faults, and trapped engines.
var silence = []struct{ reg, v uint32 }{
	{0x400c0, 0x80600008}, {0x420c0, 0x80600008}, {0x440c0, 0x80600008},
	{0x40108, 0xffffffff}, {0x42108, 0xffffffff}, {0x44108, 0xffffffff},
	{0x259c, 0xffffffff}, {0x2100, 0xffffffff}, {0x262c, 1}, {0x2630, 0}, {0x2200, 1}, {0x0200, 0xffffffff},
	{0x400100, 0xffffffff}, {0x400500, 0x00010001}, {0x104004, 0xffffffff}, {0x105004, 0xffffffff},
}

// revive binds a channel again in its original state.
func (a *Attacker) revive(ch *target) error {
	if err := a.raw.Bind(ch.ID, 0, 0); err != nil {
		return err
	}
	for _, r := range silence {
		if err := a.raw.SetReg(r.reg, r.v); err != nil {
			return err
		}
	}
	if err := a.raw.SetVRAM(ch.Instance(), ch.block); err != nil {
		return err
	}
	ch.put = 0
	ch.seq = a.mark(ch)
	if err := a.doorbell(ch.ID, 0); err != nil {
		return err
	}
	return a.raw.Bind(ch.ID, 0xc0000000|uint32(ch.Instance()>>12), 0x001f0001)
}

// put writes memory through PRAMIN, because BAR1 may be broken.
func (a *Attacker) put(b *guest.Buffer, off uint64, p []byte) error {
	if b.RAM {
		return b.Write(off, p)
	}
	return a.raw.SetVRAM(b.Addr+off, p)
}

func (a *Attacker) kick(ch *target, entry uint64) error {
	if err := a.put(ch.Ring(), uint64(ch.put)*gf100.GPEntrySize, le.AppendUint64(nil, entry)); err != nil {
		return err
	}
	ch.put = (ch.put + 1) & ringMask
	return a.doorbell(ch.ID, ch.put)
}

func (a *Attacker) doorbell(id int, put uint32) error {
	return a.raw.Post(1, uint64(id)*gf100.USERDSize+gf100.USERDGPPut, le.AppendUint32(nil, put))
}

func (a *Attacker) entry(act Action) error {
	pte := a.value(act.V)>>12<<4 | act.Bits | 1
	i := act.Off % 32
	_, small := a.s.Table(victimVA)
	if err := a.raw.SetVRAM(small+i*8, le.AppendUint64(nil, pte)); err != nil {
		return err
	}
	le.PutUint64(a.dir.Data[shadowpt.DirSize+i*8:], pte)
	if err := a.raw.Invalidate(uint32(a.s.Directory()>>12<<4), 1<<31|1); err != nil {
		return err
	}
	return a.use(act, victimVA+i*shadowpt.SmallPage)
}

func (a *Attacker) bigEntry(act Action) error {
	big, _ := a.s.Table(bigVA)
	pte := a.value(act.V)>>12<<4 | act.Bits | 1
	if err := a.raw.SetVRAM(big+bigVA%shadowpt.DirSpan/shadowpt.BigPage*8, le.AppendUint64(nil, pte)); err != nil {
		return err
	}
	if err := a.raw.Invalidate(uint32(a.s.Directory()>>12<<4), 1<<31|1); err != nil {
		return err
	}
	return a.use(act, bigVA+act.Off%shadowpt.BigPage&^0xff)
}

func (a *Attacker) directory(act Action) error {
	d := uint64(victimVA/shadowpt.DirSpan) + act.Off%4
	pde := a.value(act.V)>>12<<4 | a.value(act.W)>>12<<36 | act.Bits
	if err := a.raw.SetVRAM(a.s.Directory()+d*8, le.AppendUint64(nil, pde)); err != nil {
		return err
	}
	a.putDir(d, pde)
	if err := a.raw.Invalidate(uint32(a.value(act.W)), uint32(act.Bits)|1<<31); err != nil {
		return err
	}
	return a.use(act, d*shadowpt.DirSpan+act.Off&0x7ff_f000)
}

// blockWords are the words of an instance block that name something.
var blockWords = []uint32{
	0x000, 0x008, 0x00c, 0x010, 0x014, 0x018, 0x01c, 0x048, 0x04c, 0x1e0, 0x1e4,
	0x200, 0x204, 0x208, 0x20c, 0x210, 0x214, 0x230, 0x234, 0x240, 0x244,
}

func (a *Attacker) block(act Action) error {
	inst := a.mine.Addr + 0x1f000 // the last page of its own buffer
	if act.Write {
		inst = a.value(act.W) &^ 0xfff
	}
	good := make([]byte, gf100.InstanceSize)
	if err := a.raw.VRAM(a.ch.Instance(), good); err != nil {
		return err
	}
	for i, w := range act.Words {
		at := blockWords[(int(act.Off)+i)%len(blockWords)]
		le.PutUint32(good[at:], uint32(a.value(act.V))^w)
	}
	if err := a.raw.SetVRAM(inst, good); err != nil {
		return err
	}
	if err := a.raw.Bind(act.Chan, 0xc0000000|uint32(inst>>12), 0x001f0001); err != nil {
		return err
	}
	return a.doorbell(act.Chan, uint32(act.Bits))
}

func (a *Attacker) ring(act Action) error {
	ch := a.ch
	if act.Write {
		ch = a.ram
	}
	if err := a.kick(ch, a.value(act.V)|act.Bits); err != nil {
		return err
	}
	return a.doorbell(act.Chan, uint32(a.value(act.W)))
}

func (a *Attacker) push(act Action) error {
	var p guest.Push
	p.Bind(guest.CopyEngines...).Raw(act.Words...)
	if act.Write {
		return a.submit(a.ram, &p)
	}
	return a.submit(a.ch, &p)
}

func (a *Attacker) engine(act Action) error {
	var p guest.Push
	p.Bind(guest.CopyEngines...)
	from, to := a.value(act.V), a.value(act.W)
	p.Semaphore(to, uint32(act.Bits), uint32(act.Bits>>32)|guest.SemRelease)
	p.CopyLines(act.Engine, guest.Surface{VA: lootVA, Pitch: uint32(act.Bits)}, guest.Surface{VA: from, Pitch: uint32(act.Bits >> 16)},
		uint32(act.Off&0xffff), uint32(act.Bits&0x1fff))
	p.CopyLines(act.Engine, guest.Surface{VA: to, Pitch: uint32(act.Bits)}, guest.Surface{VA: mineVA, Pitch: 256}, 256, 1)
	return a.submit(a.ch, &p)
}

func (a *Attacker) list(act Action) error {
	at := a.mine.Addr + 0x1e000
	var raw []byte
	for i := range 64 {
		raw = le.AppendUint32(raw, uint32(act.Bits)+uint32(i))
		raw = le.AppendUint32(raw, act.Words[i%len(act.Words)])
	}
	if err := a.raw.SetVRAM(at, raw); err != nil {
		return err
	}
	if act.Write {
		return a.raw.Runlist(uint32(at>>12), 0x01f00000|64)
	}
	return a.raw.Runlist(uint32(a.value(act.V)), uint32(a.value(act.W)))
}

// restart begins again from a reset, which makes everything right.
func (a *Attacker) restart(Action) error {
	if err := a.Guest.Reset(); err != nil {
		return err
	}
	return a.prepare()
}

// Restart begins again, so that what follows finds working channels.
func (a *Attacker) Restart() error { return a.restart(Action{}) }

// Loot is the memory that engines copied stolen bytes to.
func (a *Attacker) Loot() []byte { return a.loot.Data }

// disconnected reports whether an errno is the connection's end and no answer.
func disconnected(e client.Errno) bool {
	switch e {
	case unix.EPIPE, unix.ECONNRESET, unix.EBADF, unix.ENOTCONN, unix.EAGAIN:
		return true
	}
	return false
}
