package aggregator

import (
	"math/bits"
	"slices"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// todo is what the guest's goroutine has to do. It is a state, not a queue: a
// guest that asks a thousand times costs no more than one that asks once. What is under way
// is in another, Guest.doing: the goroutine's, or that of a trap that does without it what
// takes channels off the card (see atonce.go). What traps do so does not become one: it is
// counted.
type requests struct {
	bind       channelSet // inst or bound changed
	preempt    channelSet
	doorbells  channelSet
	gather     channelSet // of bell: those that were not heard, or whose work may not be where the card finds it
	reset      bool
	schedule   bool // whether channels may run changed
	runlist    bool
	base       uint32 // NV_PFIFO_RUNLIST_BASE
	count      uint32
	invalidate invalidations
	asked      bool             // by the guest, which waits for it: of invalidate, what was not put off
	entries    bool             // table entries were written that are to be applied at once
	policy     *shadowpt.Policy // the shadows are to be kept like that from now on
}

// invalidations names the directories whose shadows have to be built anew.
type invalidations struct {
	all bool
	// unmapped says that memory was taken from the guest: entries that still name
	// it are no fault of its.
	unmapped bool

	dirs [4]spaceKey // more than four make it all
	n    int
}

func (v *invalidations) add(dir spaceKey) {
	if slices.Contains(v.dirs[:v.n], dir) {
		return
	}
	if v.n == len(v.dirs) {
		v.all = true
		return
	}
	v.dirs[v.n] = dir
	v.n++
}

// merge adds what o names.
func (v *invalidations) merge(o invalidations) {
	v.all = v.all || o.all
	v.unmapped = v.unmapped || o.unmapped
	for _, dir := range o.dirs[:o.n] {
		v.add(dir)
	}
}

func (v *invalidations) any() bool { return v.all || v.n > 0 }

func (v *invalidations) has(s spaceKey) bool {
	return v.all || slices.Contains(v.dirs[:v.n], s)
}

func (t *requests) empty() bool {
	return t.bind.empty() && t.preempt.empty() && t.doorbells.empty() && !t.runlist && !t.reset && !t.schedule && !t.invalidate.any() && !t.entries && t.policy == nil
}

// urgent reports whether something is there that does not wait for the rate of
// shadows: memory that goes, and a reset.
func (t *requests) urgent() bool { return t.reset || t.invalidate.unmapped }

// bindsOnly reports whether there is nothing but channels to bind, unbind and preempt, and
// invalidates.
func (t *requests) bindsOnly() bool {
	rest := *t
	rest.bind, rest.preempt, rest.invalidate = channelSet{}, channelSet{}, invalidations{}
	return rest.empty()
}

// bellsOnly reports whether there is nothing but bells, which no register asks about.
func (t *requests) doorbellsOnly() bool {
	rest := *t
	rest.doorbells = channelSet{}
	return rest.empty()
}

// channelSet is a set of channel numbers.
type channelSet [gf100.Channels / 64]uint64

func (s *channelSet) add(id uint8)      { s[id/64] |= 1 << (id % 64) }
func (s *channelSet) remove(id uint8)   { s[id/64] &^= 1 << (id % 64) }
func (s *channelSet) has(id uint8) bool { return s[id/64]>>(id%64)&1 != 0 }
func (s *channelSet) empty() bool       { return *s == channelSet{} }

// without returns how many members are not in o.
func (s *channelSet) without(o channelSet) (n int) {
	for i, word := range s {
		n += bits.OnesCount64(word &^ o[i])
	}
	return n
}

// each calls f for the members, lowest first.
func (s *channelSet) each(f func(id uint8)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint8(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
