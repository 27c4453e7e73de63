package rm

import (
	"encoding/binary"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A channel's ring is the server's. At a doorbell the guest's new entries are copied to it as a batch, between two
// entries of the server: each is a release of the batch's number with the card's time. The first is when the card begins with
// the batch, the second, which waits for the engine, when all of it has ended. A guest that leaves half of a semaphore's
// methods to the next doorbell finds the registers of its host changed; no driver does.
const (
	ownBytes    = 128 << 10
	ownStep     = 1 << 20 // of the addresses of channels
	userdAt     = 0x1000
	stampsAt    = 0x2000 // of each batch: its begin and its end, of 16 bytes each
	pushesAt    = 0x6000 // that release those, of 32 bytes each
	ringAt      = 0x10000
	ringEntries = 8 << 10
	batches     = 512  // under way
	batchMost   = 1024 // entries of the guest
	batchOwn    = 4    // entries of the server's with each
)

// batch is what was copied at a doorbell.
type batch struct {
	get     uint32 // the guest's, after it
	entries uint32
	own     uint32 // the server's GP_PUT after it
}

// ring is the server's part of a channel. Its fields are guarded by channel.mu, but for what atomics and engine.mu guard.
type ring struct {
	mem     []byte
	va      uint64
	object  uint32
	put     uint32 // of the server
	get     uint32 // up to where it may be filled
	guest   uint32 // the last base of segments that the guest chose
	batches [batches]batch
	ended   uint64 // batches
	copied  [batchMost * 8]byte
}

// The extended base of the addresses of segments, bits 56:40, is an entry of its own.
const (
	setBase  = 4 // NVC86F_GP_ENTRY1_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE
	opcodes  = 0xff
	baseMask = 0x1ffff << 8
	ownBase  = uint32(nvrm.OwnFirst>>40) << 8
)

// Words of a push that releases a semaphore: clc86f.h, SEM_ADDR_LO to SEM_EXECUTE.
const (
	semaphore   = 1<<29 | 5<<16 | 0x5c/4
	release     = 1
	releaseIdle = 1 << 20
	releaseTime = 1 << 25
	pushWords   = 6
)

const (
	beginning = 0
	ending    = 1
)

func stampAt(seq uint64, which uint64) uint64 { return stampsAt + (seq%batches*2+which)*16 }

// stamp returns when a batch began or ended, by the card's time.
func (r *ring) stamp(seq uint64, which uint64) (at uint64, ok bool) {
	off := stampAt(seq, which)
	if load(r.mem, off) != uint32(seq+1) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(r.mem[off+8:]), true
}

// open makes the ring's memory and maps it in the channel's space.
func (r *ring) open(s *share, sp *space, id uint32) error {
	r.va = nvrm.OwnFirst + uint64(id)*ownStep
	file, mem, err := memfd("channel", ownBytes)
	if err != nil {
		return err
	}
	defer file.Close()
	r.mem = mem
	for i := range uint64(batches * 2) {
		idle, at := uint32(i%2*releaseIdle), r.va+stampAt(i/2, i%2)
		for k, w := range [pushWords]uint32{semaphore, uint32(at), uint32(at >> 32), 0, 0, release | releaseTime | idle} {
			binary.LittleEndian.PutUint32(r.mem[pushesAt+i*32+uint64(k)*4:], w)
		}
	}
	r.object = s.objects.take()
	if err = s.worker.Register(r.object, file, 0, ownBytes); err != nil {
		r.release(s)
		return err
	}
	if _, err = s.apply(sp.number, []worker.Step{{Op: worker.Map, Object: r.object, VA: r.va, Size: ownBytes, Page: page}}); err != nil {
		if !s.dead.Load() {
			s.must(s.worker.Free(r.object))
		}
		r.release(s)
		return err
	}
	if err = s.worker.Invalidate(sp.number); err != nil {
		s.fail(err)
		r.release(s)
	}
	return err
}

// release gives back what the server has of the ring.
func (r *ring) release(s *share) {
	s.objects.give(r.object)
	unix.Munmap(r.mem)
}

// close is the reverse of open. The channel uses the memory no more. share.changing is held.
func (r *ring) close(s *share, sp *space) {
	if !s.dead.Load() {
		_, err := s.apply(sp.number, []worker.Step{{Op: worker.Unmap, Object: r.object, VA: r.va, Size: ownBytes}})
		s.must(err)
		sp.dirty = true
		s.invalidate(sp)
		s.must(s.worker.Free(r.object))
	}
	r.release(s)
}

func (r *ring) entry(lo, hi uint32) {
	binary.LittleEndian.PutUint64(r.mem[ringAt+uint64(r.put)*8:], uint64(hi)<<32|uint64(lo))
	r.put = (r.put + 1) % ringEntries
}

// push puts an entry that releases a stamp.
func (r *ring) push(seq uint64, which uint64) {
	at := pushesAt + (seq%batches*2+which)*32
	binary.LittleEndian.PutUint32(r.mem[at+3*4:], uint32(seq+1))
	va := r.va + at
	r.entry(uint32(va), uint32(va>>32)&0xff|pushWords<<10)
}

func (r *ring) room() uint32 { return (r.get - r.put - 1) % ringEntries }

// look notes what has ended. channel.mu is held.
func (ch *channel) look() {
	r := &ch.ring
	for head := ch.head.Load(); r.ended < head; r.ended++ {
		if _, ok := r.stamp(r.ended, ending); !ok {
			return
		}
		b := &r.batches[r.ended%batches]
		ch.get, r.get = b.get, b.own
	}
}

// busy reports whether entries that were copied have not ended. channel.mu is held.
func (ch *channel) busy() bool {
	if ch.gone {
		return false
	}
	ch.look()
	return ch.ring.ended < ch.head.Load()
}

// fetch copies the guest's new entries, if the channel may run, and rings. channel.mu is held.
func (ch *channel) fetch() {
	if ch.deferred = false; !ch.may() || !ch.on || ch.next == ch.put {
		return
	}
	r := &ch.ring
	ch.look()
	before := r.put
	for ch.next != ch.put && !ch.failed {
		n := min((ch.put-ch.next)&ch.mask, ch.mask+1-ch.next, batchMost)
		seq := ch.head.Load()
		if seq-ch.tail.Load() >= batches/2 {
			ch.share.gpu.engines[ch.engine].advance()
		}
		if seq-ch.tail.Load() >= batches || seq-r.ended >= batches || r.room() < n+batchOwn {
			ch.deferred = true
			break
		}
		if !ch.copy(seq, n) {
			break
		}
	}
	if r.put != before {
		store(r.mem, userdAt+nvrm.USERDPut, r.put)
		ch.ringDoorbell()
	}
	if ch.deferred || !ch.share.armed.Load() {
		ch.share.look()
	}
}

// copy copies n entries as a batch.
func (ch *channel) copy(seq uint64, n uint32) bool {
	r := &ch.ring
	va := ch.base + uint64(ch.next)*8
	p := r.copied[:n*8]
	if !ch.space.read(va, p) {
		ch.failLocked(card.Fault{Kind: card.Translation, Engine: card.NoEngine, VA: va, Reason: shadowpt.PageNotPresent})
		return false
	}
	if seq == 0 {
		r.entry(ownBase, setBase)
	}
	r.push(seq, beginning)
	r.entry(r.guest, setBase)
	for ; len(p) > 0; p = p[8:] {
		lo, hi := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])
		if hi>>10&0x1fffff == 0 && hi&opcodes == setBase {
			r.guest = lo & baseMask
		}
		r.entry(lo, hi)
	}
	r.entry(ownBase, setBase)
	r.push(seq, ending)
	ch.next = (ch.next + n) & ch.mask
	r.batches[seq%batches] = batch{ch.next, n, r.put}
	ch.head.Store(seq + 1)
	ch.announced = true
	return true
}

// ringDoorbell rings the card's doorbell. The driver takes it back when the process ends.
func (ch *channel) ringDoorbell() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { card.MemoryFault(recover()) }()
	writeDoorbell(ch.share.bell, nvrm.DoorbellOffset, ch.token, &ch.share.fence)
}
